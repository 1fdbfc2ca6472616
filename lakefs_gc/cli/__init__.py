"""The command line ``lakefs-gc``: the same assets as in the UI, run in this process."""

from lakefs_gc.cli.main import main

__all__ = ["main"]
