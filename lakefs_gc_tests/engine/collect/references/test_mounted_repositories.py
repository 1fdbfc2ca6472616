"""Other repositories whose folder a mount leads to: it may be an old copy, or no folder at all (rules 5 and 12)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.collect.references import foreign_references as foreign
from lakefs_gc.engine.collect.references import other_repositories
from lakefs_gc.engine.collect.references.other_repositories import OtherRepositories
from lakefs_gc.engine.records.check import OTHER_REPOSITORIES_WERE_READ as OTHERS
from lakefs_gc.errors import OtherRepositoryError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lakefs_proxy import LakeFSProxy, refusal


def test_an_old_copy_of_the_folder_is_noticed(spark: SparkSession, lake: Lake, repository: LakeRepository) -> None:
    """The mount of another repository shows a copy that was made before our object was imported there."""
    shared = repository.put_stray("data/slice/shared", b"shared")
    other = lake.repository("other")
    other.put("x")
    other.commit()
    copy = lake.folder / "copy"
    shutil.copytree(other.folder, copy)
    mounts = {**lake.settings.mounts, other.namespace: f"{copy.as_uri()}/"}
    mounted = lake.settings.model_copy(update={"mounts": mounts})
    before = Collector(spark, repository, settings=mounted)
    before.materialize("store_listing", "foreign_references")
    assert before.manifest("foreign_references").facts["unreadable"] == {}, "the copy has all content"
    other.stage("imported", repository.namespace + shared, size_bytes=6)
    imported = other.commit()

    def check_reason(reason: str) -> None:
        collector = Collector(spark, repository, settings=mounted)
        mark = collector.collect_and_mark()
        assert reason in collector.manifest("foreign_references").facts["unreadable"]["other"]
        assert OTHERS in [check.name for check in mark.checks if check.blocks_sweep]

    check_reason("the content of main in other (1 of 1 such files are missing)")
    other.revert(imported)  # now the copy has the content of main again, but not of its history
    check_reason(f"the content of its commit {imported}")


def test_a_mounted_repository_with_too_many_commits_is_unknown(
    spark: SparkSession, lake: Lake, repository: LakeRepository
) -> None:
    other = lake.repository("other")
    for path in ("x", "y"):
        other.put(path)
        other.commit()
    collector = Collector(spark, repository, safety=SafetyParameters(max_commits=1))
    collector.materialize("store_listing", "foreign_references")
    assert "more commits than" in collector.manifest("foreign_references").facts["unreadable"]["other"]


@pytest.mark.parametrize("shown", [(), ("dev",)], ids=["empty", "another"])
def test_a_list_of_its_branches_that_is_not_whole_proves_nothing(
    spark: SparkSession, lake: Lake, repository: LakeRepository, shown: tuple[str, ...]
) -> None:
    """An old copy of a folder has the content of all branches if none is listed."""

    class ListsFew(LakeFSClient):
        def branch_heads(self, repository: str) -> Iterator[tuple[str, str]]:
            heads = super().branch_heads(repository)
            return (head for head in heads if repository != "other" or head[0] in shown)

    other = lake.repository("other")
    other.put("x")
    other.commit()
    other.branch("dev")
    copy = lake.folder / "copy"
    shutil.copytree(other.folder, copy)
    mounted = lake.settings.model_copy(
        update={"mounts": {**lake.settings.mounts, other.namespace: copy.as_uri() + "/"}}
    )
    collector = Collector(spark, repository, settings=mounted, server=ListsFew(lake.credentials))
    collector.materialize("store_listing", "foreign_references")
    assert "branches of other, but not main" in collector.manifest("foreign_references").facts["unreadable"]["other"]


def test_workers_that_see_an_old_copy_are_noticed(
    spark: SparkSession, lake: Lake, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver sees the folder of another repository as it is, and what lists its files a copy of before."""
    shared = repository.put_stray("data/slice/shared", b"shared")
    other = lake.repository("other")
    other.put("x")
    other.commit()
    copy, link = lake.folder / "copy", lake.folder / "link"
    shutil.copytree(other.folder, copy)
    other.stage("imported", repository.namespace + shared, size_bytes=6)
    other.commit()
    real_probe = other_repositories.probe
    link.symlink_to(other.folder)

    def probe(*arguments: Any, **names: Any) -> OtherRepositories:
        others = real_probe(*arguments, **names)
        link.unlink()
        link.symlink_to(copy)
        return others

    # So that a file that both have is the one that each list must have.
    monkeypatch.setattr(
        other_repositories, "some_metadata", lambda _: min(f.name for f in (copy / "_lakefs").iterdir())
    )
    monkeypatch.setattr(foreign, "probe", probe)
    mounts = {**lake.settings.mounts, other.namespace: f"{link.as_uri()}/"}
    collector = Collector(spark, repository, settings=lake.settings.model_copy(update={"mounts": mounts}))
    collector.materialize("store_listing", "foreign_references")
    assert "the content of its commit" in collector.manifest("foreign_references").facts["unreadable"]["other"]


def test_a_mounted_repository_whose_branches_cannot_be_read_is_unreadable(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    other = lake.repository("other")
    other.put("x")
    other.commit()
    proxy.fail("/repositories/other/branches", refusal(403))
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    collector = Collector(spark, repository, server=server)
    collector.materialize("store_listing", "foreign_references")
    assert "whether its folder has all content" in collector.manifest("foreign_references").facts["unreadable"]["other"]


def test_content_that_only_a_tag_has_is_content(spark: SparkSession, lake: Lake, repository: LakeRepository) -> None:
    """The mount of another repository shows it as it was created. Its branch was deleted, and a tag has its commit."""
    shared = repository.put_stray("data/slice/shared", b"shared")
    other = lake.repository("other")
    other.branch("release-work")
    other.stage("imported", repository.namespace + shared, branch="release-work", size_bytes=6)
    other.tag("v1", other.commit(branch="release-work"))
    other.delete_branch("release-work")
    mount_point = lake.folder / "mount-point"
    (mount_point / "_lakefs").mkdir(parents=True)
    (mount_point / "_lakefs" / "dummy").touch()
    mounts = {**lake.settings.mounts, other.namespace: f"{mount_point.as_uri()}/"}
    collector = Collector(spark, repository, settings=lake.settings.model_copy(update={"mounts": mounts}))
    mark = collector.collect_and_mark()
    assert collector.manifest("foreign_references").facts["unreadable"].keys() == {"other"}
    assert "other_repositories_were_read" in [check.name for check in mark.checks if check.blocks_sweep]


def test_a_repository_that_executors_do_not_see_fails_the_run(
    spark: SparkSession, lake: Lake, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor without the mount of a folder lists an empty one, which proves nothing."""
    imported = repository.put_stray("data/s/imported")
    other = lake.repository("other")
    other.stage("linked", f"{repository.namespace}{imported}")
    other.commit()
    real_probe, away = other_repositories.probe, lake.folder / "away"

    def probe(*arguments: Any, **names: Any) -> OtherRepositories:
        others = real_probe(*arguments, **names)
        shutil.move(other.folder / "_lakefs", away)
        return others

    with monkeypatch.context() as patch:
        patch.setattr(foreign, "probe", probe)
        collector = Collector(spark, repository)
        with pytest.raises(OtherRepositoryError, match=r"Repository other may reference .* lists 0 files"):
            collector.collect()
    shutil.move(away, other.folder / "_lakefs")
    assert Collector(spark, repository).collect_and_mark().candidates == 0
