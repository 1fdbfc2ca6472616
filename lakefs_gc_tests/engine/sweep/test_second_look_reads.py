"""What a second look reads, what it need not read again, and what it accepts as unknown (rules 6 and 12)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.collect.references import other_repositories
from lakefs_gc.engine.collect.references.foreign_references import foreign_references
from lakefs_gc.engine.records.check import OTHER_REPOSITORIES_WERE_READ, SERVER_LIST_IS_COMPLETE
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.mark_parts import PART_SCHEMA, part_content
from lakefs_gc.engine.records.stored_marks import Marked
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.sweep import second_look
from lakefs_gc.engine.sweep.preconditions import check_preconditions
from lakefs_gc.engine.sweep.second_look import Accepted
from lakefs_gc.engine.workspace.workspace import StageOutput, utc_now
from lakefs_gc.errors import (
    IncompleteAnswerError,
    MarkError,
    NamespaceError,
    ObjectNotFoundError,
    RepositoryNotFoundError,
    SafetyError,
)
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import Repository
from lakefs_gc_tests.support.client_marks import UNIFIED, write_client_mark
from lakefs_gc_tests.support.collector import Collector, Lake, LakeRepository, counts, keys_below, marked
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lakefs_proxy import Answered, Asked, LakeFSProxy


@pytest.mark.parametrize("version", ["lakefs_gc", "address_reading"])
def test_what_another_version_read_is_read_again(spark: SparkSession, repository: LakeRepository, version: str) -> None:
    repository.put("a")
    repository.commit()
    repository.put_stray("data/x")
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    run = collector.begin()
    assert second_look.seen_at_mark(collector.context, run, mark) is not None
    by_another = replace(mark, versions=mark.versions | {version: "0"})
    assert second_look.seen_at_mark(collector.context, run, by_another) is None
    elsewhere = replace(run, folder_mounts=(("local:///a/", "file:///b/"),))
    assert second_look.seen_at_mark(collector.context, elsewhere, mark) is None


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


def test_a_mark_that_was_rewritten_is_looked_at_whole(spark: SparkSession, repository: LakeRepository) -> None:
    """Ranges that were read for a mark are left out only for the mark that was made then (rule 12).

    A part and the manifest are rewritten, consistently, to name a live object of an older commit.
    """
    live = repository.put("old")
    repository.commit(age_days=5)
    repository.delete("old")  # else the look for hidden twins finds it where the branch shows it
    repository.put("new")
    repository.commit()
    repository.keep_days(10)
    garbage = repository.put_stray("data/s/garbage")
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {garbage}
    info = repository.store.stat_many([live])[live]
    [part] = mark.parts
    facts = {"size": info.size_bytes, "last_modified": info.last_modified, "reason": "never_committed"}
    rows = pa.Table.from_pylist([{"address": live, **facts}], PART_SCHEMA)
    content = part_content(rows)
    repository.store.put(part.key, content)
    forged = replace(
        mark,
        parts=(replace(part, sha256=hashlib.sha256(content).hexdigest(), size_bytes=info.size_bytes),),
        candidate_bytes=info.size_bytes,
    )
    forged = forged.sealed()
    repository.store.put(MarkPaths.of(mark.mark_id).manifest, forged.to_json())
    read = collector.read_mark(mark.mark_id)
    assert marked(repository, read) == {live}, "nothing in the mark's own files shows it"
    collector.approve(read)
    assert counts(collector.sweep(read)) == {"resurrected": 1}
    assert live in repository.objects()


def test_commits_that_were_not_checked_end_the_sweep(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a")
    repository.commit(age_days=5)
    repository.put("b")
    repository.commit()
    repository.keep_days(10)
    garbage = repository.put_stray("data/s/garbage")
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    collector.safety = SafetyParameters(max_commits=1)
    with pytest.raises(SafetyError, match="were not checked") as raised:
        collector.sweep(mark)
    # The check passed for this mark. So an override of it accepts nothing, and the remedy asks for a new mark.
    assert "make a new mark" in (raised.value.remedy or "")
    with pytest.raises(SafetyError, match="were not checked"):
        collector.sweep(mark, overrides=["server_list_is_complete"])
    assert garbage in repository.objects()
    collector = Collector(spark, repository, safety=SafetyParameters(max_commits=1))
    mark = collector.collect_and_mark()
    assert counts(collector.sweep(mark, overrides=["server_list_is_complete"])) == {"deleted": 1}


@pytest.mark.executors
def test_each_range_is_read_once(spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path) -> None:
    """However many commits and branches share it; the second look reads what is new."""
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        repository = lake.repository()
        active: set[str] = set()
        for number in range(4):
            repository.put(f"path/{number}")
            commit = repository.commit(age_days=8 - number)
            metarange = repository.metadata_file(repository.metarange_of(commit))
            rows = read_metarange(repository.store.read(metarange), metarange)
            active |= {repository.metadata_file(id_) for id_ in rows.column("range_id").to_pylist()}
            repository.branch(f"branch-{number}")
        garbage = repository.put("staged")
        repository.delete("staged")
        repository.keep_days(10)
        collector = Collector(spark, repository)
        store_in_s3.server.requests.clear()
        collector.collect(until="unmatched")
        reads = Counter(store_in_s3.reads_by_workers())
        assert {key: reads[store_in_s3.key(repository, key)] for key in active} == dict.fromkeys(active, 1)
        collector.materialize("missing", "kept", "candidates")
        metadata = set(keys_below(repository.store, "_lakefs/"))
        reads = Counter(store_in_s3.reads_by_workers())
        ranges_and_metaranges = {key for key in metadata if len(key) == len("_lakefs/") + 64}
        assert ranges_and_metaranges > active
        # What the heads may hide, and the reason of each candidate, are looked for in what was read already.
        assert {key: reads[store_in_s3.key(repository, key)] for key in ranges_and_metaranges} == dict.fromkeys(
            ranges_and_metaranges, 1
        )
        mark = collector.mark()
        assert marked(repository, mark) == {garbage}
        repository.put("path/new")
        commit = repository.commit()
        metarange = repository.metadata_file(repository.metarange_of(commit))
        rows = read_metarange(repository.store.read(metarange), metarange).column("range_id").to_pylist()
        store_in_s3.server.requests.clear()
        assert counts(collector.sweep(mark, objects_per_request=1)) == {"deleted": 1}
        assert garbage not in repository.objects()
        reads = Counter(store_in_s3.reads_by_workers())
        ranges = active | {repository.metadata_file(range_id) for range_id in rows}
        read = {key: reads[store_in_s3.key(repository, key)] for key in ranges}
        new = {repository.metadata_file(range_id) for range_id in rows} - active
        assert new
        # For what is committed; what the head may hide, which is asked of every head again, is in the same range.
        assert {key: read[key] for key in ranges} == {key: int(key in new) for key in ranges}


def committed_and_replaced(repository: LakeRepository, key: str) -> str:
    """Commit an object that is stored, and remove it in the next commit; the metarange that has it."""
    repository.stage("back", key, size_bytes=len("stray"))
    commit = repository.commit(age_days=1)
    repository.delete("back")
    repository.commit()
    return repository.metadata_file(repository.metarange_of(commit))


def test_without_rules_a_metarange_that_is_lost_since_the_mark(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("old")
    old = repository.metadata_file(repository.metarange_of(repository.commit(age_days=30)))
    repository.delete("old")
    repository.put("head")
    repository.commit(age_days=20)
    garbage = {repository.put_stray(f"data/s/{name}") for name in ("came-back", "garbage")}
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == garbage
    live = repository.objects() - garbage

    # What is new since the mark must be read.
    new = committed_and_replaced(repository, "data/s/came-back")
    content = repository.store.read(new)
    repository.store.delete_many([new])
    with pytest.raises(ObjectNotFoundError, match=new):
        collector.sweep(mark)
    assert repository.objects() >= garbage
    repository.store.put(new, content)
    # What was read for the mark has nothing of the mark in it.
    repository.store.delete_many([old])
    collector.sweep(mark)
    assert collector.swept == {"data/s/came-back": "resurrected", "data/s/garbage": "deleted"}
    assert repository.objects() == live | {"data/s/came-back"}


def test_commits_that_grew_beyond_the_limit_since_the_mark(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a")
    repository.commit(age_days=3)
    garbage = repository.put_stray("data/s/garbage")
    collector = Collector(spark, repository, safety=SafetyParameters(max_commits=2))
    mark = collector.collect_and_mark()
    repository.commit(age_days=1, allow_empty=True)
    for days in (None, 10):
        if days:
            repository.keep_days(days)
        with pytest.raises(SafetyError, match="were not checked"):
            collector.sweep(mark)
        assert garbage in repository.objects()
    collector.safety = SafetyParameters(max_commits=3)
    collector.sweep(mark)
    assert collector.swept == {garbage: "deleted"}


@pytest.mark.parametrize("days", [None, 10])
def test_looks_ask_for_new_commits_alone(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy, days: int | None
) -> None:
    """What a commit has never changes: a sweep asks for it once, however often it looks."""
    repository.put("a")
    repository.commit(age_days=3)
    for number in range(5):
        repository.branch(f"branch-{number}")
        repository.put(f"own-{number}", branch=f"branch-{number}")
        repository.commit(branch=f"branch-{number}", age_days=2)
    garbage = repository.put_stray("data/s/garbage")
    if days:
        repository.keep_days(days)
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    collector = Collector(spark, repository, server=server)
    mark = collector.collect_and_mark()
    collector.server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    look = collector.second_look(collector.begin(), mark)
    suspects = spark.createDataFrame([(garbage, 5)], schemas.SIZED)
    requests = []
    for _ in range(3):
        proxy.asked.clear()
        look(suspects)
        heads = sum("/commits/" in asked.path for asked in proxy.asked)
        requests.append((proxy.count("/commits"), heads))
        repository.commit(allow_empty=True)
    # The history of each of five branches, which is main's, too; then the head that moved.
    assert requests == [(5, 0), (1, 0), (1, 0)]


def test_an_object_that_the_store_did_not_show_during_the_look_is_kept(
    spark: SparkSession, repository: LakeRepository
) -> None:
    """A replica of the store answers one HEAD with 404, so nobody searches for the hidden twin of that size."""
    repository.put_stray("data/s/one", b"12345")
    repository.stage("p", "data/s/one", size_bytes=5, checksum="c")
    repository.commit()
    twin, gone = repository.put_stray("data/s/two", b"12345"), repository.put_stray("data/s/gone")
    repository.stage("p", twin, size_bytes=5, checksum="c")
    write_client_mark(repository.store, UNIFIED, [twin, gone], cutoff=utc_now() - timedelta(hours=24))
    collector = Collector(spark, repository)
    mark = collector.read_mark("m1")
    repository.store.delete_many([gone])
    second_look, file, away = collector.second_look(collector.begin(), mark), repository.folder / twin, "away"

    def look(objects: DataFrame) -> DataFrame:
        file.rename(repository.folder.parent / away)
        try:
            return second_look(objects)
        finally:
            (repository.folder.parent / away).rename(file)

    collector.sweep(mark, look=look)
    assert collector.swept == {twin: "resurrected", gone: "already_gone"}
    assert twin in repository.objects()


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


def test_an_override_of_a_check_that_passed_accepts_nothing(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a")
    repository.commit()
    repository.put_stray("data/slice/garbage")
    mark = Collector(spark, repository).collect_and_mark()
    accepted = Accepted.of(mark, (OTHER_REPOSITORIES_WERE_READ, SERVER_LIST_IS_COMPLETE))
    assert not accepted.others.others_unread
    assert not accepted.commits_unchecked
