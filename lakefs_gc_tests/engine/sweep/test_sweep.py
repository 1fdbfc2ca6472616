"""Deleting what a mark says, and nothing else (rules 4, 9 and 10)."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict, replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.records.ledger import RECORD, LedgerWriter, read_ledger
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.witness import Witness
from lakefs_gc.engine.sweep.commit_wait import wait_for_commits
from lakefs_gc.engine.sweep.deletion import DeleteTask, Pacing, delete_objects
from lakefs_gc.engine.sweep.outcomes import read_result
from lakefs_gc.engine.sweep.store_clock import Deadline
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import LakeFSGCError, MarkError, SweepIncompleteError
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.client_marks import COMMITTED, UNCOMMITTED, UNIFIED, write_client_mark
from lakefs_gc_tests.support.collector import Collector, counts
from lakefs_gc_tests.support.faulty_s3 import Answer, Request, deleted, error
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import LakeRepository, keys_below


def strays(repository: LakeRepository, count: int, content: bytes = b"123") -> list[str]:
    return [repository.put_stray(f"data/s{number % 3}/{number:03}", content) for number in range(count)]


def test_each_object_has_its_outcome(spark: SparkSession, repository: LakeRepository) -> None:
    live = repository.put_stray("data/live/x")
    keys = strays(repository, 10)
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*keys)
    gone, referenced, rewritten = keys[:3]
    repository.store.delete_many([gone])
    repository.put_stray(rewritten, b"again", age_hours=0)
    result = collector.sweep(mark, live=[referenced, "data/s/not-marked"], objects_per_request=3)
    expected = {gone: "already_gone", referenced: "resurrected", rewritten: "resurrected"}
    assert collector.swept == expected | dict.fromkeys(keys[3:], "deleted")
    assert counts(result) == {"deleted": 7, "already_gone": 1, "resurrected": 2}
    assert {name: outcome.size_bytes for name, outcome in result.outcomes.items()} == {
        "deleted": 21,
        "already_gone": 3,
        "resurrected": 6,
        "locked": 0,
        "not_backed_up": 0,
        "failed": 0,
    }
    assert collector.errors[referenced] == "referenced again since the mark"
    assert collector.errors[rewritten] == "written again since the mark"
    assert repository.objects() == {live, referenced, rewritten}
    result.raise_if_incomplete()
    kept = json.loads(repository.store.read(MarkPaths.of(mark.mark_id).sweep_summary))
    assert kept["mark_digest"] == mark.digest
    assert kept["outcomes"] == {name: asdict(outcome) for name, outcome in result.outcomes.items()}

    # Once more: the same result, and nothing is deleted twice.
    repository.put_stray(keys[5], b"new")
    before = set(keys_below(repository.store, MarkPaths.of(mark.mark_id).ledger))
    assert collector.sweep(mark, live=[referenced]) == result
    assert keys[5] in repository.objects()
    added = set(keys_below(repository.store, MarkPaths.of(mark.mark_id).ledger)) - before
    recorded = [pq.read_table(repository.folder / key)["address"].to_pylist() for key in added]
    assert {address for addresses in recorded for address in addresses} == {referenced, rewritten}

    # What is no longer referenced goes.
    assert counts(collector.sweep(mark, live=[])) == {"deleted": 8, "already_gone": 1, "resurrected": 1}


@pytest.mark.parametrize("layout", [UNIFIED, UNCOMMITTED, COMMITTED])
def test_sweeps_what_lakefs_own_client_marked(spark: SparkSession, repository: LakeRepository, layout: str) -> None:
    live, keys = repository.put_stray("data/live"), strays(repository, 4)
    collector = Collector(spark, repository)
    write_client_mark(repository.store, layout, keys[:2], keys[2:], cutoff=utc_now() - timedelta(hours=24))
    for key in keys_below(repository.store, "_lakefs/retention/gc/"):
        repository.age(key, 1)
    new = repository.put_stray(keys[0], b"again", age_hours=0)
    repository.store.delete_many([keys[3]])  # the client itself, for example
    mark = collector.read_mark("m1")
    result = collector.sweep(mark, live=[])
    assert counts(result) == {"already_gone": 1, "deleted": 2, "resurrected": 1}
    assert result.outcomes["deleted"].size_bytes == 6  # the mark does not say; the store does
    assert repository.objects() == {live, new}


def forged(repository: LakeRepository, mark: Mark, *addresses: str) -> Mark:
    """The mark with one more part, and a digest that fits: as somebody would who can write to the namespace."""
    key = f"{mark.folder}deleted/part-99999.snappy.parquet"
    write_client_mark(repository.store, "_lakefs/forged/", list(addresses))
    content = repository.store.read("_lakefs/forged/deleted/part-00000-c0ffee.snappy.parquet")
    repository.store.put(key, content)
    part = replace(mark.parts[0], key=key, objects=len(addresses), sha256=hashlib.sha256(content).hexdigest())
    changed = replace(mark, parts=(*mark.parts, part), candidates=mark.candidates + len(addresses))
    changed = changed.sealed()
    repository.store.put(MarkPaths.of(mark.mark_id).manifest, changed.to_json())
    return changed


BAD = ["_lakefs/x", "dummy", "other/x", "data/../_lakefs/x", "../lake/_lakefs/x", "/x", "data//x", "s3://b/x", "data/"]


def test_a_mark_with_addresses_in_other_places_deletes_nothing(spark: SparkSession, repository: LakeRepository) -> None:
    keys = strays(repository, 3)
    for key in ("_lakefs/x", "other/x"):
        repository.put_stray(key)
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*keys)
    before = repository.objects()
    for bad in BAD:
        changed = forged(repository, mark, bad)
        assert collector.read_mark(mark.mark_id) == changed
        with pytest.raises(MarkError, match=r"Mark .* has 1 addresses that are never collected"):
            collector.sweep(changed, live=[])
    changed = forged(repository, mark, keys[0])
    with pytest.raises(MarkError, match="counts 4 objects, but its files hold 3 different ones"):
        collector.sweep(changed, live=[])
    (repository.folder / mark.parts[0].key).write_bytes(b"PAR1")
    with pytest.raises(MarkError, match="was changed after the mark was made"):
        collector.sweep(mark, live=[])
    assert repository.objects() == before
    assert repository.store.stat_many(["_lakefs/x"])
    assert not list(keys_below(repository.store, MarkPaths.of(mark.mark_id).ledger))


def test_an_intent_without_outcome_is_counted_as_ours(spark: SparkSession, repository: LakeRepository) -> None:
    """What a sweep leaves that was killed between its deletes and their record."""
    keys = strays(repository, 4)
    collector = Collector(spark, repository)
    write_client_mark(repository.store, UNIFIED, keys, cutoff=utc_now())  # without sizes: only the intent knows them
    mark = collector.read_mark("m1")
    paths = MarkPaths.of("m1")
    begun = [{"address": key, "size": 3, "outcome": "intent", "error": ""} for key in keys[:3]]
    writer = LedgerWriter(repository.store, paths.ledger, 0, "20200101T000000000000")
    writer.chunk(0).intent(pa.RecordBatch.from_pylist(begun, schema=RECORD))
    repository.store.delete_many(keys[:2])
    result = collector.sweep(mark, live=[keys[2]])
    assert collector.swept == {
        keys[0]: "deleted",
        keys[1]: "deleted",
        keys[2]: "resurrected",
        keys[3]: "deleted",
    }
    assert result.outcomes["deleted"].size_bytes == 9


def test_a_task_that_spark_tries_again(repository: LakeRepository, spark: SparkSession) -> None:
    """The first try was lost after it deleted; the second, of the same shard and sweep, knows whose work that was."""
    keys = strays(repository, 3)
    plan = {"address": keys, "verdict": ["delete"] * 3, "begun": [False] * 3}
    plan |= {"size": [None] * 3, "last_modified": [None] * 3}
    folder, sequence = MarkPaths.of("m1").ledger, "20260701T000000000000"
    lost = [{"address": key, "size": 3, "outcome": "intent", "error": ""} for key in keys[:1]]
    for shard in (0, 1):
        writer = LedgerWriter(repository.store, folder, shard, sequence).chunk(0)
        writer.intent(pa.RecordBatch.from_pylist(lost, schema=RECORD))
    repository.store.delete_many(keys[:2])
    repository.store.put("_lakefs/mark", b"")
    task = DeleteTask(
        store=repository.location,
        mark_file="_lakefs/mark",
        ledger_folder=folder,
        sequence=sequence,
        objects_per_request=2,
        cutoff=utc_now(),
        delete_versions=False,
        deadline=Deadline(time.time(), time.time() + 60),
        pacing=Pacing(1, 0),
        restores_folder="restores/",
        witness=Witness(repository.location, "_lakefs/mark", b""),
    )
    again = delete_objects(task)
    assert [batch["done"].to_pylist() for batch in again(iter([pa.record_batch(plan)]))] == [[2], [1]]
    found = read_ledger(spark, repository.location, folder, 1).collect()
    assert {row["address"]: (row["outcome"], row["size"]) for row in found} == {
        keys[0]: ("deleted", 3),
        keys[1]: ("already_gone", None),
        keys[2]: ("deleted", 3),
    }


def test_a_delete_that_fails_is_no_success(spark: SparkSession, in_s3: LakeRepository, store_in_s3: StoreInS3) -> None:
    keys = strays(in_s3, 6)
    stubborn, poisonous = keys[1], keys[4]
    refusals = {store_in_s3.key(in_s3, key): ("AccessDenied", "not yours") for key in (stubborn, poisonous)}

    def refuse(request: Request) -> Answer | None:
        if request.operation == "DeleteObject" and request.keys[0] in refusals:
            return Answer(403, b"<Error><Code>AccessDenied</Code><Message>not yours</Message></Error>")
        if request.operation != "DeleteObjects":
            return None
        for key in request.keys:
            if key not in refusals:
                store_in_s3.server.objects.pop(key, None)
        return deleted(request.keys, {key: refusals[key] for key in request.keys if key in refusals})

    collector = Collector(spark, in_s3)
    mark = collector.mark_objects(*keys)
    store_in_s3.server.faults.append(refuse)
    result = collector.sweep(mark, live=[])
    assert counts(result) == {"deleted": 4, "failed": 2}
    assert {key for key, outcome in collector.swept.items() if outcome == "failed"} == {stubborn, poisonous}
    assert "AccessDenied" in collector.errors[stubborn]
    with pytest.raises(SweepIncompleteError, match=r"2 of 6 objects of mark .* could not be deleted") as caught:
        result.raise_if_incomplete()
    assert caught.value.facts["outcomes"]["failed"] == {"objects": 2, "size_bytes": 6}

    store_in_s3.server.faults.clear()
    deletes = store_in_s3.server.count("DeleteObjects")
    result = collector.sweep(mark, live=[])
    assert counts(result) == {"deleted": 6}
    assert result.outcomes["deleted"].size_bytes == 18
    asked = [r.keys for r in store_in_s3.server.requests if r.operation == "DeleteObjects"][deletes:]
    of_data = {key for keys in asked for key in keys if "/data/" in key}
    assert of_data == set(refusals), "only what is left is deleted"
    result.raise_if_incomplete()


def test_a_ledger_that_has_lost_something_is_no_result(spark: SparkSession, repository: LakeRepository) -> None:
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*strays(repository, 4))
    collector.sweep(mark, live=[], objects_per_request=2)
    folder = MarkPaths.of(mark.mark_id).ledger
    outcomes = [key for key in keys_below(repository.store, folder) if "outcome" in key]
    intents = [key for key in keys_below(repository.store, folder) if "intent" in key]
    assert len(outcomes) == len(intents) == 2
    for lost, said in (
        (outcomes[0], "2 of 4"),
        (intents[0], "2 of 4"),
        (intents[1], "2 of 4"),
        (outcomes[1], "0 of 4"),
    ):
        repository.store.delete_many([lost])
        recorded = read_ledger(spark, repository.location, folder, 1)
        with pytest.raises(SweepIncompleteError, match=f"accounts for {said}"):
            read_result(mark, recorded)


def test_failed_deletes_are_tried_again(spark: SparkSession, in_s3: LakeRepository, store_in_s3: StoreInS3) -> None:
    """With pauses that grow, and another look before each."""
    keys = strays(in_s3, 4)
    refused = store_in_s3.key(in_s3, keys[0])
    times: list[str] = []
    pauses: list[float] = []
    looks: list[set[str]] = []

    def refuse_twice(request: Request) -> Answer | None:
        if request.operation not in ("DeleteObject", "DeleteObjects") or refused not in request.keys:
            return None
        times.append(request.operation)
        if len(pauses) == 2:
            return None
        for key in set(request.keys) - {refused}:
            store_in_s3.server.objects.pop(key, None)
        return deleted(request.keys, {refused: ("InternalError", "not now")})

    def look(suspects: DataFrame) -> DataFrame:
        looks.append({row["address"] for row in suspects.select("address").collect()})
        return spark.createDataFrame([], schemas.UNCOMMITTED)

    collector = Collector(spark, in_s3)
    mark = collector.mark_objects(*keys)
    store_in_s3.server.faults.append(refuse_twice)
    result = collector.sweep(mark, look=look, sleep=pauses.append, retries=3, retry_pause_seconds=7)
    assert counts(result) == {"deleted": 4}
    assert pauses == [7, 14]
    assert looks == [set(keys), {keys[0]}, {keys[0]}]
    assert keys[0] not in in_s3.objects()


def test_a_store_that_says_slow_down_for_a_while(
    spark: SparkSession, in_s3: LakeRepository, store_in_s3: StoreInS3
) -> None:
    """The first try of each request: the sweep waits, and no object has failed."""
    keys = strays(in_s3, 60)
    told: set[tuple[str, str]] = set()

    def slow_down(request: Request) -> Answer | None:
        if request.operation not in ("DeleteObjects", "HeadObject") or "/data/" not in request.keys[0]:
            return None
        first_try = (request.operation, request.keys[0]) not in told
        told.add((request.operation, request.keys[0]))
        return error(503, "SlowDown") if first_try else None

    collector = Collector(spark, in_s3)
    mark = collector.mark_objects(*keys)
    store_in_s3.server.faults.append(slow_down)
    result = collector.sweep(mark, live=[], objects_per_request=5, retries=0)
    assert counts(result) == {"deleted": 60}
    assert len(told) >= 60 / 5
    assert not in_s3.objects() & set(keys)


def test_a_store_that_gives_up_in_the_middle_leaves_a_sweep_that_goes_on(
    spark: SparkSession, in_s3: LakeRepository, store_in_s3: StoreInS3
) -> None:
    """Access is lost once the first chunk is gone: the sweep ends with the store's error, and knows what it did."""
    keys = strays(in_s3, 12)
    collector = Collector(spark, in_s3)
    mark = collector.mark_objects(*keys)

    def lose_access(request: Request) -> Answer | None:
        of_data = [r for r in store_in_s3.server.requests if r.operation == "DeleteObjects" and "/data/" in r.keys[0]]
        lost = len(of_data) > 1 and request.operation in ("HeadObject", "PutObject")
        return Answer(403, b"<Error><Code>AccessDenied</Code></Error>") if lost else None

    store_in_s3.server.faults.append(lose_access)
    with pytest.raises(LakeFSGCError):
        collector.sweep(mark, live=[], objects_per_request=2, requests_at_once=1)
    store_in_s3.server.faults.clear()
    left = in_s3.objects() & set(keys)
    assert 0 < len(left) < len(keys)
    result = collector.sweep(mark, live=[], objects_per_request=2)
    assert counts(result) == {"deleted": 12}
    assert result.outcomes["deleted"].size_bytes == 36
    assert not in_s3.objects() & set(keys)


