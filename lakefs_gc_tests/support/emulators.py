"""Namespaces in the emulators of Azure's and Google's stores, for this process and Spark's workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.store_proxy import StoreProxy, before_azurite, before_fake_gcs

EMULATORS = {"azure": "azurite", "gcs": "fake_gcs"}
"""The fixture of the emulator, by kind of store."""


@contextmanager
def namespace_behind_proxy(kind: str, request: pytest.FixtureRequest) -> Iterator[tuple[StoreProxy, StoreLocation]]:
    """Yield a proxy before the emulator of a kind, and a fresh namespace there.

    This process, new workers of the fixture ``spark`` and new processes go through the proxy. The test is skipped if
    the emulator is not installed.
    """
    location: StoreLocation = request.getfixturevalue(f"{kind}_namespace")
    emulator = request.getfixturevalue(EMULATORS[kind])
    with before_azurite(emulator) if kind == "azure" else before_fake_gcs(emulator) as (proxy, environment):
        lead(request, environment)
        yield proxy, location


def lead(request: pytest.FixtureRequest, environment: Mapping[str, str]) -> None:
    """Set variables of this process, and of the workers that Spark starts for each new function."""
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    spark: SparkSession = request.getfixturevalue("spark")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
