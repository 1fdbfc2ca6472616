"""The ledger has one outcome for each address, after any number of sweeps."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.ledger import RECORD, LedgerWriter, count_outcomes, read_ledger
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.errors import CorruptFileError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

FOLDER = "_lakefs/retention/gc/unified/m/lakefs-gc/ledger/"


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreLocation(f"file://{tmp_path}"))


def records(outcomes: dict[str, str], size: int | None = 1) -> pa.RecordBatch:
    rows = [{"address": a, "size": size, "outcome": o, "error": ""} for a, o in outcomes.items()]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD)


def read(spark: SparkSession, store: ObjectStore) -> dict[str, str]:
    with driver_errors():
        rows = read_ledger(spark, store.location, FOLDER, 1).collect()
    assert len({row["address"] for row in rows}) == len(rows)
    # What counts them without Spark goes by the same rules.
    files = [key for batch in store.list(FOLDER) for key in batch["address"].to_pylist()]
    counted = {outcome: count for outcome, count in count_outcomes(store, files).items() if count["objects"]}
    assert counted == {
        outcome: {
            "objects": sum(row["outcome"] == outcome for row in rows),
            "size_bytes": sum(row["size"] or 0 for row in rows if row["outcome"] == outcome),
        }
        for outcome in {row["outcome"] for row in rows}
    }
    return {row["address"]: row["outcome"] for row in rows}


def test_the_last_word_on_each_object(spark: SparkSession, store: ObjectStore) -> None:
    """The name of each object is the outcomes of two sweeps, in the order of their files."""
    store.put("elsewhere", b"")
    assert read(spark, store) == {}
    cases = {
        ("intent",): "intent",
        ("intent", "deleted"): "deleted",
        ("deleted", "already_gone"): "deleted",
        ("already_gone", "deleted"): "deleted",
        ("deleted", "failed"): "deleted",
        ("deleted", "intent"): "deleted",
        ("already_gone", "resurrected"): "already_gone",
        ("failed", "resurrected"): "resurrected",
        ("resurrected", "failed"): "failed",
        ("failed", "intent"): "intent",
        ("resurrected", "intent"): "intent",
        ("intent", "failed"): "failed",
    }
    sequences = ["20260701T000000000000", "20260702T000000000000"]
    for case in cases:
        for sequence, outcome in zip(sequences, case, strict=False):
            LedgerWriter(store, FOLDER, 0, sequence).chunk(0).outcome(records({"-".join(case): outcome}))
    assert read(spark, store) == {"-".join(case): expected for case, expected in cases.items()}


def test_the_outcome_of_a_chunk_follows_its_intent(spark: SparkSession, store: ObjectStore) -> None:
    writer = LedgerWriter(store, FOLDER, 3, "20260701T000000000000")
    for number, outcome in enumerate(("failed", "resurrected")):
        writer.chunk(number).intent(records({outcome: "intent"}))
        writer.chunk(number).outcome(records({outcome: outcome}))
    writer.chunk(2).outcome(records({}))
    writer.chunk(4).intent(records({}))  # only deletes versions
    writer.chunk(3).intent(records({"begun": "intent"}, size=None))
    assert read(spark, store) == {"failed": "failed", "resurrected": "resurrected", "begun": "intent"}
    assert len([key for batch in store.list(FOLDER) for key in batch["address"].to_pylist()]) == 6
    assert writer.begun() == {"failed", "resurrected", "begun"}


def test_a_damaged_file_is_refused(spark: SparkSession, store: ObjectStore) -> None:
    LedgerWriter(store, FOLDER, 0, "1").chunk(0).outcome(records({"a": "deleted"}))
    [key] = [key for batch in store.list(FOLDER) for key in batch["address"].to_pylist()]
    store.put(key, store.read(key)[:-9])
    with pytest.raises(CorruptFileError, match="not a complete Parquet file"):
        read(spark, store)
    LedgerWriter(store, FOLDER, 1, "1").chunk(0).outcome(records({"a": "lost"}))
    files = [key for batch in store.list(FOLDER) for key in batch["address"].to_pylist()]
    with pytest.raises(CorruptFileError, match="unknown outcome"):
        count_outcomes(store, [file for file in files if file != key])
