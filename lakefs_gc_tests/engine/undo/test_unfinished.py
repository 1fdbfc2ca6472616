"""What killed backups and restores left is removed where nobody else writes, when it is too old to be in progress."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from lakefs_gc.engine.undo.pruning import prune_backups
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.units import EPOCH
from lakefs_gc_tests.support.faulty_s3 import FaultyS3, error
from lakefs_gc_tests.support.killed_copy import leave_unfinished


def prune(store: ObjectStore, hours: float, repository: str = "lake") -> None:
    """Prune the backups of a repository, or of all, so many hours from now."""
    prune_backups(store, repository, 30, store.now() + timedelta(hours=hours), open_namespace)


def open_namespace(url: str) -> ObjectStore:
    raise ValueError(f"no backup is complete, so none needs {url}")


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_pruning_removes_what_killed_backups_left(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Of this repository: the location may be shared. The backup itself is gone already."""
    location: StoreLocation = (
        request.getfixturevalue("s3_namespace") if kind == "s3" else StoreLocation(tmp_path.as_uri())
    )
    store = open_store(location)
    leave_unfinished(store, "lake/m1/objects/data/s/a", "lake-2/m1/objects/data/s/a")
    store.put("lake/m1/objects/data/s/b", b"a copy")
    prune(store, 25)
    assert len(list(store.unfinished_below())) == 2, "it may be in progress"
    prune(store, 49)
    [write] = store.unfinished_below()
    assert write.key.startswith("lake-2/")
    assert store.read("lake/m1/objects/data/s/b") == b"a copy"


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_pruning_all_repositories_leaves_what_other_programs_write(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """No repository has a backup any more: the names of the files say which are of one."""
    location: StoreLocation = (
        request.getfixturevalue("s3_namespace") if kind == "s3" else StoreLocation(tmp_path.as_uri())
    )
    store = open_store(location)
    others = ["lake/videos/2026/film.mp4", "lake/film.mp4", "film.mp4", ".lake/m1/objects/a", "lake/m 1/objects/a"]
    leave_unfinished(store, "lake/m1/objects/data/s/a", "lake-2/m2/contents/part-0.parquet", *others)
    prune(store, 49, "")
    left = {write.key.rpartition("/")[0] for write in store.unfinished_below()}
    assert left == {key.rpartition("/")[0] for key in others}


def test_a_missing_permission_hinders_no_pruning(plain_s3: FaultyS3, caplog: pytest.LogCaptureFixture) -> None:
    plain_s3.faults = [lambda request: error(403, "AccessDenied") if "uploads" in request.query else None]
    with caplog.at_level(logging.WARNING):
        prune_backups(open_store(StoreLocation("s3://bucket/b")), "lake", 30, EPOCH, open_namespace)
    assert "s3:ListBucketMultipartUploads" in caplog.text
