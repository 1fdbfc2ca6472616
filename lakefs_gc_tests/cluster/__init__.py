"""Spark clusters: the archive for executors, and runs that lose a machine."""
