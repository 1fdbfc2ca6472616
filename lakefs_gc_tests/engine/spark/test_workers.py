"""Errors of Spark's workers reach the driver as they were raised."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.cloudpickle import dumps
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from lakefs_gc.engine.spark.data_files import read_parquet
from lakefs_gc.engine.spark.workers import Batches, WorkerError, driver_errors, strings, worker, worker_store
from lakefs_gc.errors import CorruptFileError, CorruptRangeError, LakeFSGCError, ServerError, SparkFailedError
from lakefs_gc.storage import endpoints
from lakefs_gc.storage.endpoints import S3, check_endpoint
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.s3.store import S3Store
from lakefs_gc_tests.support.failing_worker import fail


def run(spark: SparkSession, error: Exception) -> None:
    with driver_errors():
        spark.range(1, numPartitions=1).mapInArrow(fail(error), "id long").collect()


def test_an_error_reaches_the_driver_with_its_facts(spark: SparkSession) -> None:
    raised = CorruptRangeError("_lakefs/ä\n\"x'}", "cut: {off} \\n", offset=17)
    with pytest.raises(CorruptRangeError) as caught:
        run(spark, raised)
    assert str(caught.value) == str(raised)
    assert caught.value.facts == {"file": "_lakefs/ä\n\"x'}", "reason": "cut: {off} \\n (at byte 17)", "offset": 17}


def test_facts_without_a_json_type_are_dropped(spark: SparkSession) -> None:
    with pytest.raises(ServerError) as caught:
        run(spark, ServerError("no", remedy="wait", status=503, answer={"a": [1]}))
    assert (caught.value.facts, caught.value.remedy) == ({"status": 503}, "wait")


def test_other_errors_name_the_cause_and_a_remedy(spark: SparkSession) -> None:
    with pytest.raises(SparkFailedError, match=r"finish: ZeroDivisionError: by nothing\n") as caught:
        run(spark, ZeroDivisionError("by nothing"))
    assert isinstance(caught.value.__cause__, PythonException)
    full = OSError(28, "No space left on device")
    with pytest.raises(SparkFailedError, match="No space left on device") as caught:
        run(spark, full)
    assert caught.value.remedy.startswith("Free disk space")
    with pytest.raises(LakeFSGCError, match="on the driver"), driver_errors():
        raise LakeFSGCError("on the driver")


def test_strings_yields_the_values_of_every_batch() -> None:
    batches = [pa.record_batch({"x": ["a", "b"]}), pa.record_batch({"x": ["c"]})]
    assert list(strings(batches, "x")) == ["a", "b", "c"]


def test_a_workspace_that_spark_cannot_reach_names_what_to_set(spark: SparkSession) -> None:
    with pytest.raises(SparkFailedError, match='No FileSystem for scheme "s3"') as caught:
        read_parquet(spark, "id long", "s3://bucket/work", ["part"])
    assert "work_url" in caught.value.remedy


@worker
def _repeated(batches: Batches, text: str, *, times: int) -> Batches:
    yield from (pa.record_batch({"text": [text] * times * batch.num_rows}) for batch in batches)


def test_tasks_that_change_on_their_way() -> None:
    """Spark passes a large function through files without checksums."""
    sent: bytes = dumps(_repeated("0123456789" * 10, times=2))  # type: ignore[no-untyped-call]
    task: Callable[[Batches], Batches] = pickle.loads(sent)
    [batch] = task(iter([pa.record_batch({"id": [1]})]))
    assert batch.num_rows == 2
    begin, end = (sent.index(text) for text in (b"_repeated", b"0123456789"))
    for at in range(begin, end + 20, 7):
        damaged = sent[:at] + bytes([sent[at] ^ 1]) + sent[at + 1 :]
        with pytest.raises(WorkerError, match="a task of Spark: its function and arguments are not those"):
            pickle.loads(damaged)


@worker
def _where(batches: Batches) -> Batches:
    for _ in batches:
        store = worker_store(StoreLocation("s3://bucket/folder"))
        assert isinstance(store, S3Store)
        yield pa.record_batch({"endpoint": [store._s3().endpoint]})


def test_a_worker_that_stays_has_stores_of_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a Spark that stays: each run's tasks find no store that a task of another run has opened."""
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setattr(endpoints, "_here", {})

    def task_of_run(endpoint: str) -> Callable[[Batches], Batches]:
        check_endpoint(S3, endpoint)
        task: Callable[[Batches], Batches] = pickle.loads(dumps(_where()))  # type: ignore[no-untyped-call]
        return task

    ours, of_another = (task_of_run(f"http://{name}.example.com:9000") for name in ("ours", "other"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://ours.example.com:9000")
    [batch] = ours(iter([pa.record_batch({"id": [1]})]))
    assert batch.to_pylist() == [{"endpoint": "http://ours.example.com:9000"}]
    with pytest.raises(WorkerError, match=r"requests about S3 to http://ours\.example\.com:9000, and .* http://other"):
        list(of_another(iter([pa.record_batch({"id": [1]})])))


def test_a_process_that_goes_on_has_stores_of_each_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    found = []
    for name in ("one", "other", "one"):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{name}.example.com:9000")
        [batch] = _where()(iter([pa.record_batch({"id": [1]})]))
        found += batch.to_pylist()
    assert found == [{"endpoint": f"http://{name}.example.com:9000"} for name in ("one", "other", "one")]


def test_a_damaged_task_is_an_error_of_the_driver(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefs_gc.engine.spark.workers.zlib.crc32", lambda content: 0)  # of the driver only
    with pytest.raises(CorruptFileError, match="a task of Spark"), driver_errors():
        spark.range(1).mapInArrow(_repeated("text", times=1), "text string").collect()
