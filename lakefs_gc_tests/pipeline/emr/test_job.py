"""What a job says: metadata arrives as it was, and a process that nobody started reports to nobody."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from dagster import MaterializeResult, MetadataValue
from dagster._core.definitions.metadata import normalize_metadata
from dagster._core.definitions.metadata.external_metadata import metadata_map_from_external

from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.pipeline.emr_job import pipes_metadata, run_job
from lakefs_gc.pipeline.ui.metadata import stage_metadata, table

NOW = datetime(2026, 1, 31, 3, tzinfo=UTC)


def arrived(metadata: dict[str, Any]) -> dict[str, Any]:
    """What Dagster has of metadata that went through a message."""
    message: Any = json.loads(json.dumps(pipes_metadata(normalize_metadata(metadata))))
    return dict(metadata_map_from_external(message))


@pytest.mark.parametrize("stage", sorted(schemas.BY_STAGE))
def test_metadata_of_a_stage_arrives_as_it_was(stage: str) -> None:
    facts = {"size_bytes": 12, "mode": "clean", "share": 0.5, "complete": True}
    manifest = DatasetManifest(stage, "lake/one", "m1", NOW, NOW + timedelta(seconds=1.5), 7, facts, {})
    metadata = stage_metadata(manifest, schemas.BY_STAGE[stage], "s3://bucket/work")
    assert arrived(metadata) == normalize_metadata(metadata)


def test_tables_texts_and_json_arrive_as_they_were() -> None:
    metadata = {
        "table": table([{"prefix": "data/", "objects": 3, "share": 0.5}]),
        "empty": table([]),
        "md": MetadataValue.md("**bold**"),
        "path": MetadataValue.path("s3://lake/report.html"),
        "json": MetadataValue.json({"facts": [1, "two"]}),
    }
    assert arrived(metadata) == normalize_metadata(metadata)
    assert MaterializeResult(metadata=arrived(metadata))


@pytest.mark.parametrize("job", ["gc_mark", "gc_sweep"])
def test_without_pipes_there_is_nobody_to_report_to(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_PIPES_CONTEXT", raising=False)
    with pytest.raises(ConfigurationError, match="not started by Dagster Pipes") as caught:
        run_job(job)
    assert "lakefs-gc mark" in caught.value.remedy


def test_approving_is_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_PIPES_CONTEXT", "anything")
    with pytest.raises(ConfigurationError, match="gc_approve"):
        run_job("gc_approve")
