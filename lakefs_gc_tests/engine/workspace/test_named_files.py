"""Ranges and metaranges whose content is compared with their name (rule 12)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakefs_gc.engine.workspace.named_files import read_named
from lakefs_gc.engine.workspace.range_cache import RangeCache, read_through
from lakefs_gc.errors import CorruptRangeError
from lakefs_gc.formats.ranges import read_range
from lakefs_gc.formats.sstable.reader import Table
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.benchmarks.generator import Shape, write_range_number
from lakefs_gc_tests.support.faulty_s3 import Answer, FaultyS3, Request

SHAPE = Shape(entries=60, ranges=6, slots=6)
TABLES = {table.id: table.data for table in (write_range_number(SHAPE, number) for number in range(3))}
A, B, C = TABLES


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """Has the tables, and is where the standard AWS environment points to."""
    with FaultyS3() as server:
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
        server.objects.update({f"ns/_lakefs/{name}": data for name, data in TABLES.items()})
        yield server


def answer_with(server: FaultyS3, *contents: str) -> None:
    """Answer the first GETs of B with these tables."""
    left = list(contents)

    def fault(request: Request) -> Answer | None:
        is_b = request.operation == "GetObject" and request.keys[0].endswith(B)
        return Answer(body=TABLES[left.pop(0)]) if is_b and left else None

    server.faults.append(fault)


def read(*names: str) -> dict[str, bytes]:
    store = open_store(StoreLocation("s3://bucket/ns/"))
    return dict(read_named(store, [f"_lakefs/{name}" for name in names], concurrency=1))


def test_lakefs_names_files_by_their_content() -> None:
    """``test_ranges`` compares with files of real servers."""
    assert {name: Table(data, name).name() for name, data in TABLES.items()} == {name: name for name in TABLES}


def test_the_content_of_another_file_is_read_again(server: FaultyS3) -> None:
    answer_with(server, A)
    assert read(A, B, C) == {f"_lakefs/{name}": data for name, data in TABLES.items()}
    assert server.count("GetObject") == 4


def test_two_wrong_answers_are_an_error(server: FaultyS3) -> None:
    answer_with(server, A, C)
    with pytest.raises(CorruptRangeError, match=rf"{B}.*it was read twice, with different content each time"):
        read(A, B)


def test_a_file_with_another_name_is_read(server: FaultyS3) -> None:
    """As of a version of lakeFS that computes names in another way: each time it has the same content."""
    other = f"{0:064x}"
    server.objects[f"ns/_lakefs/{other}"] = TABLES[A]
    server.objects[f"ns/_lakefs/{C}"] = b"damaged"
    assert read(other, C) == {f"_lakefs/{other}": TABLES[A], f"_lakefs/{C}": b"damaged"}
    assert server.count("GetObject") == 4


def test_the_cache_has_no_wrong_content(server: FaultyS3, tmp_path: Path) -> None:
    answer_with(server, A)
    cache = RangeCache(StoreLocation(f"file://{tmp_path}"), 1024**3)
    rows = [{"store_url": "s3://bucket/ns/", "range_id": name, "pack": None} for name in (A, B)]
    batch = pa.RecordBatch.from_pylist(rows)
    for row, found in read_through(iter([batch]), cache, 1, lambda data, file, _: read_range(data, file)):
        assert found.equals(read_range(TABLES[row["range_id"]], ""))
    [pack] = (tmp_path / "_range_cache" / "v1" / "packs").iterdir()
    assert pack.stat().st_size == len(TABLES[A]) + len(TABLES[B])
    assert TABLES[B] in pack.read_bytes()
