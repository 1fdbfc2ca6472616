"""A sandbox, and an S3 server of our own that can be told to fail."""

from __future__ import annotations

from lakefs_gc_tests.engine.conftest import lake
from lakefs_gc_tests.support.faulty_store import levelled_s3, store_in_s3

__all__ = ["lake", "levelled_s3", "store_in_s3"]
