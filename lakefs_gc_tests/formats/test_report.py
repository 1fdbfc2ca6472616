"""The report of a run, in the layout of lakeFS's own Spark client."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest

from lakefs_gc.errors import CorruptFileError, MarkError
from lakefs_gc.formats.parquet import parquet_bytes
from lakefs_gc.formats.report import (
    ReportPaths,
    Summary,
    deleted_parquet,
    deleted_text,
    find_report_layouts,
    folder_before_marks,
    read_deleted_addresses,
    report_paths,
)

RUN_ID = "ft6vc2hksdue9brs3eog"
SUMMARY = Summary(
    run_id=RUN_ID,
    success=True,
    first_slice="ft6vmg1ksdue9brs39a0",
    start_time=datetime(2026, 11, 21, 3, 16, 3, 123_456, tzinfo=UTC),
    cutoff_time=datetime(2026, 11, 20, 3, 16, 3, 120_000, tzinfo=UTC),
    num_deleted_objects=7,
)
WRITTEN = (
    b'{"run_id":"ft6vc2hksdue9brs3eog","success":true,"first_slice":"ft6vmg1ksdue9brs39a0",'
    b'"start_time":"2026-11-21T03:16:03.123456Z","cutoff_time":"2026-11-20T03:16:03.120Z",'
    b'"num_deleted_objects":7}'
)


def test_the_summary_is_the_clients_byte_for_byte() -> None:
    assert SUMMARY.to_json() == WRITTEN
    assert Summary.from_json(WRITTEN, "f") == SUMMARY


def test_times_are_written_in_utc_without_empty_decimals() -> None:
    moment = datetime(2026, 11, 21, 5, 0, tzinfo=timezone(timedelta(hours=2)))
    fields = json.loads(Summary("r", False, "", moment, moment, 0).to_json())
    assert fields["start_time"] == "2026-11-21T03:00:00Z"


def test_java_writes_nanoseconds_too() -> None:
    data = WRITTEN.replace(b"03.123456Z", b"03.123456789Z")
    assert Summary.from_json(data, "f") == SUMMARY


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (WRITTEN[:-1], "not valid JSON"),
        (b"[]", "not a JSON object"),
        (WRITTEN.replace(b"true", b'"true"'), "'success' is 'true', not a bool"),
        (WRITTEN.replace(b":7", b":true"), "'num_deleted_objects' is True, not a int"),
        (WRITTEN.replace(b'"success":true,', b""), "'success' is None"),
        (WRITTEN.replace(b"2026-11-21T", b"2026-13-21T"), "invalid time"),
        (WRITTEN.replace(b"2026-11-21T", b"yesterday"), "where a time in UTC is required"),
        (b"\xff", "not valid JSON"),
    ],
)
def test_damaged_summaries_are_refused(damaged: bytes, reason: str) -> None:
    with pytest.raises(CorruptFileError, match=rf"^summary\.json: .*{reason}"):
        Summary.from_json(damaged, "summary.json")


def test_paths_of_a_report() -> None:
    folder = f"_lakefs/retention/gc/unified/{RUN_ID}/"
    assert report_paths(RUN_ID) == ReportPaths(
        RUN_ID, folder, folder + "deleted/", folder + "deleted.text/", folder + "summary.json"
    )


def test_layouts_of_earlier_clients() -> None:
    today, uncommitted, committed = find_report_layouts("abc-1")
    assert today == report_paths("abc-1")
    assert uncommitted.deleted == "_lakefs/retention/gc/uncommitted/abc-1/deleted/"
    assert uncommitted.summary == "_lakefs/retention/gc/uncommitted/abc-1/summary.json"
    assert committed.deleted == "_lakefs/retention/gc/addresses/mark_id=abc-1/"
    assert committed.deleted_text == "_lakefs/retention/gc/addresses.text/mark_id=abc-1/"
    assert committed.summary is None


@pytest.mark.parametrize("mark_id", ["", ".", "..", "a/b", "../x", "a b", "é", "a\n", "%2e%2e"])
def test_ids_that_could_name_another_place_are_refused(mark_id: str) -> None:
    with pytest.raises(MarkError):
        find_report_layouts(mark_id)
    with pytest.raises(MarkError):
        folder_before_marks(mark_id)


def test_deleted_addresses() -> None:
    addresses = ["data/a/b", "é %20", "tab\t"]
    batch = pa.RecordBatch.from_pydict({"address": addresses, "size": [1, 2, 3]})
    data = deleted_parquet(batch)
    assert read_deleted_addresses(data, "f").to_pylist() == addresses
    assert deleted_text(batch["address"]) == "data/a/b\né %20\ntab\t\n".encode()


def test_no_part_of_an_address_stands_in_a_line_of_its_own() -> None:
    addresses = pa.array(["data/s/x\ndata/live/y", "data/s/x\rdata/live/y", "data/s/z"])
    assert deleted_text(addresses) == b"data/s/z\n"


def test_a_mark_of_nothing() -> None:
    empty = pa.RecordBatch.from_arrays([pa.array([], pa.string())], names=["address"])
    assert read_deleted_addresses(deleted_parquet(empty), "f").to_pylist() == []
    assert deleted_text(empty["address"]) == b""


@pytest.mark.parametrize("column", [{"path": ["a"]}, {"address": [None]}, {"address": [1]}])
def test_other_parquet_files_are_refused(column: dict[str, list[object]]) -> None:
    with pytest.raises(CorruptFileError, match=r"^part-0: "):
        read_deleted_addresses(parquet_bytes(pa.RecordBatch.from_pydict(column)), "part-0")
    with pytest.raises(CorruptFileError, match=r"^part-0: not a complete Parquet file"):
        read_deleted_addresses(b"PAR1", "part-0")
