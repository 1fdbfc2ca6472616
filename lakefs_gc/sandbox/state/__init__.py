"""The sandbox's database: its tables, the records in them, and the identity of the server."""
