"""What a second look knows and reads of other repositories, and what it accepts as unknown (rules 6 and 12)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.engine.collect.references import other_repositories
from lakefs_gc.engine.collect.references.foreign_references import foreign_references
from lakefs_gc.engine.records.stored_marks import Marked
from lakefs_gc.engine.sweep import second_look
from lakefs_gc.engine.sweep.preconditions import check_preconditions
from lakefs_gc.engine.workspace.workspace import StageOutput
from lakefs_gc.errors import (
    IncompleteAnswerError,
    MarkError,
    NamespaceError,
    RepositoryNotFoundError,
    SafetyError,
)
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import Repository
from lakefs_gc_tests.support.collector import Collector, counts, marked
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lakefs_proxy import Answered, Asked, LakeFSProxy


def test_a_repository_that_is_created_in_the_namespace_meanwhile_ends_the_sweep(
    spark: SparkSession, lake: Lake, repository: LakeRepository
) -> None:
    """Its relative addresses are addresses of this namespace, and no stage reads them."""
    garbage = repository.put_stray("data/s/garbage")
    collector = Collector(spark, repository)
    mark = collector.mark_objects(garbage)
    second = collector.second_look(collector.begin(), mark)

    def look(objects: DataFrame) -> DataFrame:
        lake.repository("nested", "local://lake/data/s")
        return second(objects)

    with pytest.raises(NamespaceError, match="overlap"):
        collector.sweep(mark, look=look)
    assert garbage in repository.objects()


class ListsNoOther(LakeFSClient):
    """Lists only the repositories whose names are ``shown``; all of them if it is None."""

    shown: Collection[str] | None = None

    def repositories(self) -> Iterator[Repository]:
        return (listed for listed in super().repositories() if self.shown is None or listed.name in self.shown)


class ListsAsBefore(LakeFSClient):
    """Lists the repositories of an earlier list, as a cache does, unless that is None."""

    before: list[Repository] | None = None

    def repositories(self) -> Iterator[Repository]:
        return super().repositories() if self.before is None else iter(self.before)


@pytest.mark.of_ci("first look-another", "mark-another", "mark-only this one")
@pytest.mark.parametrize(
    ("shown", "message"),
    [
        ((), "lists 0 repositories, but not lake"),
        (("zoo",), "lists 1 repositories, but not lake"),
        (("lake",), "has these repositories, but does not list them: other, zoo"),
    ],
    ids=["empty", "another", "only this one"],
)
@pytest.mark.parametrize("cut_after", ["mark", "first look"])
def test_a_list_of_repositories_that_is_not_whole_ends_the_sweep(
    spark: SparkSession, lake: Lake, repository: LakeRepository, shown: tuple[str, ...], message: str, cut_after: str
) -> None:
    """A repository that is not listed is not read, and what it imported looks like garbage."""
    repository.put("a")
    repository.commit()
    shared, garbage = repository.put_stray("data/s/shared", b"12345"), repository.put_stray("data/s/garbage")
    other, _ = lake.repository("other"), lake.repository("zoo")
    other.put("x")
    other.commit()
    server = ListsNoOther(lake.credentials, sleep=lambda _: None)
    collector = Collector(spark, repository, server=server)
    mark = collector.collect_and_mark() if cut_after == "mark" else collector.mark_objects(shared, garbage)
    assert marked(repository, mark) == {shared, garbage}
    other.stage("imported", repository.namespace + shared, size_bytes=5)
    run, looks = collector.begin(), 0
    second = collector.second_look(run, mark)

    def look(objects: DataFrame) -> DataFrame:
        nonlocal looks
        looks += 1
        if cut_after == "first look":
            second(objects)
        other.commit()
        server.shown = shown
        return second(objects)

    with pytest.raises(IncompleteAnswerError, match=message):
        collector.sweep(mark, look=look)
    assert looks
    assert {shared, garbage} <= repository.objects()


def test_another_machine_knows_which_repositories_the_mark_was_made_with(
    spark: SparkSession, lake: Lake, repository: LakeRepository, tmp_path: Path
) -> None:
    """Its server never lists more than the collected repository, and its workspace has nothing of the mark."""
    repository.put("a")
    repository.commit()
    shared = repository.put_stray("data/s/shared", b"12345")
    other = lake.repository("other")
    mark = Collector(spark, repository).collect_and_mark()
    assert mark.repositories == {"other"}
    other.stage("imported", repository.namespace + shared, size_bytes=5)
    other.commit()
    server = ListsNoOther(lake.credentials, sleep=lambda _: None)
    server.shown = ("lake",)
    settings = lake.settings.model_copy(update={"work_url": (tmp_path / "elsewhere").as_uri()})
    with pytest.raises(IncompleteAnswerError, match="does not list them: other"):
        Collector(spark, repository, settings=settings, server=server).sweep(mark)
    assert shared in repository.objects()
    server.shown = None
    assert counts(Collector(spark, repository, settings=settings, server=server).sweep(mark)) == {"resurrected": 1}


def test_one_answer_404_does_not_make_the_sweep_forget_what_the_mark_knew(
    spark: SparkSession, lake: Lake, repository: LakeRepository, tmp_path: Path
) -> None:
    """The client forgets a repository that it does not find. Each reading of the sweep expects it again."""

    class OneNotFound(ListsNoOther):
        answered = False

        def repository(self, name: str) -> Repository:
            if name == "other" and not self.answered:
                self.answered = True
                raise RepositoryNotFoundError("not found")
            return super().repository(name)

    repository.put("a")
    repository.commit()
    shared = repository.put_stray("data/s/shared", b"12345")
    other = lake.repository("other")
    mark = Collector(spark, repository).collect_and_mark()
    other.stage("imported", repository.namespace + shared, size_bytes=5)
    other.commit()
    server = OneNotFound(lake.credentials, sleep=lambda _: None)
    server.shown = ("lake",)
    settings = lake.settings.model_copy(update={"work_url": (tmp_path / "elsewhere").as_uri()})
    with pytest.raises(IncompleteAnswerError, match="does not list them: other"):
        Collector(spark, repository, settings=settings, server=server).sweep(mark)
    assert server.answered
    assert shared in repository.objects()


@pytest.mark.parametrize("name", ["new", "known"])
def test_a_repository_that_only_the_last_list_of_a_look_has_is_read(
    spark: SparkSession, lake: Lake, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is created, and imports an object, during the look, and the list of the look's last reading is an old one.

    It may have the name of one that was deleted.
    """
    repository.put("a")
    repository.commit()
    shared, garbage = repository.put_stray("data/s/shared", b"12345"), repository.put_stray("data/s/garbage")
    known = lake.repository("known")
    known.put("x")
    known.commit()
    # The server is asked for the content of a repository that a mount leads to.
    monkeypatch.setattr(other_repositories, "matching_mount", lambda *_: ("", ""))
    server = ListsAsBefore(lake.credentials, sleep=lambda _: None)
    collector = Collector(spark, repository, server=server)
    mark = collector.collect_and_mark()

    def read(*arguments: Any, name: str, **names: Any) -> StageOutput:
        if not name.endswith("_again"):
            return foreign_references(*arguments, name=name, **names)
        server.before = list(server.repositories())
        create()
        try:
            return foreign_references(*arguments, name=name, **names)
        finally:
            server.before = None

    def create() -> None:
        if name == "known":
            lake.client.repositories_api.delete_repository("known")
        other = lake.repository(name, f"local://lakes/{name}-again")
        other.stage("imported", repository.namespace + shared, size_bytes=5)
        other.commit()

    monkeypatch.setattr(second_look, "foreign_references", read)
    assert counts(collector.sweep(mark)) == {"deleted": 1, "resurrected": 1}
    assert shared in repository.objects()
    assert garbage not in repository.objects()


