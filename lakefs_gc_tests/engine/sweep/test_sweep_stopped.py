"""A sweep that fails or is canceled tells its workers, which Spark lets go on for a while."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from pyspark.sql import SparkSession

from lakefs_gc.engine.records import restore_log
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.spark.workers import worker_store
from lakefs_gc.engine.sweep import run_deletes as stage
from lakefs_gc.errors import LakeFSGCError, StorageError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.s3.store import S3Store
from lakefs_gc_tests.support.collector import Collector, counts
from lakefs_gc_tests.support.faulty_s3 import Answer, Request
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import LakeRepository, keys_below

_SECONDS = 0.3
"""How long the store takes for a delete: Spark ends the Python worker of a failed job two seconds later."""


def put(repository: LakeRepository, count: int) -> list[str]:
    return [repository.put_stray(f"data/s/{number:03}", b"123") for number in range(count)]


def is_delete(request: Request) -> bool:
    return request.operation in ("DeleteObjects", "DeleteObject") and "/data/" in request.keys[0]


def test_one_failed_task_stops_the_others(spark: SparkSession, in_s3: LakeRepository, store_in_s3: StoreInS3) -> None:
    keys = put(in_s3, 60)
    collector = Collector(spark, in_s3)
    mark = collector.mark_objects(*keys)
    server = store_in_s3.server
    events: list[str] = []

    def fail_one_shard(request: Request) -> Answer | None:
        if is_delete(request):
            events.append("delete")
            time.sleep(_SECONDS)
        elif request.operation == "PutObject" and request.keys[0].endswith(".stop"):
            events.append("stop")
        elif request.operation == "PutObject" and "-00001-00000-" in request.keys[0] and "delete" in events:
            return Answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        return None

    server.faults.append(fail_one_shard)
    with pytest.raises(LakeFSGCError, match="AccessDenied"):
        collector.sweep(mark, live=[], objects_per_request=1, requests_at_once=1)
    time.sleep(5 * _SECONDS)
    assert events.count("stop") == 1
    assert events[events.index("stop") :].count("delete") <= 1, "only a delete that was about to begin"
    ended = len(events)
    time.sleep(5 * _SECONDS)
    assert len(events) == ended
    server.faults.clear()
    assert 0 < len(in_s3.objects() & set(keys)) < len(keys)
    assert counts(collector.sweep(mark, live=[])) == {"deleted": 60}, "the stop is one of the pass that failed"


def test_one_failed_request_stops_the_deletes_of_a_small_run(
    spark: SparkSession, in_s3: LakeRepository, store_in_s3: StoreInS3
) -> None:
    keys = put(in_s3, 60)
    collector = Collector(spark, in_s3)
    mark = collector.mark_objects(*keys)
    events: list[str] = []

    def fail_an_intent(request: Request) -> Answer | None:
        if is_delete(request):
            events.append("delete")
            time.sleep(_SECONDS)
        elif request.operation == "PutObject" and request.keys[0].endswith(".stop"):
            events.append("stop")
        elif request.operation == "PutObject" and events.count("delete") > 8:
            return Answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        return None

    store_in_s3.server.faults.append(fail_an_intent)
    with pytest.raises(LakeFSGCError, match="AccessDenied"):
        collector.sweep(mark, live=[], objects_per_request=1, requests_at_once=4, small=True)
    ended = len(events)
    assert "delete" not in events[events.index("stop") :], "deletes that had begun are waited for"
    time.sleep(5 * _SECONDS)
    assert len(events) == ended
    store_in_s3.server.faults.clear()
    assert 0 < len(in_s3.objects() & set(keys)) < len(keys)
    assert counts(collector.sweep(mark, live=[], small=True)) == {"deleted": 60}


def test_a_small_sweep_has_a_client_of_its_own(
    spark: SparkSession, in_s3: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of its requests is not one of the process, which goes on."""
    limited: list[tuple[S3Store, float]] = []
    limit = S3Store.limit_requests

    def noted(store: S3Store, per_second: float) -> None:
        limited.append((store, per_second))
        limit(store, per_second)

    monkeypatch.setattr(S3Store, "limit_requests", noted)
    collector = Collector(spark, in_s3)
    mark = collector.mark_objects(*put(in_s3, 3))
    assert counts(collector.sweep(mark, live=[], max_requests_per_second=50, small=True)) == {"deleted": 3}
    [(store, per_second)] = limited
    assert per_second == 50, "one process deletes"
    assert store is not worker_store(in_s3.location)


