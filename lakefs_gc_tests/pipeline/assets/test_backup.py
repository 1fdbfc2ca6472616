"""Asset ``backup``: what the UI shows of it, and that a sweep waits for it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance
from dagster._core.storage.partition_status_cache import AssetPartitionStatus

from lakefs_gc.config import BackupSettings, Settings
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.undo.pruning import prune_backups
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import BackupError, BackupIncompleteError, ClockSkewError, ConfigurationError
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.code_location import (
    CodeLocation,
    assert_numbers_plot,
    failure_of,
    materialized,
    refusal_of,
    values,
)
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.repository_with_garbage import GARBAGE, LIVE

RUN = "lake/first"


@pytest.fixture
def settings(lake: Lake, small_spark_config: dict[str, str], tmp_path: Path) -> Settings:
    """Backups are demanded."""
    (tmp_path / "backups").mkdir()
    section = BackupSettings(url=(tmp_path / "backups").as_uri(), required_before_sweep=True)
    return lake.settings.model_copy(update={"spark": small_spark_config, "backup": section})


@pytest.mark.long(30)
def test_a_sweep_waits_for_the_backup(
    settings: Settings, instance: DagsterInstance, repository: LakeRepository, tmp_path: Path
) -> None:
    location = CodeLocation.of(settings, instance)
    assert location.run("gc_mark", RUN).success
    assert location.approve(RUN).success
    refused = refusal_of(location.run("gc_sweep", RUN), instance, "sweep")
    assert refused["error"] == BackupError.__name__
    assert "lakefs-gc backup lake --mark" in refused["what_to_do"]
    assert len(repository.objects()) == LIVE + GARBAGE

    with pytest.MonkeyPatch.context() as patched:  # a backup of a machine whose clock is behind would soon be pruned
        patched.setattr("lakefs_gc.pipeline.resources.engine.utc_now", lambda: utc_now() - timedelta(days=40))
        assert refusal_of(location.run("gc_backup", RUN), instance, "backup")["error"] == ClockSkewError.__name__

    made = location.run("gc_backup", RUN)
    assert made.success
    (materialization,) = materialized(made).values()
    shown = values(materialization)
    assert (shown["copied_objects"], shown["copied_bytes"], shown["failed_objects"]) == (GARBAGE, GARBAGE * 12, 0)
    assert shown["dagster/row_count"] == GARBAGE
    assert [record.data for record in shown["proofs"].records] == [{"proof": "sha256 by reading", "objects": GARBAGE}]
    assert_numbers_plot(materialization, "dagster/row_count", "copied_objects", "copied_bytes", "failed_objects")

    assert location.run("gc_sweep", RUN).success
    assert len(repository.objects()) == LIVE
    assert now_is_kept(tmp_path)


def test_a_mark_that_needs_a_backup_needs_it_whatever_the_settings_of_the_sweep(
    settings: Settings, instance: DagsterInstance, repository: LakeRepository
) -> None:
    """As on another machine, or in a folder without lakefs-gc.toml."""
    location = CodeLocation.of(settings, instance)
    assert location.run("gc_mark", RUN).success
    assert location.approve(RUN).success
    elsewhere = settings.model_copy(
        update={"backup": settings.backup.model_copy(update={"required_before_sweep": False})}
    )
    nowhere = settings.model_copy(update={"backup": BackupSettings()})
    for others, error in ((elsewhere, BackupError), (nowhere, ConfigurationError)):
        refused = failure_of(CodeLocation.of(others, instance).run("gc_sweep", RUN), "sweep")
        assert refused["error"] == error.__name__
    assert len(repository.objects()) == LIVE + GARBAGE


def test_copies_that_get_lost_while_a_sweep_waits_are_noticed_before_its_deletes(
    settings: Settings,
    instance: DagsterInstance,
    repository: LakeRepository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or the whole backup. From before the wait, a claim shows pruning that it is needed."""
    location = CodeLocation.of(settings, instance)
    assert location.run("gc_mark", RUN).success
    assert location.approve(RUN).success
    assert location.run("gc_backup", RUN).success
    [folder] = (tmp_path / "backups" / "lake").iterdir()
    lost = [next(file for file in folder.rglob("objects/data/*") if file.is_file()), folder / "backup.json"]

    def wait(*_: object) -> None:
        claims = repository.folder / MarkPaths.of(folder.name).claims
        assert any(claims.iterdir())
        lost.pop().rename(tmp_path / "elsewhere")

    monkeypatch.setattr("lakefs_gc.pipeline.assets.sweep.wait_for_commits", wait)
    manifest = lost[-1]
    for complaint in ("no complete backup", "lost objects"):
        shown = failure_of(location.run("gc_sweep", RUN), "sweep")
        assert shown["error"] == BackupError.__name__
        assert complaint in shown["description"]
        assert len(repository.objects()) == LIVE + GARBAGE
        if not manifest.exists():
            (tmp_path / "elsewhere").rename(manifest)


