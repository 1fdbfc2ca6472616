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
from lakefs_gc_tests.support.complete_backup import write_complete_backup
from lakefs_gc_tests.support.faulty_s3 import FaultyS3, error
from lakefs_gc_tests.support.killed_copy import leave_unfinished

ONE, TWO = "ggenq03bneu0bh484i0g", "ggenq03bneu0bh484i10"
"""Ids of marks, as lakeFS generates them."""
OBJECT = "dc0gu11ksdual6uirqo0"
"""An id of an object, as many programs generate them."""


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
    leave_unfinished(store, f"lake/{ONE}/objects/data/s/a", f"lake-2/{ONE}/objects/data/s/a")
    store.put(f"lake/{ONE}/objects/data/s/b", b"a copy")
    prune(store, 25)
    assert len(list(store.unfinished_below())) == 2, "it may be in progress"
    prune(store, 49)
    [write] = store.unfinished_below()
    assert write.key.startswith("lake-2/")
    assert store.read(f"lake/{ONE}/objects/data/s/b") == b"a copy"


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_pruning_all_repositories_leaves_what_other_programs_write(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """No repository has a backup any more: the names of the files say which are of one."""
    location: StoreLocation = (
        request.getfixturevalue("s3_namespace") if kind == "s3" else StoreLocation(tmp_path.as_uri())
    )
    store = open_store(location)
    others = [
        "film.mp4",
        "lake/film.mp4",
        "lake/videos/2026/film.mp4",
        f".lake/{ONE}/objects/a",
        f"lake/{ONE.upper()}/objects/a",
        "lake/videos/objects/a",
        f"Films of Bob/{ONE}/objects/film.mp4",
        f"LAKE/{ONE}/objects/a",
        f"lake/{OBJECT}/objects/a",
    ]
    if kind == "s3":  # in a folder, the name of a temporary file shows whose it is
        others += [f"data/{ONE}/{TWO}", f"lake/{ONE}/film.mp4", f"lake/{ONE}/objects-of-others/a"]
    leave_unfinished(store, f"lake/{ONE}/objects/data/s/a", f"lake-2/{TWO}/objects/by-hand", *others)
    prune(store, 49, "")
    left = {write.key.rpartition("/")[0] for write in store.unfinished_below()}
    assert left == {key.rpartition("/")[0] for key in others}


def test_a_missing_permission_hinders_no_pruning(plain_s3: FaultyS3, caplog: pytest.LogCaptureFixture) -> None:
    plain_s3.faults = [lambda request: error(403, "AccessDenied") if "uploads" in request.query else None]
    with caplog.at_level(logging.WARNING):
        prune_backups(open_store(StoreLocation("s3://bucket/b")), "lake", 30, EPOCH, open_namespace)
    assert "s3:ListBucketMultipartUploads" in caplog.text


def test_a_backup_whose_mark_has_another_id_is_known_by_its_record(tmp_path: Path) -> None:
    """Such as a mark of lakeFS's client before 0.10, where ``lakefs.gc.mark_id`` named it."""
    store = open_store(StoreLocation(tmp_path.as_uri()))
    write_complete_backup(store, "lake", "by-hand")
    leave_unfinished(store, "lake/by-hand/objects/data/s/a", "lake/another/objects/data/s/a")
    prune(store, 49, "")
    [write] = store.unfinished_below()
    assert write.key.startswith("lake/another/")


@pytest.mark.parametrize("repository", ["", "lake-aside"])
def test_what_is_below_a_backup_that_was_moved_stays_as_it_is(tmp_path: Path, repository: str) -> None:
    store = open_store(StoreLocation(tmp_path.as_uri()))
    write_complete_backup(store, "lake", ONE)
    leave_unfinished(store, f"lake/{ONE}/objects/data/s/a")
    (tmp_path / "lake").rename(tmp_path / "lake-aside")
    prune(store, 49, repository)
    [write] = store.unfinished_below()
    assert write.key.startswith("lake-aside/")


@pytest.mark.parametrize("repository", ["", "postgres"])
@pytest.mark.parametrize("folder", ["weekly", ONE])
def test_folders_of_other_programs_are_never_removed(tmp_path: Path, repository: str, folder: str) -> None:
    """Also if they have files of the names that the records of backups have."""
    store = open_store(StoreLocation(tmp_path.as_uri()))
    records = [b"{}", b"[]", b"", b'{"namespace": "local://lake/", "began_at": "2026-01-01T00:00:00Z"}']
    names = [(), ("began.json",), ("backup.json",), ("began.json", "backup.json")]
    for record in records:
        for found in names:
            files = {f"postgres/{folder}/{name}": record for name in found} | {f"postgres/{folder}/objects/a": b"dump"}
            for key, content in files.items():
                store.put(key, content)
            prune(store, 24 * 365, repository)
            assert all(store.read(key) == content for key, content in files.items())
            store.delete_many(list(files))
