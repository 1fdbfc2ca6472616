"""Spark sessions, schemas, and code that runs in Spark's workers. It contains no rules of garbage collection."""
