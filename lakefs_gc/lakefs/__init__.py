"""The lakeFS server: its API client, the active commits, and how it names folders. ``storage`` reads the objects."""
