"""Spark sessions, schemas, and code that runs in Spark's workers. Nothing here knows about garbage collection."""
