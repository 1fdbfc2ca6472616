"""Asset ``restore``: what it proves in the UI, and that it is refused where the command would be."""

from __future__ import annotations

from pathlib import Path

import pytest
from dagster import DagsterInstance, DagsterInvalidConfigError, DagsterRunStatus

from lakefs_gc.config import BackupSettings, Settings
from lakefs_gc.engine.records.restore_record import RestoreRecord
from lakefs_gc.errors import (
    ApprovalError,
    BackupError,
    ConfigurationError,
    InputOrderError,
    MarkError,
    RestoreIncompleteError,
    RunInProgressError,
)
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
def location(lake: Lake, small_spark_config: dict[str, str], instance: DagsterInstance, tmp_path: Path) -> CodeLocation:
    (tmp_path / "backups").mkdir()
    backup = BackupSettings(url=(tmp_path / "backups").as_uri())
    return CodeLocation.of(lake.settings.model_copy(update={"spark": small_spark_config, "backup": backup}), instance)


def _refusal(location: CodeLocation, **config: str) -> tuple[str, str]:
    shown = refusal_of(location.run("gc_restore", RUN, restore=config), location.instance, "restore")
    return shown["error"], shown["description"]


@pytest.mark.long(60)
def test_what_was_swept_comes_back_with_its_proof(
    location: CodeLocation, repository: LakeRepository, tmp_path: Path
) -> None:
    before = repository.objects()
    assert _refusal(location)[0] == InputOrderError.__name__, "the partition has no mark"
    assert location.run("gc_mark", RUN).success
    assert _refusal(location)[0] == BackupError.__name__, "the mark has no backup"
    # Somebody who wants a backup presses "Materialize all" of the group.
    both = location.materialize(RUN, "backup", "restore")
    assert "was made in this run" in failure_of(both, "restore")["description"]
    seen = location.seen_since(RUN)
    assert seen["backup"].startswith("complete"), "the mark was made without one, and its page says so no more"
    assert seen["what_now"].startswith("**Ready for approval**")
    assert location.approve(RUN).success
    assert location.run("gc_sweep", RUN).success, "the approval is not void"
    assert len(repository.objects()) == LIVE

    with pytest.raises(DagsterInvalidConfigError, match='unexpected config entry "prefixes"'):
        location.run("gc_restore", RUN, restore={"prefixes": "data/"})
    assert _refusal(location, mark_id="../elsewhere")[0] == MarkError.__name__
    another = location.definitions.resolve_implicit_global_asset_job_def()
    running = location.instance.create_run_for_job(
        another, tags={"dagster/partition": "lake/other"}, status=DagsterRunStatus.STARTED
    )
    assert _refusal(location)[0] == RunInProgressError.__name__
    location.instance.delete_run(running.run_id)
    assert len(repository.objects()) == LIVE

    part = location.run("gc_restore", RUN, restore={"prefix": "data/garbage-0"})
    shown = values(materialized(part)["restore"])
    assert (shown["restored_objects"], shown["missing_objects"], shown["prefix"]) == (1, 0, "data/garbage-0")
    assert location.marks_what_now(RUN).startswith("**Partly restored")
    assert [row.data for row in shown["still_missing"].records] == [
        {"what": "outside the prefix, not requested", "objects": GARBAGE - 1},
        {"what": "of these, in no metadata file, so that their path is unknown", "objects": GARBAGE - 1},
    ]

    made = location.run("gc_restore", RUN)
    assert repository.objects() == before
    (materialization,) = materialized(made).values()
    shown = values(materialization)
    assert (shown["restored_objects"], shown["already_there_objects"]) == (GARBAGE - 1, 1)
    assert (shown["checksums_compared"], shown["restored_bytes"]) == (GARBAGE, 12)
    assert shown["still_missing"] == "none"
    assert {row.data["proof"]: row.data["objects"] for row in shown["proof"].records} == {
        "compared with the checksum of the backup": GARBAGE,
        "of these, read through lakeFS": 0,
        "of these, shown by no commit": GARBAGE,
    }
    assert_numbers_plot(materialization, "restored_objects", "missing_objects", "checksums_compared")
    file = Path(shown["record"].removeprefix("file://"))
    record = RestoreRecord.from_json(file.read_bytes(), file.name)
    assert (record.digest, record.checksums_compared, record.mark_id) == (shown["digest"], GARBAGE, shown["mark_id"])
    assert (record.backup_digest, record.mark_digest) == (shown["backup_digest"], shown["mark_digest"])
    with pytest.raises(BackupError, match="was changed after it was written"):
        RestoreRecord.from_json(file.read_bytes().replace(b'"restored": 1', b'"restored": 2'), file.name)
    assert not list((tmp_path / "work").rglob("*-restore")), "its data is removed"

    # The approval is void, so nothing deletes again what came back.
    assert failure_of(location.run("gc_sweep", RUN), "sweep")["error"] == ApprovalError.__name__
    assert repository.objects() == before

    # A copy that is lost makes a restore red, with the same numbers.
    repository.store.delete_many(["data/garbage-1"])
    (lost,) = (tmp_path / "backups").rglob("objects/data/garbage-1")
    lost.unlink()
    red = location.run("gc_restore", RUN)
    ended = location.instance.get_run_by_id(red.run_id)
    assert ended is not None
    assert ended.status is DagsterRunStatus.FAILURE
    shown = failure_of(red, "restore")
    assert (shown["error"], shown["lost_objects"]) == (RestoreIncompleteError.__name__, 1)
    assert (shown["missing_objects"], shown["checksums_compared"]) == (1, GARBAGE - 1)
    assert [row.data["for_example"] for row in shown["errors"].records] == ["data/garbage-1"]


def test_without_a_backup_location_the_setting_is_named(lake: Lake, instance: DagsterInstance) -> None:
    settings: Settings = lake.settings.model_copy(update={"backup": BackupSettings()})
    lake.repository()
    error, description = _refusal(CodeLocation.of(settings, instance), mark_id="m1")
    assert (error, description) == (ConfigurationError.__name__, "No backup location is configured")