def test_many_deletes_of_a_small_run_are_those_of_workers(
    spark: SparkSession, in_s3: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = put(in_s3, 4)
    collector = Collector(spark, in_s3)
    mark = collector.mark_objects(*keys)
    monkeypatch.setattr(stage, "_MOST_HERE", 3)
    monkeypatch.setattr(stage, "_here", lambda *_: pytest.fail("deleted in this process"))
    assert counts(collector.sweep(mark, live=[], small=True)) == {"deleted": 4}


@pytest.mark.of_ci("DagsterExecutionInterruptedError-True", "KeyboardInterrupt-False")
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, DagsterExecutionInterruptedError])
def test_an_interruption_stops_the_workers_at_once(
    kind: type[BaseException], small: bool, spark: SparkSession, in_s3: LakeRepository, store_in_s3: StoreInS3
) -> None:
    """Ctrl-C, and Dagster's Terminate: a signal in the middle of the deletes."""

    def interrupt(*_: object) -> None:
        raise kind

    keys = put(in_s3, 60)
    collector = Collector(spark, in_s3)
    mark = collector.mark_objects(*keys)
    events: list[str] = []

    def interrupt_at_the_fourth(request: Request) -> None:
        if is_delete(request):
            events.append("delete")
            if events.count("delete") == 4:
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(_SECONDS)
        elif request.operation == "PutObject" and request.keys[0].endswith(".stop"):
            events.append("stop")

    store_in_s3.server.faults.append(interrupt_at_the_fourth)
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(kind):
            collector.sweep(mark, live=[], objects_per_request=1, requests_at_once=1, small=small)
    finally:
        signal.signal(signal.SIGINT, before)
    time.sleep(5 * _SECONDS)
    store_in_s3.server.faults.clear()
    assert "stop" in events
    assert events.count("delete") < len(keys) / 2
    left = in_s3.objects() & set(keys)
    assert len(left) > len(keys) / 2
    time.sleep(5 * _SECONDS)
    assert in_s3.objects() & set(keys) == left
    assert counts(collector.sweep(mark, live=[])) == {"deleted": 60}


def test_a_canceled_sweep_stops_its_workers(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = put(repository, 3)
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*keys)

    def cancel(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stage, "delete_objects", cancel)
        with pytest.raises(KeyboardInterrupt):
            collector.sweep(mark, live=[])
    [stop] = keys_below(repository.store, MarkPaths.of(mark.mark_id).restores)
    assert stop.endswith("-00001.stop")
    assert counts(collector.sweep(mark, live=[])) == {"deleted": 3}
    stops = list(keys_below(repository.store, MarkPaths.of(mark.mark_id).restores))
    assert stops == [stop], "a sweep that ends writes none"


def test_a_stop_that_cannot_be_written_hides_no_failure(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*put(repository, 3))

    def fail(*_: object) -> None:
        raise StorageError("the deletes failed", remedy="")

    def refuse(store: ObjectStore, mark_id: str, sequence: str) -> None:
        raise StorageError("read only", remedy="")

    monkeypatch.setattr(stage, "delete_objects", fail)
    monkeypatch.setattr(stage, "stop_pass", refuse)
    with pytest.raises(StorageError, match="the deletes failed"):
        collector.sweep(mark, live=[])
    assert "could not be told to stop" in caplog.text


def test_only_the_stop_of_this_pass_counts(repository: LakeRepository) -> None:
    store, folder = repository.store, MarkPaths.of("m1").restores
    restore_log.stop_pass(store, "m1", "20260701T120000000000-00001")
    for sequence, stopped in (("20260701T120000000000-00001", True), ("20260701T120000000000-00002", False)):
        assert restore_log.is_stopped(store, folder, sequence, frozenset()) is stopped
    assert restore_log.notes(store, "m1") == {}, "a stop is no restore"


@pytest.mark.parametrize("failure", [StorageError("no answer"), OSError("no space left on device")])
def test_an_interruption_stops_the_deletes_here_though_the_store_cannot_be_told(
    in_s3: LakeRepository, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(stage, "stop_pass", fail)
    stopped = threading.Event()
    task: Any = SimpleNamespace(sequence="1")
    store = open_store(in_s3.location)
    with pytest.raises(KeyboardInterrupt), stage._stopped_unless_it_ends(store, "mark", task, stopped):
        raise KeyboardInterrupt
    assert stopped.is_set()