def test_a_backup_that_nobody_requires_is_kept_while_a_sweep_waits(
    settings: Settings,
    instance: DagsterInstance,
    repository: LakeRepository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second sweep of a mark, of what the first one kept. The days of the backup end before it deletes."""
    section = settings.backup.model_copy(update={"required_before_sweep": False})
    settings = settings.model_copy(update={"backup": section})
    location = CodeLocation.of(settings, instance)
    assert location.run("gc_mark", RUN).success
    assert location.approve(RUN).success
    assert location.run("gc_backup", RUN).success
    repository.stage("looks-at-it", "data/garbage-0")
    assert location.run("gc_sweep", RUN).success
    repository.delete("looks-at-it")
    url, days = repository.lake.credentials.endpoint_url, settings.backup.keep_days
    waited = []

    def wait(*_: object) -> None:
        store, later = open_store(StoreLocation(section.url)), utc_now() + timedelta(days=days, minutes=1)
        found = prune_backups(store, "lake", days, later, lambda named: open_store(settings.reach(named)), url)
        waited.append((found.removed, found.kept))

    monkeypatch.setattr("lakefs_gc.pipeline.assets.sweep.wait_for_commits", wait)
    assert location.run("gc_sweep", RUN).success
    assert waited == [([], [])]
    assert len(repository.objects()) == LIVE
    assert now_is_kept(tmp_path)


def now_is_kept(folder: Path) -> bool:
    """The copies outlive the sweep."""
    copies = [file for file in (folder / "backups").rglob("objects/data/*") if file.is_file()]
    return len(copies) == GARBAGE and utc_now().timestamp() >= max(file.stat().st_mtime for file in copies)


@pytest.mark.of_ci
def test_a_backup_with_a_failure_is_red(
    settings: Settings, instance: DagsterInstance, repository: LakeRepository, tmp_path: Path
) -> None:
    location = CodeLocation.of(settings, instance)
    assert location.run("gc_mark", RUN).success
    mark_id = next((tmp_path / "lake" / "objects" / "lake" / "_lakefs/retention/gc/unified").iterdir()).name
    # A folder where a copy has to be: that one object cannot be copied.
    (tmp_path / "backups" / "lake" / mark_id / "objects" / "data" / "garbage-0" / "in-the-way").mkdir(parents=True)
    shown = failure_of(location.run("gc_backup", RUN), "backup")
    assert shown["error"] == BackupIncompleteError.__name__
    assert f"1 of {GARBAGE} objects" in shown["description"]
    (listed,) = [record.data for record in shown["errors"].records]
    assert (listed["objects"], listed["for_example"]) == (1, "data/garbage-0")
    assert (shown["copied_objects"], shown["failed_objects"]) == (GARBAGE - 1, 1)
    status = instance.get_status_by_partition(AssetKey("backup"), [RUN], gc_runs)
    assert status == {RUN: AssetPartitionStatus.FAILED}
