"""An S3 server of our own that can be told to fail."""

from __future__ import annotations

from lakefs_gc_tests.engine.faulty_store import store_in_s3

__all__ = ["store_in_s3"]
