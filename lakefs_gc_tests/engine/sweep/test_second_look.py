"""What came back to life between a mark and its sweep is not deleted (rule 6)."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.config import Protections, SafetyParameters, SweepSettings
from lakefs_gc.engine.collect.references import uncommitted
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.sweep import second_look
from lakefs_gc.engine.sweep.at_mark import Accepted
from lakefs_gc.engine.sweep.second_look import SecondLook
from lakefs_gc.engine.workspace.workspace import Dataset, utc_now
from lakefs_gc.errors import (
    IncompleteAnswerError,
    LakeFSGCError,
    StaleLookError,
)
from lakefs_gc.formats.commits_csv import write_active_commits
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.client_marks import UNIFIED, write_client_mark
from lakefs_gc_tests.support.collector import Collector, counts, marked
from lakefs_gc_tests.support.faulty_s3 import Answer, Request
from lakefs_gc_tests.support.faulty_store import WORKER_KEY, LevelledS3, StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lakefs_proxy import Answered, Asked, LakeFSProxy


def test_what_came_back_is_kept(spark: SparkSession, lake: Lake, repository: LakeRepository) -> None:
    """Each object comes back in another way; one does not."""
    other = lake.repository("other")
    paths = {name: repository.put(name) for name in ("reverted", "branched", "garbage-1", "restored")}
    first = repository.commit(age_days=100)
    for path in ("branched", "garbage-1"):
        repository.delete(path)
    repository.commit(age_days=90)
    repository.delete("reverted")
    deletion = repository.commit(age_days=80)
    repository.put("own")
    repository.delete("restored")
    longer = repository.commit(age_days=70)
    repository.branch("long", longer)
    paths["long"] = repository.put("long", branch="long")
    repository.commit(branch="long", age_days=60)
    repository.delete("long", branch="long")
    repository.commit(branch="long", age_days=50)
    repository.commit(branch="long", age_days=40, allow_empty=True)
    repository.commit(age_days=30, allow_empty=True)
    repository.commit(age_days=1, allow_empty=True)
    for name in ("staged", "imported", "garbage-2"):
        paths[name] = repository.put_stray(f"data/s/{name}")
    repository.keep_days(10)

    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == set(paths.values())

    repository.revert(deletion)
    repository.commit(allow_empty=True)
    repository.branch("from-expired", first)
    repository.delete("garbage-1", branch="from-expired")  # staged: the commit still has it
    repository.stage("staged", paths["staged"], size_bytes=len("stray"))
    repository.keep_days(10, long=55)
    other.stage("imported", f"local://lake/{paths['imported']}")
    other.commit()
    result = collector.sweep(mark)

    # The new branch brings back everything that its commit has.
    gone = {paths["garbage-2"]}
    assert {address for address, outcome in collector.swept.items() if outcome == "deleted"} == gone
    assert counts(result) == {"deleted": 1, "resurrected": len(paths) - 1}
    assert repository.read("reverted") == b"reverted"
    assert repository.read("branched", "from-expired") == b"branched"
    assert repository.read("restored", first) == b"restored"
    assert repository.read("staged") == b"stray"
    assert repository.objects() >= set(paths.values()) - gone
    result.raise_if_incomplete()


def test_a_second_look_that_is_not_whole_deletes_nothing(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    garbage = repository.put("a")
    repository.commit(age_days=30)
    repository.delete("a")
    repository.put("b")
    head = repository.commit(age_days=20)
    repository.keep_days(10)
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    collector = Collector(spark, repository, server=server)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {garbage}

    def empty(asked: Asked, answer: Answered) -> Answered:
        if answer.json["completed"]:
            file = answer.json["result"]["gc_commits_location"].removeprefix(repository.namespace)
            repository.store.put(file, write_active_commits([(head, "")]))
        return answer

    proxy.instead("/gc/prepare_commits/status", empty)
    with pytest.raises(IncompleteAnswerError, match=f"gives commit {head} the metarange ''"):
        collector.sweep(mark)
    proxy.spoil.clear()
    # A range that is new since the mark must be read.
    repository.put("c")
    metarange = repository.metadata_file(repository.metarange_of(repository.commit()))
    old = repository.metadata_file(repository.metarange_of(head))
    ranges = [
        set(read_metarange(repository.store.read(file), file).column("range_id").to_pylist())
        for file in (metarange, old)
    ]
    [lost] = ranges[0] - ranges[1]
    repository.store.delete_many([repository.metadata_file(lost)])
    with pytest.raises(LakeFSGCError, match=lost):
        collector.sweep(mark)
    assert garbage in repository.objects()


@pytest.mark.of_ci
def test_looks_again_while_the_sweep_is_under_way(spark: SparkSession, repository: LakeRepository) -> None:
    """Objects come back, in five ways, once a third of the mark is swept."""
    # By their hashes, the objects of a number are swept in the same of three rounds.
    numbers = {
        "reverted": (0, 2, 1),
        "branched": (8, 1, 0),
        "longer": (0, 1, 2),
        "twin": (3, 0, 2),
        "copied": (0, 2, 5),
    }
    keys = {name: [f"data/s/{name}-{number}" for number in rounds] for name, rounds in numbers.items()}
    came = [{rounds[number] for rounds in keys.values()} for number in range(3)]
    garbage = {repository.put_stray(f"data/s/garbage-{number}") for number in range(10)}
    for key in set.union(*came):
        repository.put_stray(key, b"t" * 50)

    def refer_to(name: str) -> None:
        for number, key in enumerate(keys[name]):
            repository.stage(f"{name}-{number}", key)

    def remove(name: str) -> None:
        for number in range(3):
            repository.delete(f"{name}-{number}")

    refer_to("reverted")
    refer_to("branched")
    first = repository.commit(age_days=100)
    remove("branched")
    repository.commit(age_days=90)
    remove("reverted")
    deletion = repository.commit(age_days=80)
    refer_to("longer")
    repository.commit(age_days=70)
    remove("longer")
    for number in range(3):
        repository.put(f"twin-{number}", "t" * 50)
    repository.commit(age_days=20)
    repository.commit(age_days=9, allow_empty=True)
    repository.keep_days(10)
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == set.union(*came) | garbage
    look, looks = collector.second_look(collector.begin(), mark), []

    def come_back(suspects: DataFrame) -> DataFrame:
        looks.append({row["address"] for row in suspects.select("address").collect()})
        if len(looks) == 2:
            repository.revert(deletion)
            repository.branch("from-expired", first)
            refer_to("copied")
            for number, key in enumerate(keys["twin"]):
                checksum = hashlib.md5(b"t" * 50).hexdigest()
                repository.stage(f"twin-{number}", key, size_bytes=50, checksum=checksum)
            repository.keep_days(75)
        return look(suspects)

    result = collector.sweep(mark, look=come_back, objects_per_look=10)
    assert [seen - garbage for seen in looks] == came
    parts = (repository.lake.folder / "work" / collector.run_key / "sweep_left" / "data").glob("round=*")
    assert sorted(part.name for part in parts) == ["round=0", "round=1", "round=2"], "a round reads its own part"
    back = came[1] | came[2]
    assert {key for key, outcome in collector.swept.items() if outcome == "resurrected"} == back
    assert counts(result) == {"deleted": 15, "resurrected": 10}
    assert repository.objects() >= back


def test_what_looks_have_found_is_not_forgotten(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are: what they found is put together now and then."""
    monkeypatch.setattr(second_look, "_MOST_FOUND", 1)
    keys = [repository.put_stray(f"data/s/{number}") for number in range(4)]
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    look = collector.second_look(collector.begin(), mark)
    # Of a size that no entry has: those that have it are found by the search for hidden twins, each time.
    suspects = spark.createDataFrame([(key, 1 << 40) for key in keys], "address string, size long")
    for number, key in enumerate(keys[:3], 1):
        repository.branch(f"back-{number}")  # a range of its own, which the next look does not read again
        repository.stage("back", key, branch=f"back-{number}")
        repository.commit(branch=f"back-{number}")
        found = {row["address"] for row in look(suspects).collect()}
        assert found & set(keys) == set(keys[:number])
        assert len(look._found) == 1
        assert (len(look._commits._seen_ranges), len(look._seen_files)) == (2, 2), "of the mark and of the last look"


