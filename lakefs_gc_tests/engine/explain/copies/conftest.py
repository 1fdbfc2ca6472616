"""A bucket that keeps versions."""

from __future__ import annotations

import uuid

import pytest

from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.location import StoreLocation


@pytest.fixture
def versioned(s3_server: SeaweedFS, s3_namespace: StoreLocation) -> StoreLocation:
    """A folder in a bucket that keeps versions."""
    bucket = f"copies-{uuid.uuid4().hex[:12]}"
    client = s3_server.client()
    client.create_bucket(Bucket=bucket)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return StoreLocation(f"s3://{bucket}/repository")
