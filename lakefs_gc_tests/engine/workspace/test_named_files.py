"""Ranges and metaranges whose content is compared with their name (rule 12)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakefs_gc.engine.workspace.named_files import read_named, read_named_file
from lakefs_gc.engine.workspace.range_cache import RangeCache, read_through
from lakefs_gc.errors import CorruptRangeError, ObjectNotFoundError
from lakefs_gc.formats.ranges import read_range
from lakefs_gc.formats.sstable import kernel
from lakefs_gc.formats.sstable.reader import Table, opened
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.benchmarks.generator import Shape, write_range_number
from lakefs_gc_tests.support.faulty_s3 import Answer, FaultyS3, Request

SHAPE = Shape(entries=60, ranges=6, slots=6)
TABLES = {table.id: table.data for table in (write_range_number(SHAPE, number) for number in range(3))}
A, B, C = TABLES


@pytest.fixture
def server(plain_s3: FaultyS3) -> FaultyS3:
    """Has the tables."""
    plain_s3.objects.update({f"ns/_lakefs/{name}": data for name, data in TABLES.items()})
    return plain_s3


def answer_with(server: FaultyS3, *contents: str) -> None:
    """Answer the first GETs of B with these tables."""
    left = list(contents)

    def fault(request: Request) -> Answer | None:
        is_b = request.operation == "GetObject" and request.keys[0].endswith(B)
        return Answer(body=TABLES[left.pop(0)]) if is_b and left else None

    server.faults.append(fault)


def read(*names: str) -> dict[str, bytes]:
    store = open_store(StoreLocation("s3://bucket/ns/"))
    files = read_named(store, [f"_lakefs/{name}" for name in names], concurrency=1)
    return {key: content if isinstance(content, bytes) else content.data for key, content in files}


def test_lakefs_names_files_by_their_content() -> None:
    """``test_ranges`` compares with files of real servers."""
    assert {name: Table(data, name).name() for name, data in TABLES.items()} == {name: name for name in TABLES}


def test_a_file_is_decoded_once_for_its_name_and_its_rows(server: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, decoded = kernel.decode_pairs, []

    def noting(*arguments: Any) -> object:
        decoded.append(arguments)
        return decode(*arguments)

    monkeypatch.setattr(kernel, "decode_pairs", noting)
    store = open_store(StoreLocation("s3://bucket/ns/"))
    for name in (A, B):
        table = read_named_file(store, f"_lakefs/{name}")
        assert read_range(table, "as the caller calls it", keys=True).num_rows
        assert opened(table, "another").corrupt("damaged").message.startswith("another")
    assert len(decoded) == 2


def test_the_content_of_another_file_is_read_again(server: FaultyS3) -> None:
    answer_with(server, A)
    assert read(A, B, C) == {f"_lakefs/{name}": data for name, data in TABLES.items()}
    assert server.count("GetObject") == 4


def test_two_wrong_answers_are_an_error(server: FaultyS3) -> None:
    answer_with(server, A, C)
    with pytest.raises(CorruptRangeError, match=rf"{B}.*it was read twice, and has the content of another file, {C}"):
        read(A, B)


def test_the_same_wrong_answer_twice_is_an_error(server: FaultyS3) -> None:
    """As of a proxy that keeps the answer to another request."""
    answer_with(server, A, A)
    with pytest.raises(CorruptRangeError, match=rf"{B}.*the content of another file, {A}"):
        read(B)


def test_damaged_content_is_for_the_parser(server: FaultyS3) -> None:
    server.objects[f"ns/_lakefs/{C}"] = b"damaged"
    assert read(A, C) == {f"_lakefs/{A}": TABLES[A], f"_lakefs/{C}": b"damaged"}
    assert server.count("GetObject") == 3


def test_what_is_refused_is_omitted(server: FaultyS3) -> None:
    answer_with(server, A, C)
    store, refused = open_store(StoreLocation("s3://bucket/ns/")), list[CorruptRangeError]()
    keys = [f"_lakefs/{name}" for name in TABLES]
    found = dict(read_named(store, keys, concurrency=1, refused=refused.append))
    assert found.keys() == {f"_lakefs/{A}", f"_lakefs/{C}"}
    assert [error.facts["file"] for error in refused] == [f"_lakefs/{B}"]


def test_one_file_is_read_again(server: FaultyS3) -> None:
    answer_with(server, A)
    store = open_store(StoreLocation("s3://bucket/ns/"))
    assert opened(read_named_file(store, f"_lakefs/{B}"), B).data == TABLES[B]
    with pytest.raises(ObjectNotFoundError):
        read_named_file(store, f"_lakefs/{0:064x}")


def test_the_second_read_takes_another_connection(server: FaultyS3) -> None:
    """Of botocore: an answer that waits on a connection of libcurl is not taken twice."""
    answer_with(server, A)
    assert read(C, A, B)[f"_lakefs/{B}"] == TABLES[B]  # boto3 sends the first
    of_b = [request for request in server.requests if request.operation == "GetObject" and request.keys[0].endswith(B)]
    assert ["x-amz-checksum-mode" in request.headers for request in of_b] == [False, True]


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
