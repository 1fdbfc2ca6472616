"""For stages that ask no lakeFS server."""

from __future__ import annotations

from lakefs_gc.lakefs.client import LakeFSClient


def no_server() -> LakeFSClient:
    """Raise ``AssertionError``: a stage that needs no server asked for one."""
    raise AssertionError("this stage needs no lakeFS server")
