"""Copies in a backup location outside of ``<repository>/<mark>/``: somebody renamed or moved a backup to keep it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from lakefs_gc.config import BackupSettings
from lakefs_gc.engine.explain.copies import backup_folders
from lakefs_gc.engine.explain.copies.remaining import find_backups
from lakefs_gc.engine.explain.erasure import ErasureProof, Verdict
from lakefs_gc.engine.records.backups.manifest import FOLDERS, OBJECTS, Backup
from lakefs_gc.engine.records.backups.marker import write_marker
from lakefs_gc.errors import ServerError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import Repository
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.complete_backup import write_complete_backup
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.proving import prover

PATH = "people/anna.csv"
MARK = "ft4jgpm1pnqihbkupgdg"
KEY = "data/s/anna"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A local backup location without a backup."""
    place = tmp_path / "backups"
    place.mkdir()
    write_marker(open_store(StoreLocation(place.as_uri())))
    return place


def back_up(place: Path, key: str) -> None:
    store = open_store(StoreLocation(place.as_uri()))
    store.put(write_complete_backup(store, "lake", MARK).paths.objects + key, b"Anna")


def move(place: Path, there: str) -> None:
    """Move the backup, and remove the folder where it was if that is empty."""
    (place / there).parent.mkdir(parents=True, exist_ok=True)
    (place / "lake" / MARK).rename(place / there)
    with suppress(OSError):
        (place / "lake").rmdir()


def copies_of(place: Path, key: str = KEY) -> list[str]:
    others = ["local://other/"]
    found = find_backups(BackupSettings(url=place.as_uri()), "lake", ["local://lake/"], {key: ()}, others=others)
    assert found.unread == ()
    return [text.removesuffix(f" in {place.as_uri()}") for text in found.of[key]]


@pytest.mark.parametrize(
    ("kept", "name"),
    [
        (f"lake/{MARK}", f"backup of mark {MARK}"),
        (f"lake-kept/{MARK}", f"backup of mark {MARK} of lake-kept"),
        (f"lake.kept/{MARK}", f"a backup in the folder lake.kept/{MARK}/"),
        (f"Kept-lake/{MARK}", f"a backup in the folder Kept-lake/{MARK}/"),
        (f"lake/{MARK} (kept)", f"a backup in the folder lake/{MARK} (kept)/"),
        (f"kept/lake/{MARK}", f"a backup in the folder kept/lake/{MARK}/"),
        (f".snapshot/daily.0/lake/{MARK}", f"a backup in the folder .snapshot/daily.0/lake/{MARK}/"),
        (MARK, f"a backup in the folder {MARK}/"),
    ],
)
def test_a_backup_is_found_wherever_it_was_moved(place: Path, kept: str, name: str) -> None:
    back_up(place, KEY)
    there = place / kept
    if kept != f"lake/{MARK}":
        move(place, kept)
    assert copies_of(place) == [name]
    (there / "objects" / KEY).unlink()
    assert copies_of(place) == []


@pytest.mark.parametrize("folder", sorted({*FOLDERS} - {OBJECTS}))
def test_a_backup_in_a_folder_of_another_is_found(place: Path, folder: str) -> None:
    back_up(place, KEY)
    other = write_complete_backup(open_store(StoreLocation(place.as_uri())), "lake", "ft4jgpm1pnqihbkupgd0")
    there = place / other.paths.folder / folder / "old"
    there.parent.mkdir(exist_ok=True)
    (place / "lake" / MARK).rename(there)
    assert copies_of(place) == [f"a backup in the folder {other.paths.folder}{folder}old/"]


OTHER = "ft4jgpm1pnqihbkupgd0"


@pytest.mark.parametrize(
    "there",
    [
        f"lake/{OTHER}/objects/{MARK}",
        f"lake/{OTHER}/objects/old/lake/{MARK}",
        f"kept/{OTHER}/objects/{MARK}",
        f"{OTHER}/objects/{MARK}",
        f"kept/2026/objects/{MARK}",
        f"kept/2026/objects/lake/{MARK}",
        f"objects/2026/objects/{MARK}",
    ],
)
@pytest.mark.parametrize("key", [KEY, "at-the-root"])
def test_a_backup_among_the_copies_of_another_is_found(place: Path, there: str, key: str) -> None:
    """Or in a folder that is named as that of copies."""
    back_up(place, key)
    if OTHER in there:
        other = write_complete_backup(open_store(StoreLocation(place.as_uri())), "other", OTHER)
        kept = place / there.partition("/objects")[0]
        kept.parent.mkdir(exist_ok=True)
        (place / other.paths.folder).rename(kept)
    move(place, there)
    assert copies_of(place, key) == [f"a backup in the folder {there}/"]


