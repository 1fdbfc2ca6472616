"""Garbage collection for lakeFS, as a Dagster asset pipeline on Spark."""

__version__ = "0.1.0"
