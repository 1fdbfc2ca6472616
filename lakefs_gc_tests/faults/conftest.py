"""A sandbox, and an S3 server of our own that can be told to fail."""

from __future__ import annotations

from lakefs_gc_tests.support.commands import run
from lakefs_gc_tests.support.faulty_store import levelled_s3, store_in_s3
from lakefs_gc_tests.support.lake_fixtures import lake

__all__ = ["lake", "levelled_s3", "run", "store_in_s3"]
