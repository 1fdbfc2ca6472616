"""Copies of a complete backup that are lost or differ are noticed before a sweep, and made again."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.backups.location import require_backup
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.undo.backup_contents import refuse_lost_copies
from lakefs_gc.errors import BackupError
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.stray_objects import strays


def test_copies_that_get_lost_or_differ_are_made_again(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    contents = strays(repository) | {"data/s/empty": b""}
    repository.put_stray("data/s/empty", b"")
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*contents)
    place.back_up(spark, collector, mark)
    policy = place.settings(collector, required_before_sweep=True)
    backup = require_backup(policy, mark, collector.server.endpoint_url)
    assert backup is not None
    refuse_lost_copies(place.store, backup)
    objects = BackupPaths("lake", mark.mark_id).objects
    place.store.delete_many([objects + "data/s/empty"])  # as many bytes, and one object less
    with pytest.raises(BackupError, match=r"lost objects: 1 of 6 copies .* e.g. data/s/empty"):
        refuse_lost_copies(place.store, backup)
    # A file beside the copies makes up for the number of objects.
    place.store.put(objects + "data/s/.DS_Store", b"x" * 1000)
    with pytest.raises(BackupError, match="1 of 6"):
        refuse_lost_copies(place.store, backup)
    place.store.put(objects + "data/s/one", b"")
    with pytest.raises(BackupError, match=r"2 of 6 copies .* another size"):
        refuse_lost_copies(place.store, backup)
    assert set(place.back_up(spark, collector, mark).outcomes.values()) == {"copied"}
    place.store.delete_many([objects + "data/s/.DS_Store"])
    assert place.copies(mark) == contents
    backup = require_backup(policy, mark, collector.server.endpoint_url)
    assert backup is not None
    refuse_lost_copies(place.store, backup)

    # What is lost on both sides is a failure, whatever was recorded.
    place.store.delete_many([objects + "data/s/one"])
    repository.store.delete_many(["data/s/one"])
    lost = place.back_up(spark, collector, mark)
    assert lost.outcomes["data/s/one"] == "failed"
    assert "neither the original nor the copy" in lost.rows["data/s/one"]["error"]


def test_a_copy_that_is_listed_with_slashes_is_not_lost(
    spark: SparkSession, repository: LakeRepository, s3_namespace: StoreLocation
) -> None:
    """A folder keeps the backslashes of a name, and SeaweedFS does not."""
    repository.put_stray(r"data/s\a", b"content")
    collector = Collector(spark, repository)
    mark = collector.mark_objects(r"data/s\a")
    place = Backups(s3_namespace)
    place.back_up(spark, collector, mark)
    assert place.copies(mark) == {"data/s/a": b"content"}
    backup = place.manifest_of(mark)
    refuse_lost_copies(place.store, backup)
    place.store.delete_many([f"{backup.paths.objects}data/s/a"])
    with pytest.raises(BackupError, match="lost objects"):
        refuse_lost_copies(place.store, backup)


@pytest.mark.parametrize("lost", [r"data/s/a\b", "data/s/a/b"])
def test_a_lost_copy_whose_name_differs_from_another_in_a_backslash_is_noticed(
    spark: SparkSession, repository: LakeRepository, place: Backups, lost: str
) -> None:
    """Only a folder has both: it keeps backslashes."""
    keys = [repository.put_stray(key) for key in (r"data/s/a\b", "data/s/a/b")]
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*keys)
    place.back_up(spark, collector, mark)
    backup = place.manifest_of(mark)
    refuse_lost_copies(place.store, backup)
    place.store.delete_many([backup.paths.objects + lost])
    with pytest.raises(BackupError, match="1 of 2 copies") as error:
        refuse_lost_copies(place.store, backup)
    assert f"e.g. {lost}" in error.value.message