def test_what_a_look_has_found_staged_is_not_forgotten(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose own store fails it in the middle of a branch leaves out the rest, and says nothing."""
    repository.put("a")
    repository.commit()
    key = repository.put_stray("data/s/x")
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    repository.stage("back", key)
    look = collector.second_look(collector.begin(), mark)
    suspects = spark.createDataFrame([(key, 1 << 40)], "address string, size long")
    assert key in {row["address"] for row in look(suspects).collect()}
    monkeypatch.setattr(uncommitted, "_shown_uncommitted", lambda *given: iter(()))  # other stores have no such list
    monkeypatch.setattr(uncommitted, "_files", lambda *given: [])
    assert key in {row["address"] for row in look(suspects).collect()}


def an_hour_later(server: LevelledS3, request: Request) -> Answer:
    """The right answer to a question for the time, but for the time."""
    return replace(server.right_answer(request), headers={"Date": formatdate(time.time() + 3600, usegmt=True)})


def asks_for_the_time(request: Request) -> bool:
    return request.operation == "ListObjectsV2" and request.query.get("max-keys") == "1"


def is_by_worker(request: Request) -> bool:
    return f"Credential={WORKER_KEY}/" in request.headers["authorization"]


@pytest.mark.long(20)
def test_a_look_that_grew_old_is_taken_again(spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path) -> None:
    """All tasks but one begin an hour after the first look, and leave what they have to the second."""
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        repository, server = lake.repository(), store_in_s3.server
        keys = {repository.put_stray(f"data/s/{number:02}") for number in range(40)}
        collector = Collector(spark, repository)
        mark = collector.mark_objects(*keys)
        looks: list[set[str]] = []
        in_time: list[int] = []

        def look(suspects: DataFrame) -> DataFrame:
            looks.append({row["address"] for row in suspects.select("address").collect()})
            # The second look finds one of what the first has left.
            return spark.createDataFrame([(max(looks[-1]),)] * (len(looks) - 1), schemas.UNCOMMITTED)

        def all_but_one_late(request: Request) -> Answer | None:
            if len(looks) != 1 or not asks_for_the_time(request) or not is_by_worker(request):
                return None
            with server.lock:
                in_time.append(request.number)
            return an_hour_later(server, request) if request.number != in_time[0] else None

        server.faults.append(all_but_one_late)
        result = collector.sweep(mark, look=look, objects_per_request=100)
        assert [len(looks), looks[0]] == [2, keys]
        assert set() < looks[1] < keys
        assert counts(result) == {"deleted": 39, "resurrected": 1}
        assert repository.objects() & keys == {max(looks[1])}


@pytest.mark.parametrize(
    ("who_is_late", "told"),
    [
        ("driver", r"took longer than sweep\.max_look_age_minutes \(15\)"),
        ("worker", r"No delete of \d+ objects could begin"),
    ],
)
def test_a_look_that_is_too_old_for_any_delete_ends_the_sweep(
    spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path, who_is_late: str, told: str
) -> None:
    """Another look would end in the same way; what was done by then is known to the next sweep."""
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        repository, server = lake.repository(), store_in_s3.server
        keys = {repository.put_stray(f"data/s/{number}") for number in range(12)}
        collector = Collector(spark, repository)
        mark = collector.mark_objects(*keys)
        nothing, looks = spark.createDataFrame([], schemas.UNCOMMITTED), []

        def look(suspects: DataFrame) -> DataFrame:
            looks.append(suspects.count())
            return nothing

        def late(request: Request) -> Answer | None:
            is_late = len(looks) == 2 and asks_for_the_time(request)
            if is_late and is_by_worker(request) == (who_is_late == "worker"):
                return an_hour_later(server, request)
            return None

        server.faults.append(late)
        with pytest.raises(StaleLookError, match=told) as stopped:
            collector.sweep(mark, look=look, objects_per_look=6)
        assert "sweep again" in stopped.value.remedy
        assert len(looks) == 2, "it does not look for ever"
        assert len(repository.objects() & keys) == 12 - looks[0] > 0
        server.faults.clear()
        assert counts(collector.sweep(mark, live=[])) == {"deleted": 12}


def test_a_twin_that_is_staged_between_mark_and_sweep(spark: SparkSession, repository: LakeRepository) -> None:
    """It is in no list of the server; the mark of another tool, which says no sizes, is protected as well."""
    repository.put("a", "content")
    repository.commit()
    keys = [repository.put_stray(f"data/s/{number}", b"content") for number in range(4)]
    collector = Collector(spark, repository)
    ours = collector.collect_and_mark()
    write_client_mark(repository.store, UNIFIED, keys, cutoff=utc_now())
    theirs = collector.read_mark("m1")
    assert marked(repository, ours) == set(keys)
    for mark, key in ((ours, keys[1]), (theirs, keys[2])):
        repository.stage("a", key, size_bytes=7, checksum=hashlib.md5(b"content").hexdigest())
        collector.collect(until="uncommitted")
        assert key not in collector.addresses("uncommitted"), "the sandbox leaves it out, as lakeFS does"
        collector.sweep(mark)
        assert collector.swept[key] == "resurrected"
        assert repository.read("a") == b"content"
        for other in keys:
            repository.put_stray(other, b"content")


@pytest.mark.of_ci("False")
@pytest.mark.parametrize("delete_versions", [True, False])
def test_an_object_of_which_only_versions_exist_may_be_hidden(
    spark: SparkSession, repository: LakeRepository, delete_versions: bool
) -> None:
    """A mark of another tool has no sizes, and the store has none of an object without a current version.

    Without versions to delete nobody searches for it. It counts as referenced: it is kept if it exists after all.
    """
    repository.put("a", "12345")
    repository.commit()
    repository.keep_days(10)
    twin = repository.put("a", "12345")
    collector = Collector(spark, repository)
    mark = collector.mark_objects(twin)
    collector.collect()
    repository.store.delete_many([twin])
    collector.settings = collector.settings.model_copy(update={"sweep": SweepSettings(delete_versions=delete_versions)})
    look = SecondLook(collector.context, collector.run, None, Accepted.of(mark, ()), None)
    referenced = look(spark.createDataFrame([(twin, None)], "address string, size long"))
    assert twin in {row["address"] for row in referenced.collect()}
    gone = repository.put_stray("data/s/gone")
    repository.store.delete_many([gone])
    referenced = look(spark.createDataFrame([(gone, None)], "address string, size long"))
    assert (gone in {row["address"] for row in referenced.collect()}) != delete_versions


def test_what_protected_commits_and_paths_at_the_mark_protects_them_in_the_sweep(
    spark: SparkSession, repository: LakeRepository
) -> None:
    """The sweep may run on another machine, which has no ``safety.protect``."""
    tagged = repository.put("p", "old")
    old = repository.commit(age_days=40)
    repository.put("p", "newer!")
    audited = repository.put_stray("data/s/audited", b"audited")
    repository.commit(age_days=30)
    repository.put("q", "newest")
    repository.commit(age_days=20)
    repository.keep_days(10)
    protect = Protections(tags=("v*",), path_prefixes=("audit/",))
    collector = Collector(spark, repository, safety=SafetyParameters(protect=protect))
    mark = collector.collect_and_mark()
    assert {tagged, audited} <= marked(repository, mark)
    repository.tag("v1", old)
    repository.branch("dev", old)
    repository.stage("audit/a", audited, branch="dev", size_bytes=7)
    repository.commit(branch="dev", age_days=40)
    repository.delete_branch("dev")
    collector.safety = SafetyParameters()
    collector.sweep(mark)
    assert {tagged, audited} <= repository.objects()


def test_what_leaves_another_repository_for_a_path_that_was_staged_is_kept(
    spark: SparkSession, lake: Lake, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the list shows it, if it is read after the other repositories.

    The number of changes stays the same, and the entry states a size that no object to delete has.
    """
    other = lake.repository("other")
    repository.put("committed")
    repository.commit()
    repository.keep_days(10)
    stray = repository.put_stray("data/s/stray", b"of size 11!")
    repository.put("busy", "another")
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {stray}
    other.stage("imported", repository.namespace + stray, size_bytes=11)
    other.commit()
    moved: list[str] = []
    read = SecondLook._read_foreign

    def leave(look: SecondLook, again: str = "") -> Dataset:
        if not again and not moved:
            moved.append(stray)
            repository.stage("busy", stray, size_bytes=3)
            lake.client.repositories_api.delete_repository("other")
        return read(look, again)

    monkeypatch.setattr(SecondLook, "_read_foreign", leave)
    # As for stores that are not local: the branches of a local store are always read.
    monkeypatch.setattr(uncommitted, "is_local", lambda _: False)
    monkeypatch.setattr(uncommitted, "spellings", lambda namespace, _: (namespace,))
    assert counts(collector.sweep(mark)) == {"resurrected": 1}
    assert moved
    assert repository.store.read(stray) == b"of size 11!"
