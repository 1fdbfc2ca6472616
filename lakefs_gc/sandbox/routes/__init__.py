"""The REST API, one module per group of routes: read requests, write answers. Operations are elsewhere."""
