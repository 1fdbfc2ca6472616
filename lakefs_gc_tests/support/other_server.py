"""Workers of Spark whose environment leads to a copy of the store, which has the same bucket and objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.storage.endpoints import state_endpoints
from lakefs_gc_tests.support.faulty_s3 import FaultyS3
from lakefs_gc_tests.support.faulty_store import LevelledS3, StoreInS3


@dataclass
class Copy:
    """A server with a copy of a store, and Spark, whose new workers can be told to use it."""

    server: FaultyS3
    store: StoreInS3
    environment: dict[str, str]

    def lead_workers_here(self) -> None:
        self.server.objects.update(self.store.server.objects)
        self.environment["AWS_ENDPOINT_URL_S3"] = self.server.endpoint

    def state_that_both_are_one(self) -> None:
        """As a user may in the settings of Spark. One name that leads to two servers has the same effect."""
        state_endpoints({"spark.executorEnv.AWS_ENDPOINT_URL_S3": self.server.endpoint})


@pytest.fixture
def copy(spark: SparkSession, store_in_s3: StoreInS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[Copy]:
    environment = spark.sparkContext.environment
    monkeypatch.setitem(environment, "AWS_ENDPOINT_URL_S3", store_in_s3.server.endpoint)
    with LevelledS3() as server:
        yield Copy(server, store_in_s3, environment)
    state_endpoints({})
