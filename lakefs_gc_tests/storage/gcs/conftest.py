"""Fixtures of the tests on Google Cloud Storage: a stand-in, alone and before the emulator."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from lakefs_gc.sandbox.fake_gcs import FakeGCS
from lakefs_gc.storage.gcs.store import GCSStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc_tests.support.gcs_stand_in import GCSStandIn

QUICK = RetryPolicy(tries=3, tries_when_slow=5, base_seconds=0.001)


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[GCSStandIn]:
    """A stand-in that answers as Google may; the environment leads to it."""
    stand_in = GCSStandIn()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", stand_in.endpoint)
    yield stand_in
    stand_in.close()


@pytest.fixture
def store(gcs: GCSStandIn) -> GCSStore:
    """A store in the stand-in."""
    return GCSStore(StoreLocation("gs://bucket/ns"), QUICK)


@pytest.fixture
def with_conditions(fake_gcs: FakeGCS, monkeypatch: pytest.MonkeyPatch) -> Iterator[GCSStandIn]:
    """A stand-in before fake-gcs-server that checks the condition of a delete, which the emulator ignores."""
    stand_in = GCSStandIn(fake_gcs.endpoint)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", stand_in.endpoint)
    yield stand_in
    stand_in.close()


@pytest.fixture
def conditional_store(with_conditions: GCSStandIn) -> GCSStore:
    """A fresh namespace in fake-gcs-server, behind ``with_conditions``."""
    return GCSStore(StoreLocation(f"gs://lakefs-gc-tests/{uuid.uuid4().hex}"), QUICK)
