"""What a store does not show is no proof where it does not show other objects either, or shows them a moment later."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import BackupSettings
from lakefs_gc.engine.explain.erasure import Verdict
from lakefs_gc.engine.explain.mark_records import Markings, find_markings
from lakefs_gc.engine.records.backups.marker import write_marker
from lakefs_gc.engine.workspace.range_cache import METADATA_FOLDER
from lakefs_gc.errors import IncompleteAnswerError, NamespaceError
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.lakefs_proxy import LakeFSProxy
from lakefs_gc_tests.support.mark_facts import write_few_facts
from lakefs_gc_tests.support.proving import Prove, prover, verdicts

PATH = "people/anna.csv"


def former_object(small: LakeRepository, content: str) -> str:
    small.put("older")
    small.commit()
    small.delete("older")
    small.commit()
    key = small.put(PATH, content)
    small.commit()
    small.delete(PATH)
    small.commit()
    return key


@pytest.fixture
def key(small: LakeRepository) -> str:
    """The address of an object that an old commit has at ``PATH``, and no branch. So it is with an older object."""
    return former_object(small, "Anna")


@pytest.fixture
def prove(small: LakeRepository) -> Prove:
    return prover(small, small.lake.settings)


@pytest.mark.parametrize("has_others", [True, False])
def test_a_data_folder_that_is_not_mounted_proves_nothing(
    small: LakeRepository, key: str, prove: Prove, has_others: bool
) -> None:
    if has_others:
        small.put("live")
        small.commit()
    assert prove(PATH, no_backups=True).verdict is Verdict.REMAINS
    data = small.folder / "data"
    data.rename(small.folder.parent / "disk")
    data.mkdir()
    proof = prove(PATH, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    [why] = proof.not_looked_at
    assert ("it shows none of 1 objects that branches have" if has_others else "data/ is empty") in why
    assert "Is its file system mounted?" in why


@pytest.mark.parametrize("overwritten", [1, 20])
def test_objects_that_were_put_beside_a_disk_that_is_not_mounted_prove_nothing(
    small: LakeRepository, key: str, prove: Prove, overwritten: int
) -> None:
    """lakeFS writes to the mount point, too. The new objects are shown, and the first of their range."""
    first = [f"a/{number:02}" for number in range(20)]
    old = {path: small.put(path) for path in (*first, *(f"live-{number}" for number in range(9)))}
    small.commit()
    data, disk = small.folder / "data", small.folder.parent / "disk"
    data.rename(disk)
    data.mkdir()
    for path in first[:overwritten]:
        small.put(path, "new")
        del old[path]
    small.commit()
    assert len(ranges_of_main(small)) == 1
    proof = prove(PATH, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    [why] = proof.not_looked_at
    missing = min(old.items())[1]
    assert f" of 8 objects that branches have, e.g. {missing}. Is its file system mounted? " in why
    assert why.endswith(f"If so, a live object is missing: see `lakefs-gc explain lake {missing}`")

    shutil.copytree(data, disk, dirs_exist_ok=True)
    shutil.rmtree(data)
    disk.rename(data)
    assert prove(PATH, no_backups=True).verdict is Verdict.REMAINS
    small.store.delete_many([key])
    assert prove(PATH, no_backups=True).verdict is Verdict.ERASED


@pytest.mark.long(20)
def test_a_branch_of_an_old_commit_lacks_the_objects_that_sweeps_deleted(
    spark: SparkSession, small: LakeRepository, prove: Prove
) -> None:
    """It is no sign of a disk that is not mounted. An object that nothing deleted is."""
    small.put("live")
    anna, swept = small.put(PATH, "Anna"), small.put("swept")
    old = small.commit()
    small.delete(PATH)
    small.delete("swept")
    small.commit()
    collector = Collector(spark, small)
    mark = collector.mark_objects(anna, swept)
    write_few_facts(small.store, mark)
    collector.sweep(mark, live=[])
    small.branch("again", old)
    assert swept not in small.objects()
    assert prove(PATH, no_backups=True).verdict is Verdict.ERASED
    lost = small.put("lost")
    small.commit()
    small.store.delete_many([lost])
    proof = prove(PATH, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    assert f"it does not show 1 of 3 objects that branches have, e.g. {lost}" in proof.not_looked_at[0]


def test_an_entry_that_may_mean_several_keys_is_shown_by_one(small: LakeRepository, key: str, prove: Prove) -> None:
    """lakeFS decodes a full address, and other programs do not."""
    small.store.delete_many([key])
    small.store.put("my file", b"1")
    small.stage("live", f"{small.namespace}my%20file")
    small.commit()
    assert prove(PATH, no_backups=True).verdict is Verdict.ERASED
    small.store.delete_many(["my file"])
    assert prove(PATH, no_backups=True).verdict is Verdict.UNKNOWN


def test_an_object_that_a_branch_still_has_says_nothing_about_itself(small: LakeRepository, prove: Prove) -> None:
    older = small.put("older")
    small.store.delete_many([small.put(PATH), older])
    small.commit()
    proof = prove(PATH, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    assert "it shows none of 1 objects that branches have" in proof.not_looked_at[0]
    small.put_stray(older)
    assert prove(PATH, no_backups=True).verdict is Verdict.ERASED


def test_an_object_that_is_newer_shows_nothing_about_an_older_disk(small: LakeRepository, prove: Prove) -> None:
    """lakeFS may have written it to the folder where the disk of ``data/`` is not mounted, and looks there, too."""
    key = small.put(PATH, "Anna")
    small.commit()
    small.delete(PATH)
    small.put("live")
    small.commit()
    small.store.delete_many([key])
    small.put("staged, and not old")
    proof = prove(PATH, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    [why] = proof.not_looked_at
    assert f"{key} is gone, and no sweep has recorded it. data/ shows no committed object that is older" in why


def live_objects(small: LakeRepository, content: str) -> None:
    for number in range(20):
        small.put(f"live/{number}", content)
    small.commit()


@pytest.mark.parametrize("new", ["staged", "all paths of branches", "everything is asked about"])
def test_what_is_written_beside_a_disk_that_is_not_mounted_shows_nothing(
    small: LakeRepository, key: str, prove: Prove, new: str
) -> None:
    if new == "all paths of branches":
        live_objects(small, "old")
    asked = [PATH, "older"] if new == "everything is asked about" else [PATH]
    data = small.folder / "data"
    data.rename(small.folder.parent / "disk")
    data.mkdir()
    small.put("new")
    if new == "all paths of branches":
        live_objects(small, "new of tonight's job")
    proof = prove(*asked, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    assert "Is its file system mounted?" in proof.not_looked_at[0]


@pytest.mark.long(20)
def test_an_object_that_a_sweep_deleted_needs_no_older_one(
    spark: SparkSession, small: LakeRepository, prove: Prove
) -> None:
    """The sweep had found it in the store."""
    anna = small.put(PATH, "Anna")
    small.commit()
    small.delete(PATH)
    small.put("live")
    small.commit()
    collector = Collector(spark, small)
    mark = collector.mark_objects(anna)
    write_few_facts(small.store, mark)
    collector.sweep(mark, live=[])
    assert prove(PATH, no_backups=True).verdict is Verdict.ERASED


@pytest.mark.parametrize("content", ["Anna", ""])
def test_what_lakefs_serves_is_not_erased(small: LakeRepository, tmp_path: Path, content: str) -> None:
    """``mounts`` leads to a mirror, where the object was deleted. The content of an empty one has no first byte."""
    key = former_object(small, content)
    mirror = tmp_path / "mirror"
    shutil.copytree(small.folder.parent, mirror)
    settings = small.lake.settings.model_copy(update={"mounts": {"local://": f"{mirror.as_uri()}/"}})
    (mirror / small.folder.name / key).unlink()
    proof = prover(small, settings)(PATH, no_backups=True)
    [erased] = proof.objects
    assert erased.verdict is Verdict.REMAINS
    assert erased.remains[0].startswith(f"lakeFS serves its content: {PATH} of commit ")
    small.store.delete_many([key])
    proof = prover(small, settings)(PATH, no_backups=True)
    assert verdicts(proof) == {key: Verdict.ERASED}
    assert "1 of 1 objects that the store lacks, read through lakeFS" in proof.looked_at


def test_what_lakefs_cannot_say_is_unknown(small: LakeRepository, key: str) -> None:
    small.store.delete_many([key])
    with LakeFSProxy(small.lake.credentials.endpoint_url) as proxy:
        server = LakeFSClient(small.lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
        prove = prover(small, small.lake.settings, server)
        assert prove(PATH, no_backups=True).verdict is Verdict.ERASED
        proxy.instead("/objects", lambda asked, answer: replace(answer, status=403))
        proof = prove(PATH, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    assert [each for each in proof.not_looked_at if "read through lakeFS: " in each]


@pytest.mark.parametrize("linked", ["the object", "its slice"])
def test_an_object_behind_a_link_is_not_gone(
    small: LakeRepository, key: str, prove: Prove, linked: str, tmp_path: Path
) -> None:
    what = small.folder / key if linked == "the object" else (small.folder / key).parent
    shutil.move(what, tmp_path / "other disk")
    what.symlink_to(tmp_path / "other disk")
    with pytest.raises(NamespaceError, match="is a symbolic link"):
        prove(PATH, no_backups=True)


def test_a_list_of_branches_without_the_default_branch_is_refused(small: LakeRepository, key: str) -> None:
    small.store.delete_many([key])
    small.put(PATH, "Anna, staged again")
    with LakeFSProxy(small.lake.credentials.endpoint_url) as proxy:
        proxy.instead("/branches", lambda asked, answer: answer.with_json(results=[]))
        server = LakeFSClient(small.lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
        with pytest.raises(IncompleteAnswerError):
            prover(small, small.lake.settings, server)(PATH, no_backups=True)


def test_an_object_that_is_restored_meanwhile_is_not_erased(
    small: LakeRepository, key: str, prove: Prove, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the store was asked for it, and before its backup is looked for, which is then gone."""
    (tmp_path / "backups").mkdir()
    backups = open_store(StoreLocation((tmp_path / "backups").as_uri()))
    write_marker(backups)
    copy = f"lake/g6pq3k8v9s5c72oa1l0g/objects/{key}"
    small.store.copy_to(key, backups, copy)
    small.store.delete_many([key])

    def find_after_restore(*arguments: Any) -> Markings:
        backups.copy_to(copy, small.store, key)
        backups.delete_many([copy])
        return find_markings(*arguments)

    monkeypatch.setattr("lakefs_gc.engine.explain.explain.find_markings", find_after_restore)
    proof = prove(PATH, backup=BackupSettings(url=backups.location.url))
    assert proof.verdict is Verdict.REMAINS, "lakeFS serves it"
    assert any(f"{key}: it did not exist at first, and exists now" in each for each in proof.not_looked_at)


def test_unreadable_ranges_do_not_show_that_branches_have_no_objects(
    small: LakeRepository, key: str, prove: Prove
) -> None:
    small.put("live")
    small.commit()
    small.store.delete_many([key])
    assert prove(PATH, no_backups=True).verdict is Verdict.ERASED
    [head_range] = ranges_of_main(small)
    small.store.put(f"{METADATA_FOLDER}{head_range}", b"damaged")
    proof = prove(PATH, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    assert any("which objects branches have is unknown" in each for each in proof.not_looked_at)


def ranges_of_main(repository: LakeRepository) -> list[str]:
    server = LakeFSClient(repository.lake.credentials)
    metarange = server.metarange_of("lake", server.heads_of("lake")["main"])
    content = read_metarange(repository.store.read(f"{METADATA_FOLDER}{metarange}"), metarange)
    ids: list[str] = content.column("range_id").to_pylist()
    return ids