@pytest.mark.of_ci("cached")
@pytest.mark.parametrize("answer", ["not found", "cached", "forbidden"])
def test_a_repository_that_is_deleted_during_a_sweep(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy, answer: str
) -> None:
    """lakeFS shows its name for some seconds, and tells only who may read it that it does not exist."""
    repository.put("a")
    repository.commit()
    garbage = repository.put_stray("data/s/garbage")
    lake.repository("other")
    pauses: list[float] = []

    def spoil(asked: Asked, answered: Answered) -> Answered | None:
        if answered.status != 404:
            return None
        if answer == "forbidden":
            return Answered(401, b'{"message": "insufficient permissions"}')
        if answer == "cached" and sum(pauses) < 7:
            record = {"id": "other", "storage_namespace": "local://other", "default_branch": "main", "creation_date": 1}
            return Answered(200, json.dumps(record).encode())
        return None

    proxy.instead("/repositories/other", spoil)
    credentials = lake.credentials.model_copy(update={"endpoint_url": proxy.url})
    collector = Collector(spark, repository, server=LakeFSClient(credentials, sleep=pauses.append))
    mark = collector.collect_and_mark()
    lake.client.repositories_api.delete_repository("other")
    if answer == "forbidden":
        with pytest.raises(IncompleteAnswerError, match="whether it exists is unknown") as raised:
            collector.sweep(mark)
        assert "Allow fs:ReadRepository on all repositories" in raised.value.remedy
        assert garbage in repository.objects()
    else:
        assert counts(collector.sweep(mark)) == {"deleted": 1}
        assert sum(pauses) == (10 if answer == "cached" else 0)


