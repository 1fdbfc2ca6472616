"""Copies in backups that the present settings no longer lead to: in a former location."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import BackupSettings
from lakefs_gc.engine.explain.erasure import Verdict
from lakefs_gc.engine.records.mark_facts import facts_key
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.mark_facts import write_facts_of
from lakefs_gc_tests.support.proving import prover

PATH = "people/anna.csv"


def new_folder(parent: Path, name: str) -> BackupSettings:
    (parent / name).mkdir()
    return BackupSettings(url=(parent / name).as_uri())


def expired(repository: LakeRepository) -> str:
    """The address of an object at ``PATH`` whose only commit is expired."""
    key = repository.put(PATH, "Anna")
    repository.commit(age_days=30)
    repository.delete(PATH)
    repository.put("live")
    repository.commit(age_days=20)
    repository.keep_days(10)
    return key


@pytest.mark.long(40)
def test_a_backup_in_a_location_that_a_mark_recorded(
    spark: SparkSession, small: LakeRepository, tmp_path: Path
) -> None:
    """The setting was changed after the backup."""
    old, new = new_folder(tmp_path, "old"), new_folder(tmp_path, "new")
    prove = prover(small, small.lake.settings)
    expired(small)
    collector = Collector(spark, small)
    mark = collector.collect_and_mark()
    collector.settings = collector.settings.model_copy(update={"backup": old})
    assert write_facts_of(collector, mark).backup_url == old.url
    Backups(StoreLocation(old.url)).back_up(spark, collector, mark)
    collector.sweep(mark, live=[])
    for changes in ({"backup": new}, {"backup": new, "no_backups": True}, {"no_backups": True}):
        proof = prove(PATH, **changes)
        assert proof.verdict is Verdict.REMAINS
        assert proof.objects[0].remains == (f"backup of mark {mark.mark_id} in {old.url}",)
    # Another spelling of the same location is not read twice.
    proof = prove(PATH, backup=BackupSettings(url=f"{old.url}/"))
    assert len(proof.objects[0].remains) == 1

    # A location that cannot be read is unknown, unless the user states that it has no backup.
    shutil.move(tmp_path / "old", tmp_path / "not-mounted")
    unknown = prove(PATH, backup=new)
    assert unknown.verdict is Verdict.UNKNOWN
    [unread] = unknown.not_looked_at
    assert unread.startswith(f"backups in a former location, {old.url}: ")
    assert unread.endswith("pass --no-backups")
    stated = prove(PATH, backup=new, no_backups=True)
    assert (stated.verdict, stated.not_looked_at) == (Verdict.ERASED, ())
    assert old.url in stated.stated[1]

    # What is in it stays unknown, whatever the user states.
    shutil.move(tmp_path / "not-mounted", tmp_path / "old")
    shutil.rmtree(tmp_path / "old" / "lake" / mark.mark_id / "objects")
    assert prove(PATH, backup=new).verdict is Verdict.ERASED
    (tmp_path / "old" / "lake" / "no mark").mkdir()
    (tmp_path / "old" / "lake" / "no mark" / "x").touch()
    assert prove(PATH, backup=new, no_backups=True).verdict is Verdict.UNKNOWN

    # A mark whose facts are damaged may have recorded another location.
    shutil.rmtree(tmp_path / "old" / "lake" / "no mark")
    key = facts_key(mark.mark_id)
    small.store.put(key, small.store.read(key)[:-9])
    damaged = prove(PATH, backup=new, no_backups=True)
    assert damaged.verdict is Verdict.UNKNOWN
    assert "and its backup location" in damaged.not_looked_at[0]
