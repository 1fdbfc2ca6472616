"""Where backups may be, and finding and reading them: what a place holds, without a Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakefs_gc.config import BackupSettings
from lakefs_gc.engine.records.backups.location import (
    begin_backup,
    find_backup,
    list_backups,
    open_backup_location,
    read_backup,
)
from lakefs_gc.engine.records.backups.manifest import BackupPaths, noted_start
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import BackupError, ConfigurationError, LakeFSGCError, MarkError, ObjectNotFoundError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.complete_backup import write_complete_backup
from lakefs_gc_tests.support.lake import Lake, LakeRepository


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreLocation(tmp_path.as_uri()))


def test_a_backup_is_found_by_its_mark_alone(store: ObjectStore) -> None:
    with pytest.raises(BackupError, match="No repository has a complete backup of mark m1"):
        find_backup(store, "m1")
    mine = write_complete_backup(store, "lake")
    write_complete_backup(store, "lake", "m2")
    assert find_backup(store, "m1") == mine == find_backup(store, "m1", "lake")
    other = write_complete_backup(store, "other")
    with pytest.raises(BackupError, match="2 repositories have a complete backup of mark m1"):
        find_backup(store, "m1")
    assert find_backup(store, "m1", "other") == other


def test_a_folder_that_a_removed_backup_left_is_not_listed(store: ObjectStore, tmp_path: Path) -> None:
    """SeaweedFS lists a folder without files like one with files, and so does a file system."""
    (tmp_path / "lake" / "m1" / "objects").mkdir(parents=True)
    assert list(list_backups(store)) == []
    store.put("lake/m2/objects/data/a", b"a copy")
    (listed,) = list_backups(store)
    assert (listed.mark_id, listed.problem) == ("m2", "not complete"), "its copies are there"


def test_two_servers_do_not_begin_backups_of_one_id_at_the_same_moment(store: ObjectStore) -> None:
    """Marks of lakeFS's client may have the same id (lakefs.gc.mark_id). Both would have copied, and one was told."""

    def begin(place: ObjectStore, server: str) -> None:
        mark: Any = SimpleNamespace(
            repository="lake", mark_id="nightly", namespace=f"s3://{server}/", digest="sha256:0"
        )
        begin_backup(place, mark, {"endpoint_url": server}, utc_now, 30)

    class Later(LocalStore):
        """What it reads is from before the other server began."""

        def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
            if not store.stat_many([key]):
                begin(store, "prod")
            return super().put(key, data, if_absent=if_absent)

    with pytest.raises(BackupError, match="its namespace is s3://prod/, not s3://staging/"):
        begin(Later(store.location), "staging")
    noted = noted_start(store, BackupPaths("lake", "nightly"))
    assert noted is not None
    assert noted.server == {"endpoint_url": "prod"}


def test_a_note_that_only_a_write_finds_ends_with_what_to_do(store: ObjectStore) -> None:
    """Behind a proxy that keeps a 404."""
    mark: Any = SimpleNamespace(repository="lake", mark_id="m1", namespace="s3://lake/", digest="sha256:0")
    begin_backup(store, mark, {}, utc_now, 30)

    class Blind(LocalStore):
        def read(self, key: str) -> bytes:
            raise ObjectNotFoundError(f"{key} does not exist")

    with pytest.raises(BackupError, match="exists, says the store when it is written") as error:
        begin_backup(Blind(store.location), mark, {}, utc_now, 30)
    assert "a proxy that keeps a 404" in error.value.remedy


def test_a_backup_that_was_moved_is_not_taken_for_another(store: ObjectStore) -> None:
    backup = write_complete_backup(store, "lake")
    for paths in (BackupPaths("other", "m1"), BackupPaths("lake", "m2")):
        store.put(paths.manifest, backup.to_json())
        with pytest.raises(BackupError, match="is of the backup of mark m1 of lake"):
            read_backup(store, paths)


def test_no_place_inside_or_around_a_namespace(lake: Lake, repository: LakeRepository, tmp_path: Path) -> None:
    other = lake.repository("other")
    link = tmp_path / "link"
    configured, api = lake.settings, LakeFSClient(lake.credentials)
    link.symlink_to(other.folder)
    refused = [
        repository.location.url,
        repository.location.folder_url + "backups",
        other.location.folder_url + "_lakefs/backups",
        (lake.folder / "objects").as_uri(),
        tmp_path.as_uri(),
        f"{link.as_uri()}/backups",
    ]
    for url in refused:
        settings = configured.model_copy(update={"backup": BackupSettings(url=url)})
        with pytest.raises(BackupError, match="overlaps with the namespace of"):
            open_backup_location(settings, api)
    missing = configured.model_copy(update={"backup": BackupSettings(url=(tmp_path / "none").as_uri())})
    with pytest.raises(ObjectNotFoundError, match="The backup location does not exist"):
        open_backup_location(missing, api)
    with pytest.raises(ConfigurationError, match="No backup location is configured"):
        open_backup_location(configured, api)
    # A sibling with a longer name is another place.
    sibling = tmp_path / "lake-backups"
    sibling.mkdir()
    settings = configured.model_copy(update={"backup": BackupSettings(url=sibling.as_uri())})
    assert open_backup_location(settings, api).url == sibling.as_uri()


@pytest.mark.parametrize("mark_id", ["../other", "a/b", "", ".."])
def test_ids_that_name_other_places(store: ObjectStore, mark_id: str) -> None:
    with pytest.raises(MarkError):
        find_backup(store, mark_id)
    with pytest.raises(LakeFSGCError):
        BackupPaths("lake", mark_id)
    with pytest.raises(BackupError):
        BackupPaths("../lake", "m1")
