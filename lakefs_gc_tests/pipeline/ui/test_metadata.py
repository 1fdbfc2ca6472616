"""What a person sees of a materialization."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dagster import Failure, TableMetadataValue, TextMetadataValue

from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.errors import LakeFSGCError, SafetyError, StoreUnavailableError
from lakefs_gc.pipeline.ui.failures import failures_shown
from lakefs_gc.pipeline.ui.metadata import bar_chart, column_schema, stage_metadata, table
from lakefs_gc.units import human_bytes

BEGAN = datetime(2026, 1, 31, 3, tzinfo=UTC)


def manifest(facts: dict[str, Any]) -> DatasetManifest:
    return DatasetManifest(
        stage="store_listing",
        run_key="lake/one",
        materialization_id="m1",
        began_at=BEGAN,
        ended_at=BEGAN + timedelta(seconds=1.5),
        rows=7,
        facts=facts,
        inputs={},
    )


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (3_840_000, "3.7 MiB"),
        (5 * 2**40, "5.0 TiB"),
        (3000 * 2**50, "3000.0 PiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_sizes_for_people(size_bytes: int, text: str) -> None:
    assert human_bytes(size_bytes) == text


def test_chart_is_a_line_for_each_value_as_long_as_its_share() -> None:
    lines = bar_chart({"old": 100, "young": 50, "none": 0}, str).splitlines()
    assert (lines[0], lines[-1]) == ("```", "```")
    bars = [line.count("█") for line in lines[1:-1]]
    assert bars[0] == 2 * bars[1] > 0 == bars[2]
    assert [line.split()[-1] for line in lines[1:-1]] == ["100", "50", "0"]
    assert len({line.index(line.split()[-1], 6) for line in lines[1:-1]}) == 1, "numbers stand in one column"
    assert "█" not in bar_chart({"nothing": 0}, str)


def test_tables_keep_their_rows_and_say_when_there_are_none() -> None:
    shown = table([{"reason": "expired", "objects": 3}])
    assert isinstance(shown, TableMetadataValue)
    assert [record.data for record in shown.records] == [{"reason": "expired", "objects": 3}]
    assert table([]) == TextMetadataValue("none")


@pytest.mark.parametrize("stage", sorted(schemas.BY_STAGE))
def test_every_column_is_described(stage: str) -> None:
    schema = schemas.BY_STAGE[stage]
    shown = column_schema(schema).columns
    assert [(c.name, c.type, c.constraints.nullable) for c in shown] == [
        (f.name, f.dataType.simpleString(), f.nullable) for f in schema.fields
    ]
    assert all(column.description for column in shown)


def test_stage_shows_its_numbers_and_not_its_machinery() -> None:
    facts = {"size_bytes": 2048, "age: under a day": 2048, "age: over a year": 0, "run": {"run_key": "x"}, "pages": 3}
    shown = stage_metadata(manifest(facts), schemas.STORE_LISTING, "file:///place/data")
    assert (shown["dagster/row_count"], shown["bytes"], shown["size"]) == (7, 2048, "2.0 KiB")
    assert (shown["pages"], shown["duration_seconds"]) == (3, 1.5)
    assert "under a day" in shown["bytes_by_age"].md_str
    assert not {"run", "size_bytes", "age: under a day"} & set(shown)
    assert "bytes" not in stage_metadata(manifest({}), schemas.UNCOMMITTED, "file:///place/data")


def test_failures_say_what_happened_and_what_to_do() -> None:
    @failures_shown()
    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(Failure) as refused:
        fail(SafetyError("too much", remedy="look at it"))
    assert refused.value.description == "too much"
    assert {name: value.value for name, value in refused.value.metadata.items()} == {
        "what_to_do": "look at it",
        "error": "SafetyError",
    }
    assert isinstance(refused.value.__cause__, SafetyError)
    assert not refused.value.allow_retries
    with pytest.raises(Failure) as unavailable:
        fail(StoreUnavailableError("gone"))
    assert unavailable.value.allow_retries
    assert unavailable.value.metadata["what_to_do"].value == StoreUnavailableError.default_remedy
    # What is not ours is a fault, and keeps its stack trace.
    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())
    assert issubclass(SafetyError, LakeFSGCError)


def test_an_asset_is_a_step_of_the_progress() -> None:
    @failures_shown()
    def committed(number: int) -> tuple[int, str]:
        snapshot = RUN_PROGRESS.snapshot()
        return number, snapshot.step if snapshot else ""

    assert committed(3) == (3, "committed")
    assert committed.__name__ == "committed"
    assert RUN_PROGRESS.snapshot() is None
    with pytest.raises(Failure), failures_shown():
        raise SafetyError("too much")
