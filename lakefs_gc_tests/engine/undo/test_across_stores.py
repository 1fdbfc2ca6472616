"""A backup in another kind of store than the namespace, and the way back: each object proved by a checksum."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.backups.location import find_backup
from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.undo.restore import restore
from lakefs_gc.engine.undo.restore_source import RestoreSource
from lakefs_gc.errors import RestoreIncompleteError
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake

_EMULATORS = {"azure": "azurite", "gcs": "fake_gcs"}
_PAIRS = (("azure", "s3"),)
_MORE_PAIRS = (
    ("local", "gcs"),
    ("s3", "azure"),
    ("gcs", "azure"),
    ("s3", "gcs"),
    ("gcs", "s3"),
    ("local", "azure"),
    ("azure", "local"),
    ("gcs", "local"),
    ("azure", "gcs"),
    ("azure", "azure"),
    ("gcs", "gcs"),
)
"""The other pairs with Azure's or Google's store. For those of S3 and folders see ``test_backup``."""

_KEYS = ("data/s/one", "data/t/id,signature", "data/t/é +%", "data/t/100%25")


@pytest.mark.long(20)
@pytest.mark.parametrize(
    ("source", "target"),
    [*_PAIRS, *(pytest.param(*pair, marks=pytest.mark.of_ci) for pair in _MORE_PAIRS)],
    ids=lambda name: name,
)
def test_back_up_sweep_and_restore(
    source: str,
    target: str,
    spark: SparkSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kind in {source, target} & _EMULATORS.keys():
        for name, value in request.getfixturevalue(_EMULATORS[kind]).environment.items():
            monkeypatch.setitem(spark.sparkContext.environment, name, value)

    def location(kind: str, folder: str) -> StoreLocation:
        if kind == "local":
            (tmp_path / folder).mkdir()
            return StoreLocation((tmp_path / folder).as_uri())
        place: StoreLocation = request.getfixturevalue(f"{kind}_namespace")
        return StoreLocation(f"{place.url}/{folder}")

    namespace = None if source == "local" else location(source, "lakes")
    place = Backups(location(target, "backups"))
    with Lake(tmp_path / "lake", namespace, SandboxOptions(grace_period_seconds=0)) as lake:
        repository = lake.repository()
        contents = {key: f"content of {key}".encode() for key in _KEYS}
        contents["data/big"] = os.urandom(9 * 1024**2)  # more than one part
        for key, content in contents.items():
            repository.put_stray(key, content)
        live = repository.put("live")
        repository.commit()
        collector = Collector(spark, repository)
        mark = collector.mark_objects(*sorted(contents))

        done = place.back_up(spark, collector, mark)
        done.result.raise_if_incomplete()
        assert set(done.outcomes.values()) == {"copied"}
        assert place.copies(mark) == contents
        assert all(row["proof"] for row in done.rows.values())
        for key, row in done.rows.items():
            algorithm, _, checksum = row["checksum"].partition(":")
            if algorithm in ("md5", "sha256"):
                assert checksum == hashlib.new(algorithm, contents[key]).hexdigest()

        collector.sweep(mark, live=[])
        assert set(collector.swept.values()) == {"deleted"}
        assert repository.objects() == {live}
        undo = RestoreSource(find_backup(place.store, mark.mark_id), place.location, repository.location)
        result = restore(collector.context, undo)
        result.raise_if_incomplete()
        assert result.objects["restored"] == len(contents)
        assert {key: repository.store.read(key) for key in contents} == contents
        assert repository.read("live") == b"live"

        # A copy that was changed is noticed, whatever the stores have in common to compare.
        repository.store.delete_many(["data/s/one"])
        copy = f"{BackupPaths(repository.name, mark.mark_id).objects}data/s/one"
        assert place.store.read(copy) == contents["data/s/one"]
        place.store.put(copy, b"content of data/s/two")
        changed = restore(collector.context, undo)
        assert {name: number for name, number in changed.objects.items() if number} == {
            "already_there": len(contents) - 1,
            "failed": 1,
        }
        with pytest.raises(RestoreIncompleteError):
            changed.raise_if_incomplete()
        assert "data/s/one" not in repository.objects()
