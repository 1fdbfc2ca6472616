"""Two processes that back up at once: the same mark, or two marks in a workspace that they share."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.backups.manifest import COPIED, FAILED, Backup, BackupPaths
from lakefs_gc.engine.records.mark import Mark, MarkPart
from lakefs_gc.engine.undo import backup as stage
from lakefs_gc.engine.undo.backup_contents import RECORD, read_contents, refuse_lost_copies
from lakefs_gc.engine.undo.restore import restore
from lakefs_gc.engine.undo.restore_source import RestoreSource
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.engine.workspace.workspace import StageOutput, Workspace
from lakefs_gc.errors import BackupError, BackupIncompleteError, InputOrderError, RestoreIncompleteError
from lakefs_gc.formats.parquet import parquet_bytes
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.pruning import KEYS


def marked(spark: SparkSession, repository: LakeRepository) -> tuple[Collector, Mark]:
    for key in KEYS:
        repository.put_stray(key)
    collector = Collector(spark, repository)
    return collector, collector.mark_objects(*KEYS)


def copied(place: Backups, manifest: Backup) -> set[str]:
    """The addresses whose copies the contents list."""
    rows = [row for part in manifest.parts for row in read_contents(place.store, part).to_pylist()]
    return {row["address"] for row in rows if row["outcome"] == COPIED}


def test_the_manifest_counts_what_the_contents_list(
    spark: SparkSession, repository: LakeRepository, place: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process, whose request was throttled, records a failure between the counts and the contents."""
    collector, mark = marked(spark, repository)
    real = stage._result

    def counts(*args: object) -> stage.BackupResult:
        result = real(*args)  # type: ignore[arg-type]
        row = {"address": KEYS[0], "size": 5, "outcome": FAILED, "proof": "", "checksum": "", "error": "SlowDown"}
        content = parquet_bytes(pa.RecordBatch.from_pylist([row], schema=RECORD), compression="zstd")
        records = BackupPaths("lake", mark.mark_id).records
        place.store.put(f"{records}{time.time_ns():020d}-00000-{uuid4().hex[:12]}.parquet", content)
        return result

    monkeypatch.setattr(stage, "_result", counts)
    place.back_up(spark, collector, mark).result.raise_if_incomplete()
    manifest = place.manifest_of(mark)
    assert manifest.objects == len(KEYS)
    assert copied(place, manifest) == set(KEYS)
    refuse_lost_copies(place.store, manifest)


def test_contents_that_are_not_whole_make_no_backup(
    spark: SparkSession, repository: LakeRepository, place: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, mark = marked(spark, repository)

    def lost(*args: object) -> tuple[MarkPart, ...]:
        return ()

    monkeypatch.setattr(stage, "_write_contents", lost)
    with pytest.raises(BackupIncompleteError, match=r"Only 0 of 6 objects of mark .* were written"):
        place.back_up(spark, collector, mark)
    with pytest.raises(BackupError, match="no complete backup"):
        place.manifest_of(mark)


def test_a_manifest_of_other_contents_is_not_complete(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    """As an earlier version may have written it: it counts a copy that the contents call failed."""
    collector, mark = marked(spark, repository)
    place.back_up(spark, collector, mark)
    manifest = place.manifest_of(mark)
    [part] = manifest.parts
    table = read_contents(place.store, part)
    outcomes = pa.array([FAILED, *[COPIED] * 5])
    table = table.set_column(2, RECORD.field("outcome"), outcomes)
    content = parquet_bytes(table.to_batches()[0], compression="zstd")
    place.store.put(part.key, content)
    digest = hashlib.sha256(content).hexdigest()
    changed = replace(manifest, parts=(replace(part, sha256=digest),)).sealed()
    place.store.put(manifest.paths.manifest, changed.to_json())
    with pytest.raises(BackupError, match=r"1 of 6 copies are missing .* e\.g\. lake/.*/backup\.json"):
        refuse_lost_copies(place.store, changed)

    repository.store.delete_many(KEYS)
    for prefix in ("", "data/"):
        result = restore(collector.context, RestoreSource(changed, place.location, repository.location), prefix=prefix)
        assert (result.objects["restored"] or result.objects["already_there"], result.not_requested) == (5, 1)
        with pytest.raises(RestoreIncompleteError, match="manifest counts 6 copies, and they list 5") as incomplete:
            result.raise_if_incomplete()
        assert "copy those that are missing manually" in incomplete.value.remedy


def test_the_plan_of_another_mark_is_not_carried_out(
    spark: SparkSession, repository: LakeRepository, place: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run has the same name in a workspace that both machines use, and its mark as many objects."""
    collector, mark = marked(spark, repository)
    others = [(repository.put_stray(f"data/s/theirs-{number}"), 5, None) for number in range(len(KEYS))]
    real, written = Workspace.write, list[str]()

    def write(
        workspace: Workspace, spark: SparkSession, run_key: str, stage: str, output: StageOutput
    ) -> DatasetManifest:
        manifest = real(workspace, spark, run_key, stage, output)
        if stage == "backup_plan" and not written:
            written.append(stage)
            theirs = spark.createDataFrame(others, "address string, size long, recorded string")
            real(workspace, spark, run_key, stage, replace(output, dataframe=theirs))
        return manifest

    monkeypatch.setattr(Workspace, "write", write)
    with pytest.raises(InputOrderError, match=r"backup_plan of run .* was written by another process"):
        place.back_up(spark, collector, mark)
    assert place.copies(mark) == {}
    place.back_up(spark, collector, mark).result.raise_if_incomplete()
    assert set(place.copies(mark)) == set(KEYS)
