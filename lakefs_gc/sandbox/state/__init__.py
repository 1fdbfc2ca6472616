"""The state of the sandbox: its database, and the records of ranges and staging areas. No operations."""
