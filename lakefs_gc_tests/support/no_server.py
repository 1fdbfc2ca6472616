"""A stand-in for stages that need no lakeFS server."""

from __future__ import annotations

from lakefs_gc.lakefs.client import LakeFSClient


def no_server() -> LakeFSClient:
    """Raise ``AssertionError``, because the stage must not connect to a server."""
    raise AssertionError("this stage needs no lakeFS server")
