"""Parquet files: of the server, and records of marks, sweeps and backups."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakefs_gc.formats import (
    report,
)
from lakefs_gc.formats.parquet import parquet_bytes
from lakefs_gc.formats.uncommitted_parquet import UNCOMMITTED_FILE_SCHEMA, read_uncommitted, write_uncommitted
from lakefs_gc_tests.fuzz.targets.target import FILE, MOMENT, Finding, Target, agree, rows_of
from lakefs_gc_tests.golden import golden_files


def _uncommitted_seeds() -> list[bytes]:
    rows = {"physical_address": ["data/s/a", "data/s/é", "data/s/a"], "creation_date": [1, 2, 3]}
    written = write_uncommitted(pa.record_batch(rows, schema=UNCOMMITTED_FILE_SCHEMA))
    recorded = [c for name, c in golden_files("esti-unified").items() if "/uncommitted/" in name and len(c) < 4000]
    return [written, *recorded[:2]]


def _read_uncommitted(data: bytes) -> Any:
    return rows_of(read_uncommitted(data, FILE))


def _deleted_seeds() -> list[bytes]:
    plain = report.deleted_parquet(pa.record_batch({"address": ["data/s/a", "data/t/é"]}))
    facts = {"address": ["data/s/a"], "size": pa.array([1], pa.int64()), "last_modified": [MOMENT]}
    return [plain, parquet_bytes(pa.record_batch(facts), compression="snappy")]


def _read_part(data: bytes) -> Any:
    from lakefs_gc.engine.records.mark_parts import part_rows

    plain = report.read_deleted_addresses(data, FILE).to_pylist()
    rows = part_rows(data, FILE)
    rows.validate(full=True)
    agree(rows["address"].to_pylist(), plain, "the addresses of a part")
    # As numbers, because Arrow's times exceed the year 9999.
    return [rows["size"].to_pylist(), rows["last_modified"].cast(pa.int64()).to_pylist()]


def _records(schema: pa.Schema, rows: list[dict[str, Any]]) -> list[bytes]:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink, compression="zstd")
    return [sink.getvalue()]


def _ledger_seeds() -> list[bytes]:
    from lakefs_gc.engine.records.ledger import RECORD

    return _records(RECORD, [{"address": "data/s/a", "size": 3, "outcome": "deleted", "error": ""}])


def _read_ledger(data: bytes) -> Any:
    from lakefs_gc.engine.records.ledger import read_records

    table = read_records(FILE, data)
    table.validate(full=True)
    if table["address"].null_count or table["outcome"].null_count:
        raise Finding("a record without its address or its outcome")
    return table.to_pylist()


def _backup_record_seeds() -> list[bytes]:
    from lakefs_gc.engine.undo.backup_contents import RECORD

    row = {"address": "data/s/a", "size": 3, "outcome": "copied", "proof": "md5 by stores", "checksum": "", "error": ""}
    return _records(RECORD, [row])


def _read_backup_record(data: bytes) -> Any:
    from lakefs_gc.engine.undo.backup_contents import read_records

    table = read_records(FILE, data)
    table.validate(full=True)
    if any(table[name].null_count for name in ("address", "outcome", "proof", "checksum", "error")):
        raise Finding("a record with something missing")
    return table.to_pylist()


TARGETS = (
    Target("uncommitted", _read_uncommitted, _uncommitted_seeds),
    Target("mark_part", _read_part, _deleted_seeds),
    Target("ledger", _read_ledger, _ledger_seeds),
    Target("backup_record", _read_backup_record, _backup_record_seeds),
)
