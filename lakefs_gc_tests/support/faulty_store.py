"""Namespaces in an S3 server that counts requests and fails on demand, for this process and Spark's workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote_plus

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.faulty_s3 import Answer, FaultyS3, Request, deleted
from lakefs_gc_tests.support.lake import LakeRepository

WORKER_KEY = "worker"
"""Access key id of Spark's workers, which distinguishes their requests from those of the driver and the sandbox."""


class LevelledS3(FaultyS3):
    """A server that also answers listings of one level."""

    def page(self, query: dict[str, str]) -> str:
        if query.get("delimiter") != "/":
            return super().page(query)
        prefix = query.get("prefix", "")
        below = [name.removeprefix(prefix) for name in self.objects if name.startswith(prefix)]
        levels = sorted({name.partition("/")[0] + "/" for name in below if "/" in name})
        every = self.objects
        try:
            self.objects = {prefix + name: every[prefix + name] for name in below if "/" not in name}
            listed = super().page({**query, "delimiter": ""})
        finally:
            self.objects = every
        prefixes = "".join(
            f"<CommonPrefixes><Prefix>{quote_plus(prefix + level, safe='/')}</Prefix></CommonPrefixes>"
            for level in levels
        )
        return listed.replace("<EncodingType>", prefixes + "<EncodingType>")


@dataclass(frozen=True)
class StoreInS3:
    """The server, and a location in it for a lake."""

    server: LevelledS3
    location: StoreLocation

    def key(self, repository: LakeRepository, key: str) -> str:
        """Return a key of a repository in the server."""
        return repository.location.folder_url.removeprefix("s3://bucket/") + key

    def refuse_to_delete(self, repository: LakeRepository, key: str) -> None:
        """Answer AccessDenied to each delete of this object until ``faults.clear()``, also in bulk deletes."""
        stubborn = self.key(repository, key)

        def refuse(request: Request) -> Answer | None:
            if request.operation == "DeleteObject" and request.keys == (stubborn,):
                return Answer(403, b"<Error><Code>AccessDenied</Code><Message>not yours</Message></Error>")
            if request.operation != "DeleteObjects" or stubborn not in request.keys:
                return None
            for name in set(request.keys) - {stubborn}:
                self.server.objects.pop(name, None)
            return deleted(request.keys, {stubborn: ("AccessDenied", "not yours")})

        self.server.faults.append(refuse)

    def reads_by_workers(self) -> list[str]:
        """Return the keys that Spark's workers have read completely, one for each request."""
        return [
            request.keys[0]
            for request in self.server.requests
            if request.operation == "GetObject" and f"Credential={WORKER_KEY}/" in request.headers["authorization"]
        ]


def credentials(server: LevelledS3, name: str) -> dict[str, str]:
    """Return the environment of a process whose requests have ``name`` as their access key id."""
    return {
        "AWS_ENDPOINT_URL_S3": server.endpoint,
        "AWS_ACCESS_KEY_ID": name,
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }


@pytest.fixture
def levelled_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[LevelledS3]:
    """An S3 server that this process uses."""
    server = LevelledS3()
    with server:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
            monkeypatch.delenv(name, raising=False)
        for name, value in credentials(server, "driver").items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def store_in_s3(spark: SparkSession, levelled_s3: LevelledS3, monkeypatch: pytest.MonkeyPatch) -> StoreInS3:
    """An S3 server that this process and new Spark workers use."""
    for name, value in credentials(levelled_s3, WORKER_KEY).items():
        # The environment that Spark passes to the workers of each new function.
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return StoreInS3(levelled_s3, StoreLocation("s3://bucket/lakes/"))