def test_a_sweep_waits_for_commits_that_were_under_way(spark: SparkSession, repository: LakeRepository) -> None:
    """By the store's clock, and twice the allowed skew on top; whatever this machine's clock says."""
    mark = Collector(spark, repository).mark_objects(*strays(repository, 1))
    store = open_store(repository.location)

    def waited(minutes: float, mark_age_minutes: float, *, by_mark: float = 0.0) -> list[float]:
        now = mark.created_at + timedelta(minutes=mark_age_minutes)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(store, "now", lambda: now)
            pauses: list[float] = []
            safety = SafetyParameters(longest_commit_minutes=minutes, max_clock_skew_seconds=60)
            made = replace(mark, run=mark.run | {"longest_commit_minutes": by_mark})
            wait_for_commits(store, made, safety, pauses.append)
        return pauses

    assert waited(10, 4) == [pytest.approx(8 * 60, abs=5)]
    assert waited(10, 11.5) == [pytest.approx(30, abs=5)]
    assert waited(10, 12.5) == []
    # Whoever sweeps it, and with whatever settings.
    assert waited(10, 12.5, by_mark=60) == [pytest.approx(49.5 * 60, abs=5)] == waited(0, 12.5, by_mark=60)
    assert waited(10, 4, by_mark=0) == [pytest.approx(8 * 60, abs=5)]
    assert waited(10, 99) == []
    assert waited(0, 0) == []
    repository.age(MarkPaths.of(mark.mark_id).summary, -1)  # as a copy that was made an hour later says
    assert waited(10, 65) == [pytest.approx(7 * 60, abs=5)]
    repository.age(MarkPaths.of(mark.mark_id).summary, 5)  # or as one that says what it likes
    assert waited(10, 4) == [pytest.approx(8 * 60, abs=5)]


def test_local_files_in_a_read_only_folder(spark: SparkSession, repository: LakeRepository) -> None:
    if os.geteuid() == 0:
        pytest.skip("permissions do not bind the superuser")
    keys = strays(repository, 3)
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*keys)
    folder = (repository.folder / keys[0]).parent
    folder.chmod(0o500)
    try:
        assert counts(collector.sweep(mark, live=[])) == {"deleted": 2, "failed": 1}
    finally:
        folder.chmod(0o700)
    assert counts(collector.sweep(mark, live=[])) == {"deleted": 3}