def test_the_folders_of_copies_are_not_looked_through(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are many, and no key at the root is below them."""
    monkeypatch.setattr(backup_folders, "_MOST_FOLDERS", 3)
    back_up(place, "at-the-root")
    for number in range(5):
        back_up(place, f"data/{number}/anna")
    assert copies_of(place, "at-the-root") == [f"backup of mark {MARK}"]
    assert copies_of(place, "data/1/anna") == [f"backup of mark {MARK}"]
    (place / "lake" / MARK / "objects" / "link").symlink_to(place)
    settings = BackupSettings(url=place.as_uri())
    [unread] = find_backups(settings, "lake", ["local://lake/"], {KEY: ()}).unread
    assert unread.startswith(f"backup of mark {MARK} in {place.as_uri()}: ")


@pytest.mark.parametrize("folder", ["", "manual/", "objects/", f"{MARK}/objects/", f"old/lake/{MARK}/objects/"])
def test_copies_without_a_record_are_found(place: Path, folder: str) -> None:
    """As rclone makes them. Those of another namespace have the record of their backup."""
    open_store(StoreLocation(place.as_uri())).put(folder + KEY, b"Anna")
    assert len(copies_of(place)) == 1
    other = write_complete_backup(open_store(StoreLocation(place.as_uri())), "other", MARK)
    assert len(copies_of(place)) == 1
    (place / other.paths.objects / "data/s/anna").touch()
    assert len(copies_of(place)) == 1


@pytest.mark.parametrize("repository", ["lake", "other"])
def test_copies_beside_the_record_of_a_backup_are_found(place: Path, repository: str) -> None:
    """Somebody moved them out of ``objects/``."""
    store = open_store(StoreLocation(place.as_uri()))
    paths = write_complete_backup(store, repository, MARK).paths
    assert copies_of(place) == []
    store.put(paths.folder + KEY, b"Anna")
    assert copies_of(place) == [f"the folder {paths.folder}"]


@pytest.mark.parametrize("there", [f"lake-before/{MARK}", f"kept/lake/{MARK}", f"lake.2025/{MARK}"])
def test_a_moved_backup_of_a_former_namespace_is_found(place: Path, there: str) -> None:
    """The repository was in another bucket. Another repository may have that namespace now."""
    store = open_store(StoreLocation(place.as_uri()))
    back_up(place, KEY)
    key = f"lake/{MARK}/backup.json"
    backup = Backup.from_json(store.read(key), key)
    former = replace(backup, namespace="s3://former/lake/")
    store.put(key, former.sealed().to_json())
    move(place, there)
    [found] = copies_of(place)
    assert MARK in found
    settings, url = BackupSettings(url=place.as_uri()), "local://lake/"
    others = ["s3://former/"]
    assert find_backups(settings, "lake", [url], {KEY: ()}, others=others).of[KEY]
    others = ["s3://former/lake/"]
    assert find_backups(settings, "lake", [url], {KEY: ()}, others=others).of[KEY], "it names this repository"
    store.put(f"{there}/backup.json", replace(former, repository="other").sealed().to_json())
    assert not find_backups(settings, "lake", [url], {KEY: ()}, others=others).of[KEY]


@pytest.fixture
def erased(small: LakeRepository) -> str:
    """The address of an object that was at ``PATH``, and is gone."""
    small.put("live")
    key = small.put(PATH, "Anna")
    small.commit()
    small.delete(PATH)
    small.commit()
    small.store.delete_many([key])
    return key


def proved(small: LakeRepository, place: Path, *, no_backups: bool = False) -> ErasureProof:
    backup = BackupSettings(url=place.as_uri())
    return prover(small, small.lake.settings)(PATH, backup=backup, no_backups=no_backups)


def test_a_moved_backup_remains_and_other_folders_do_not_spoil_a_proof(
    small: LakeRepository, erased: str, place: Path
) -> None:
    for other in ("lost+found", ".Trash-0/info", "cache/tmp/a/b", "no mark"):
        (place / other).mkdir(parents=True)
        (place / other / "data.txt").touch()
    (place / "README.md").touch()
    assert proved(small, place).verdict is Verdict.ERASED
    back_up(place, erased)
    (place / "lake").rename(place / "lake.kept")
    assert proved(small, place).objects[0].remains == (f"a backup in the folder lake.kept/{MARK}/ in {place.as_uri()}",)


def test_backups_of_other_repositories_are_of_them(
    small: LakeRepository, erased: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While they exist. If the server does not list its repositories, their backups are looked at."""
    small.lake.repository("other")
    store = open_store(StoreLocation(place.as_uri()))
    store.put(write_complete_backup(store, "other", MARK).paths.objects + erased, b"Anna")
    assert proved(small, place).verdict is Verdict.ERASED

    def denied(client: LakeFSClient) -> Iterator[Repository]:
        raise ServerError("insufficient permissions")

    with monkeypatch.context() as patched:
        patched.setattr(LakeFSClient, "repositories", denied)
        assert proved(small, place).objects[0].remains == (f"backup of mark {MARK} of other in {place.as_uri()}",)
    assert proved(small, place).verdict is Verdict.ERASED


def test_an_empty_folder_of_the_repository_shows_no_absence(small: LakeRepository, erased: str, place: Path) -> None:
    """Each repository may have a disk of its own, which is not mounted. That of another one may be empty."""
    back_up(place, erased)
    (place / "lake").rename(place.parent / "the-disk")
    (place / "other").mkdir()
    assert proved(small, place).verdict is Verdict.ERASED
    (place / "lake").mkdir()
    for no_backups in (False, True):
        proof = proved(small, place, no_backups=no_backups)
        assert proof.verdict is Verdict.UNKNOWN
        [unread] = proof.not_looked_at
        assert unread.startswith(f"backups in {place.as_uri()} below lake/: this folder is empty")
    (place / "lake").rmdir()
    (place.parent / "the-disk").rename(place / "lake")
    assert proved(small, place).verdict is Verdict.REMAINS


def test_a_folder_that_cannot_be_looked_through_is_said(
    small: LakeRepository, erased: str, place: Path, tmp_path: Path
) -> None:
    (place / "lost+found").mkdir()
    (place / "lost+found" / "link").symlink_to(tmp_path)
    proof = proved(small, place)
    assert proof.verdict is Verdict.UNKNOWN
    [unread] = proof.not_looked_at
    assert unread.startswith(f"another folder in a backup location, {place.as_uri()}/lost+found/: ")
    assert "move the backups in it to <repository>/<mark>/. If it has none, pass --no-backups" in unread
    stated = proved(small, place, no_backups=True)
    assert stated.verdict is Verdict.ERASED
    assert f"{place.as_uri()}/lost+found/" in stated.stated[1]

    # Nobody can state that no backup is where backups are.
    (place / "lost+found").rename(place / "lake")
    assert proved(small, place, no_backups=True).verdict is Verdict.UNKNOWN
    (place / "lake" / MARK).mkdir()
    (place / "lake" / "link").rename(place / "lake" / MARK / "link")
    proof = proved(small, place, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    assert proof.not_looked_at[0].startswith(f"backup of mark {MARK} in ")


def test_more_folders_than_can_be_listed_are_said(
    small: LakeRepository, erased: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Backups at their place count for nothing, whatever their number."""
    monkeypatch.setattr(backup_folders, "_MOST_FOLDERS", 3)
    back_up(place, KEY)
    for number in range(5):
        (place / "lake" / MARK).rename(place / "lake" / f"m{number}")
        back_up(place, KEY)
    (place / "cache" / "tmp" / "a" / "b").mkdir(parents=True)
    assert proved(small, place).verdict is Verdict.ERASED
    for name in "cdef":
        (place / "cache" / "tmp" / name).mkdir()
    proof = proved(small, place)
    assert proof.verdict is Verdict.UNKNOWN
    [unread] = proof.not_looked_at
    assert f"{place.as_uri()}/cache/tmp/: 5 folders below it" in unread
    assert proved(small, place, no_backups=True).verdict is Verdict.ERASED


def test_an_upload_to_a_moved_backup_remains(s3_namespace: StoreLocation, s3_server: SeaweedFS) -> None:
    """S3 moves by copying, which may be killed. The key tells the object, in whatever folder it is."""
    bucket, _, root = s3_namespace.folder_url.removeprefix("s3://").partition("/")
    client = s3_server.client()
    settings = BackupSettings(url=s3_namespace.url)
    for key in (f"kept/lake/{MARK}/objects/{KEY}2", f"kept/lake/{MARK}/objects/other-{KEY}"):
        client.create_multipart_upload(Bucket=bucket, Key=root + key)
    for key in (f"kept/lake/{MARK}/objects/{KEY}", KEY):
        found = find_backups(settings, "lake", ["s3://lake/"], {KEY: ()}, unfinished=True)
        assert (found.of, found.unread) == ({KEY: []}, ())
        upload = client.create_multipart_upload(Bucket=bucket, Key=root + key)
        [text] = find_backups(settings, "lake", ["s3://lake/"], {KEY: ()}, unfinished=True).of[KEY]
        assert text.startswith(f"upload of {s3_namespace.folder_url}{key} that began on ")
        client.abort_multipart_upload(Bucket=bucket, Key=root + key, UploadId=upload["UploadId"])
