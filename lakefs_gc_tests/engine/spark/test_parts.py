"""A part that workers wrote is read with the content that it was written with."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lakefs_gc.engine.spark.data_files import StageFiles
from lakefs_gc.engine.spark.parts import PartsFolder, read_part, write_parts
from lakefs_gc.engine.spark.schemas import STORE_LISTING
from lakefs_gc.errors import CorruptFileError
from lakefs_gc.storage.base import LISTING_SCHEMA, ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.faulty_s3 import Answer, FaultyS3, Request

WORK = StoreLocation("s3://bucket/work/")


@pytest.fixture
def server(plain_s3: FaultyS3) -> FaultyS3:
    return plain_s3


@pytest.fixture
def store(server: FaultyS3) -> ObjectStore:
    return open_store(WORK)


@pytest.fixture
def keys(store: ObjectStore) -> list[str]:
    """Two parts with the same size, and with one row each."""
    rows = ({"address": address, "size": 10, "last_modified": datetime(2026, 1, 1, tzinfo=UTC)} for address in "ab")
    batches = (pa.RecordBatch.from_pylist([row], schema=LISTING_SCHEMA) for row in rows)
    folder = PartsFolder(WORK, "run/stage/data/")
    return [folder.folder + report["file"][0].as_py() for batch in batches for report in write_parts([batch], folder)]


def answer_with_the_first(server: FaultyS3, keys: list[str], times: int) -> None:
    """Answer GETs of the second part with the first one."""
    assert len({len(server.objects[f"work/{key}"]) for key in keys}) == 1
    left = [server.objects[f"work/{keys[0]}"]] * times

    def fault(request: Request) -> Answer | None:
        is_second = request.operation == "GetObject" and request.keys[0].endswith(keys[1])
        return Answer(body=left.pop()) if is_second and left else None

    server.faults.append(fault)


def test_a_part_is_not_read_as_another_one(server: FaultyS3, store: ObjectStore, keys: list[str]) -> None:
    answer_with_the_first(server, keys, 1)
    files = StageFiles(WORK, tuple(keys), rows=2)
    assert files.table(store, STORE_LISTING)["address"].to_pylist() == ["a", "b"]
    answer_with_the_first(server, keys, 1)
    strings = files.strings("address")
    assert [address for each in strings for address in each.to_pylist()] == ["a", "b"]


def test_a_part_that_is_another_one_is_an_error(server: FaultyS3, store: ObjectStore, keys: list[str]) -> None:
    answer_with_the_first(server, keys, 10)
    with pytest.raises(CorruptFileError, match=f"{keys[1]}: it has another content than it was written with"):
        read_part(store, keys[1])
    assert read_part(store, keys[0]) == server.objects[f"work/{keys[0]}"]