def test_another_server_that_answers_ends_the_sweep(
    spark: SparkSession, repository: LakeRepository, tmp_path: Path
) -> None:
    """A name may lead to another server, which has a repository of the same name and none of its references."""
    repository.put("a")
    repository.commit()
    key = repository.put_stray("data/x")
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    repository.stage("p", key)
    with Lake(tmp_path / "other") as other:
        other.repository()
        right = collector.server

        def look(objects: DataFrame) -> DataFrame:
            collector.server = LakeFSClient(other.credentials)
            try:
                return collector.second_look(collector.run, mark)(objects)
            finally:
                collector.server = right

        with pytest.raises(MarkError, match="but this run began with"):
            collector.sweep(mark, look=look)
    assert key in repository.objects()


def test_a_name_of_the_bucket_that_was_known_at_the_mark_is_known_at_the_sweep(
    spark: SparkSession, tmp_path: Path, store_in_s3: StoreInS3
) -> None:
    """A machine without the mount that tells the name sweeps. Meanwhile another repository imports by it."""
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        own, other = lake.repository("own"), lake.repository("other")
        own.put("a")
        own.commit()
        shared, garbage = own.put_stray("data/slice/shared"), own.put_stray("data/slice/garbage")
        mounted = lake.settings.model_copy(update={"mounts": {"s3://alias/": "s3://bucket/"}})
        collector = Collector(spark, own, settings=mounted)
        mark = collector.collect_and_mark()
        assert marked(own, mark) == {shared, garbage}
        other.stage("imported", own.namespace.replace("s3://bucket/", "s3://alias/") + shared, size_bytes=5)
        other.commit()
        without = Collector(spark, own, settings=lake.settings)
        without.approve(mark)
        permit = check_preconditions(without.context, without.run_key, Marked(mark, own.store))
        run, look = permit.second_look(without.context, without.run_key)
        referenced = look(spark.createDataFrame([(shared, 5), (garbage, 5)], "address string, size long"))
        assert shared in {row["address"] for row in referenced.collect()}
        assert "s3://alias/lakes/own/" in run.folders


class OtherIsElsewhere(LakeFSClient):
    """Shows that the namespace of repository ``other`` is in the bucket ``alias``."""

    def repositories(self) -> Iterator[Repository]:
        for repository in super().repositories():
            is_other = repository.name == "other"
            yield replace(repository, storage_namespace="s3://alias/other/") if is_other else repository


@pytest.mark.of_ci("False")
@pytest.mark.parametrize("is_new", [False, True])
def test_a_repository_where_a_mount_led_at_the_mark_has_its_content_at_the_sweep(
    spark: SparkSession, tmp_path: Path, store_in_s3: StoreInS3, is_new: bool
) -> None:
    """A machine without the mount sweeps, and finds an old copy of the other repository where the mount led away.

    ``is_new``: the other repository was created after the mark.
    """

    def other_repository() -> LakeRepository:
        created = lake.repository("other")
        created.put("a")
        created.commit()
        stored = store_in_s3.server.objects
        stored |= {key.replace("lakes/", "", 1): stored[key] for key in list(stored) if key.startswith("lakes/other/")}
        return created

    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        own = lake.repository("own")
        own.put("a")
        own.commit()
        before = None if is_new else other_repository()
        shared, garbage = own.put_stray("data/slice/shared"), own.put_stray("data/slice/garbage")
        mounted = lake.settings.model_copy(update={"mounts": {"s3://alias/": "s3://bucket/lakes/"}})
        server = OtherIsElsewhere(lake.credentials)
        mark = Collector(spark, own, settings=mounted, server=server).collect_and_mark()
        assert marked(own, mark) == {shared, garbage}
        other = before or other_repository()
        other.stage("imported", own.namespace + shared, size_bytes=5)
        other.commit()
        without = Collector(spark, own, settings=lake.settings, server=server)
        silent = replace(mark, run={name: value for name, value in mark.run.items() if name != "mounts"})
        for each in (mark, silent):  # as of an earlier version
            with pytest.raises(SafetyError, match="Repository other cannot be read"):
                without.second_look(without.begin(), each)(
                    spark.createDataFrame([(shared, 5)], "address string, size long")
                )
        with pytest.raises(SafetyError, match="Repository other cannot be read"):
            without.sweep(mark)
        assert {shared, garbage} <= own.objects()
        assert counts(Collector(spark, own, settings=mounted, server=server).sweep(mark)) == {
            "deleted": 1,
            "resurrected": 1,
        }
