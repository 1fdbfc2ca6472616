"""The undo: what a sweep deleted comes back, is never put over something else, and is read through lakeFS."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lakefs_sdk
import pytest
from lakefs_sdk.exceptions import ApiException
from pyspark.sql import SparkSession

from lakefs_gc.config import BackupSettings
from lakefs_gc.engine.collect.references.commit_paths import commits_of
from lakefs_gc.engine.records.backups.location import find_backup
from lakefs_gc.engine.records.backups.manifest import Backup, BackupPaths
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.restore_log import notes
from lakefs_gc.engine.undo.restore import RestoreResult, restore
from lakefs_gc.engine.undo.restore_source import RestoreSource, find_restore_source
from lakefs_gc.errors import BackupError, CorruptFileError, RestoreIncompleteError
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.lake import Lake, LakeRepository

PATHS = ("reports/2024/x", "reports/2025/y", "tmp/é +%")


class Swept:
    """A repository whose expired objects were backed up and swept; ``expired`` is the commit that showed them.

    With ``by_a_run`` a run found them; without, they were marked because the test knows them, which is quicker.
    """

    def __init__(
        self, spark: SparkSession, repository: LakeRepository, place: Backups, *, by_a_run: bool = False
    ) -> None:
        self.spark, self.repository, self.place = spark, repository, place
        self.keys = {path: repository.put(path) for path in PATHS}
        self.live = repository.put("live")
        self.expired = repository.commit(age_days=10)
        for path in PATHS:
            repository.delete(path)
        repository.commit(age_days=9)
        repository.put("new")
        repository.commit()
        repository.keep_days(1)
        self.stray = repository.put_stray("data/s/stray", b"never committed")
        self.collector = Collector(spark, repository)
        expected = {*self.keys.values(), self.stray}
        self.mark: Mark = (
            self.collector.collect_and_mark() if by_a_run else self.collector.mark_objects(*sorted(expected))
        )
        if marked(repository, self.mark) != expected:
            raise ValueError("the scene is not as it was meant to be")
        place.back_up(spark, self.collector, self.mark)
        self.collector.sweep(self.mark, live=[])

    @property
    def backup(self) -> Backup:
        return find_backup(self.place.store, self.mark.mark_id)

    def copy_of(self, path: str) -> str:
        return BackupPaths("lake", self.mark.mark_id).objects + self.keys[path]

    def found(self, lake: Lake, from_server: str = "") -> RestoreSource:
        """Return what a run or the command line finds before it restores."""
        settings = lake.settings.model_copy(update={"backup": BackupSettings(url=self.place.location.url)})
        return find_restore_source(settings, self.collector.server, self.mark.mark_id, "lake", "", from_server)

    def restore(self, prefix: str = "", server: LakeFSClient | None = None) -> RestoreResult:
        return restore(
            replace(self.collector.context, connect=lambda: server or self.collector.server),
            RestoreSource(self.backup, self.place.location, self.repository.location),
            prefix=prefix,
        )


@pytest.fixture
def swept(spark: SparkSession, repository: LakeRepository, place: Backups) -> Swept:
    return Swept(spark, repository, place)


def counts(result: RestoreResult) -> dict[str, int]:
    return {name: objects for name, objects in result.objects.items() if objects}


def test_everything_comes_back_and_is_read_through_lakefs(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    swept = Swept(spark, repository, place, by_a_run=True)
    with pytest.raises(ApiException) as gone:
        swept.repository.read("reports/2024/x", swept.expired)
    assert gone.value.status == 410
    result = swept.restore()
    assert counts(result) == {"restored": 4}
    assert (result.read_through_lakefs, result.shown_by_no_commit, result.unreadable) == (3, 1, 0)
    assert result.size_bytes["restored"] == sum(len(path.encode()) for path in PATHS) + 15
    result.raise_if_incomplete()
    for path in PATHS:
        assert swept.repository.read(path, swept.expired) == path.encode()
    assert swept.repository.store.read("data/s/stray") == b"never committed"

    again = swept.restore()
    assert counts(again) == {"already_there": 4}
    assert again.read_through_lakefs == 3
    folder = f"lake/{swept.mark.mark_id}/restores/"
    notes = [key for batch in swept.place.store.list(folder) for key in batch.column("address").to_pylist()]
    assert sorted(json.loads(swept.place.store.read(key))["objects"]["restored"] for key in notes) == [0, 4]


def test_what_was_linked_by_the_servers_folder_is_found_by_its_path(
    spark: SparkSession, tmp_path: Path, place: Backups
) -> None:
    """The collector reaches the files by another path than the server, which names its own."""
    with Lake(tmp_path / "lake", options=SandboxOptions(issues_folder_addresses=True)) as lake:
        (lake.folder / "mounted").symlink_to(lake.folder / "objects")
        repository = lake.repository()
        key = repository.put_stray("data/s/linked", b"linked")
        url = f"local://{repository.folder}/{key}"
        repository.stage("reports/linked", url, size_bytes=6, checksum=hashlib.md5(b"linked").hexdigest())
        repository.commit()
        settings = lake.settings.model_copy(update={"mounts": {"local://": f"{(lake.folder / 'mounted').as_uri()}/"}})
        collector = Collector(spark, repository, settings=settings)
        mark = collector.mark_objects(key)
        place.back_up(spark, collector, mark)
        collector.sweep(mark, live=[])
        found = {}
        for folders in ((), collector.begin().server_folders):
            found[folders] = restore(
                collector.context,
                RestoreSource(find_backup(place.store, mark.mark_id), place.location, collector.begin().store, folders),
                prefix="reports/",
            )
        without, with_folders = found.values()
        assert (counts(without), without.read_through_lakefs) == ({}, 0)
        assert (counts(with_folders), with_folders.read_through_lakefs) == ({"restored": 1}, 1)


def test_a_prefix_of_paths_or_of_addresses(swept: Swept) -> None:
    keys = {**swept.keys, "stray": swept.stray}
    for prefix, back in (
        ("reports/", {"reports/2024/x", "reports/2025/y"}),
        ("reports/2024/x", {"reports/2024/x"}),
        ("data/s/", {"stray"}),
        ("data/", {*PATHS, "stray"}),
    ):
        result = swept.restore(prefix)
        result.raise_if_incomplete()
        assert {name for name, key in keys.items() if key in swept.repository.objects()} == back, prefix
        assert counts(result) == {"restored": len(back)}
        swept.repository.store.delete_many([keys[name] for name in back])


def test_a_prefix_of_paths_that_only_a_deleted_branch_had(
    spark: SparkSession, repository: LakeRepository, place: Backups
) -> None:
    """Their commits are in no list. Objects that were never committed have no path, and are counted."""
    a = repository.put("reports/a")
    repository.commit(age_days=10)
    repository.branch("work")
    b, other = repository.put("reports/b", branch="work"), repository.put("other", branch="work")
    repository.commit(branch="work", age_days=9)
    repository.delete_branch("work")
    stray = repository.put_stray("data/s/stray", b"never committed")
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*sorted([a, b, other, stray]))
    place.back_up(spark, collector, mark)
    collector.sweep(mark, live=[])
    result = restore(
        collector.context,
        RestoreSource(find_backup(place.store, mark.mark_id), place.location, repository.location),
        prefix="reports/",
    )
    result.raise_if_incomplete()
    assert repository.objects() == {a, b}
    assert (result.read_through_lakefs, result.shown_by_no_commit) == (1, 1)
    assert (result.not_requested, result.without_path) == (2, 1)


def test_a_prefix_that_no_object_has_restores_nothing_and_says_so(swept: Swept) -> None:
    result = swept.restore("/reports/")
    with pytest.raises(RestoreIncompleteError, match="none of the 4 objects") as caught:
        result.raise_if_incomplete()
    assert "without a slash" in caught.value.remedy


def test_what_a_killed_restore_left_is_removed(swept: Swept) -> None:
    """By the next one, unless it may be in progress."""
    data = swept.repository.folder / "data" / "s"
    data.mkdir(exist_ok=True)
    young, old = (data / f".lakefs-gc-{digit * 32}.tmp" for digit in "12")
    for file in (young, old):
        file.write_bytes(b"a part")
    os.utime(old, (old.stat().st_atime, old.stat().st_mtime - 3 * 86400))
    assert counts(swept.restore()) == {"restored": 4}
    assert (young.exists(), old.exists()) == (True, False)


def test_what_is_there_is_never_overwritten(swept: Swept) -> None:
    swept.repository.store.put(swept.keys[PATHS[0]], b"something else")
    swept.repository.store.put(swept.keys[PATHS[1]], b"x" * len(PATHS[1]))
    swept.place.store.delete_many([swept.copy_of(PATHS[2])])
    result = swept.restore()
    assert counts(result) == {"restored": 1, "conflict": 2, "lost": 1}
    assert swept.repository.store.read(swept.keys[PATHS[0]]) == b"something else"
    assert swept.repository.store.read(swept.keys[PATHS[1]]) == b"x" * len(PATHS[1])
    assert {error["error"] for error in result.errors} == {
        "another object exists at this address and was not overwritten",
        "the backup location no longer has the copy",
    }
    with pytest.raises(RestoreIncompleteError, match="3 of 4 objects") as caught:
        result.raise_if_incomplete()
    assert caught.value.exit_code == 5


def test_a_copy_that_was_changed_is_found_out(swept: Swept) -> None:
    swept.place.store.put(swept.copy_of(PATHS[0]), b"X" * len(PATHS[0]))
    swept.place.store.put(swept.copy_of(PATHS[1]), b"longer than it was")
    swept.repository.store.put(swept.keys[PATHS[1]], b"longer than it was")
    for others in ("restored", "already_there"):
        result = swept.restore()
        assert counts(result) == {others: 2, "failed": 2}
        assert [found["error"] for found in result.errors] == [
            "The copy was changed in the backup location: its content is not what the backup recorded"
        ]
        assert swept.keys[PATHS[0]] not in swept.repository.objects(), "nothing is written"
    swept.place.store.put(swept.copy_of(PATHS[0]), PATHS[0].encode())
    assert counts(swept.restore(PATHS[0])) == {"restored": 1}


def test_what_lakefs_shows_is_compared_too(swept: Swept, lake: Lake) -> None:
    class Confused(LakeFSClient):
        """Its reads are not of the object that the commit has."""

        def read_object(self, repository: str, ref: str, path: str, piece_bytes: int = 0) -> Iterator[bytes]:
            yield b"X" * len(path)

    result = swept.restore(PATHS[0], Confused(lake.credentials))
    assert (counts(result), result.unreadable, result.read_through_lakefs) == ({"restored": 1}, 1, 0)
    assert result.errors[-1]["error"] == "lakeFS returns other content than was backed up"
    with pytest.raises(RestoreIncompleteError, match="1 restored ones cannot be read"):
        result.raise_if_incomplete()


def test_what_lakefs_does_not_show_is_unreadable(swept: Swept, lake: Lake) -> None:
    class Deaf(LakeFSClient):
        """Its reads are of another repository, which has no such commit."""

        def read_object(self, repository: str, ref: str, path: str, piece_bytes: int = 0) -> Iterator[bytes]:
            return super().read_object("other-lake", ref, path)

    lake.repository("other-lake")
    result = swept.restore("reports/", Deaf(lake.credentials))
    assert counts(result) == {"restored": 2}
    assert result.unreadable == 2
    assert "404" in str(result.errors[0]["error"])


def test_contents_that_were_changed(swept: Swept) -> None:
    (part,) = swept.backup.parts
    swept.place.store.put(part.key, swept.place.store.read(part.key) + b"x")
    with pytest.raises(CorruptFileError, match="was changed after the backup was made"):
        swept.restore()


def test_a_repository_that_is_somewhere_else_now(swept: Swept, lake: Lake) -> None:
    api = lake.client.repositories_api
    api.delete_repository("lake")
    api.create_repository(
        lakefs_sdk.RepositoryCreation(name="lake", storage_namespace="local://lake-2", default_branch="main")
    )
    with pytest.raises(BackupError, match="the repository is at local://lake-2/"):
        swept.found(lake)


def test_the_backup_of_another_server_needs_its_name(swept: Swept, lake: Lake) -> None:
    """This server may be a copy of that installation. Or that server had another URL before a disaster."""
    assert swept.found(lake).backup.server == {**swept.mark.run["server"]}
    server = {**swept.mark.run["server"], "endpoint_url": "https://prod.example"}
    swept.place.store.put(swept.backup.paths.manifest, replace(swept.backup, server=server).sealed().to_json())
    for named in ("", "https://staging.example"):
        with pytest.raises(BackupError, match=r"was made with the lakeFS server https://prod\.example") as refused:
            swept.found(lake, named)
        assert "pass --from-server https://prod.example" in refused.value.remedy
    assert not notes(swept.repository.store, swept.mark.mark_id)
    for named in ("https://prod.example", "https://prod.example/"):
        assert swept.found(lake, named).backup == swept.backup
    # Earlier versions did not record it.
    swept.place.store.put(swept.backup.paths.manifest, replace(swept.backup, server=None).sealed().to_json())
    assert swept.found(lake).backup.server is None


def test_lost_contents_are_found_before_the_approval_is_void(swept: Swept, lake: Lake) -> None:
    assert swept.found(lake).backup == swept.backup
    (part,) = swept.backup.parts
    swept.place.store.delete_many([part.key])
    with pytest.raises(BackupError, match=f"1 of the 1 files .* for example {part.key}"):
        swept.found(lake)
    assert not notes(swept.repository.store, swept.mark.mark_id)


def test_commits_of_all_branches_tags_and_parents(repository: LakeRepository, lake: Lake) -> None:
    expected: dict[str, str] = {}

    def commit(branch: str) -> str:
        repository.put(f"{branch}/{len(expected)}", branch=branch)
        made = repository.commit(branch=branch)
        expected[made] = repository.metarange_of(made)
        return made

    for _ in range(3):
        commit("main")
    repository.branch("side")
    commit("side")
    commit("main")
    merged = lake.client.refs_api.merge_into_branch("lake", "side", "main", lakefs_sdk.Merge(message="merge")).reference
    expected[merged] = repository.metarange_of(merged)
    repository.branch("tagged")
    tagged = commit("tagged")
    lake.client.tags_api.create_tag("lake", lakefs_sdk.TagCreation(id="v1", ref=tagged))
    repository.delete_branch("tagged")
    repository.branch("lost")
    lost = commit("lost")
    repository.delete_branch("lost")
    del expected[lost]
    found = commits_of(LakeFSClient(lake.credentials), "lake")
    assert {commit_id: metarange_id for metarange_id, commit_id in found.items()} == expected


def test_metadata_of_an_old_commit_that_is_gone(swept: Swept) -> None:
    """No run reads it, so nobody has noticed; the objects come back, and what was not proved is said."""
    gone = swept.repository.metadata_file(swept.repository.metarange_of(swept.expired))
    swept.repository.store.delete_many([gone])
    result = swept.restore()
    assert counts(result) == {"restored": 4}
    assert (result.read_through_lakefs, result.shown_by_no_commit, result.unreadable_metadata) == (0, 4, 1)
    assert gone in [error["for_example"] for error in result.errors]
    with pytest.raises(RestoreIncompleteError, match="1 ranges or metaranges are damaged or missing"):
        result.raise_if_incomplete()
    assert swept.repository.store.read(swept.stray) == b"never committed"


def test_a_damaged_range_of_an_old_commit(swept: Swept) -> None:
    repository = swept.repository
    metarange = repository.metadata_file(repository.metarange_of(swept.expired))
    [range_id] = read_metarange(repository.store.read(metarange), metarange).column("range_id").to_pylist()
    repository.store.put(repository.metadata_file(range_id), b"damaged")
    result = swept.restore("data/s/")
    assert (counts(result), result.unreadable_metadata) == ({"restored": 1}, 1)


@pytest.mark.of_ci
def test_what_was_restored_and_lost_again_is_lost(swept: Swept) -> None:
    swept.restore()
    swept.repository.branch("rescued", swept.expired)
    collector = Collector(swept.spark, swept.repository)
    collector.collect()
    assert collector.addresses("missing") == set()

    lost = swept.keys[PATHS[0]]
    swept.repository.store.delete_many([lost])
    collector = Collector(swept.spark, swept.repository)
    collector.collect()
    [row] = collector.dataset("missing").dataframe.collect()
    assert (row["address"], row["deleted_by"]) == (lost, "")
    assert collector.manifest("missing").facts["lost"] == 1
