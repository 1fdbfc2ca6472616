"""Garbage collection for lakeFS, as a Dagster asset pipeline on Spark."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the Python API when it is first used: it loads Arrow, pandas and the lakeFS client, two seconds."""
    if name == "marks":
        return import_module("lakefs_gc.api").marks
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
