"""The store of a run is the one of its lakeFS server, or the run ends (rule 12)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.collect.references.store_of_server import WITNESSES
from lakefs_gc.engine.workspace.range_cache import METADATA_FOLDER
from lakefs_gc.errors import LakeFSGCError, SafetyError, ServerUnavailableError, StorageError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.base import Deletion, ObjectStore
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.faulty_store import LevelledS3, StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository, keys_below
from lakefs_gc_tests.support.lakefs_proxy import Answered, LakeFSProxy

ASKED = "/metadata/object/range/"
"""A part of the path of the request for the file that a run has just written."""


@pytest.fixture(name="of_copy")
def repository_of_a_copy(
    tmp_path: Path, store_in_s3: StoreInS3, levelled_s3: LevelledS3, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LakeRepository]:
    """A repository on a server with a store of its own, while the runs of this process use that of the original.

    Since it was copied, an object was staged in the original.
    """
    with LevelledS3() as copied, Lake(tmp_path / "original", store_in_s3.location) as original:
        repository = original.repository()
        repository.put("committed")
        repository.commit()
        shutil.copytree(tmp_path / "original", tmp_path / "copy")
        copied.objects.update(levelled_s3.objects)
        copied.written_at.update(levelled_s3.written_at)
        repository.put("staged in the original")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", copied.endpoint)
        with Lake(tmp_path / "copy", store_in_s3.location) as lake:
            of_copy = LakeRepository(lake, repository.name, repository.namespace)
            assert of_copy.read("committed")  # its server has opened its store
            monkeypatch.setenv("AWS_ENDPOINT_URL_S3", levelled_s3.endpoint)
            yield of_copy


def witnesses(repository: LakeRepository) -> list[str]:
    return list(keys_below(repository.store, METADATA_FOLDER + WITNESSES))


def test_the_store_of_another_installation(spark: SparkSession, of_copy: LakeRepository) -> None:
    collector = Collector(spark, of_copy)
    collector.collect(until="uncommitted")
    with pytest.raises(SafetyError, match=r"is another one than s3://.* does not have the file that this process"):
        collector.materialize("active_ranges")
    assert witnesses(of_copy) == []


def test_a_sweep_in_the_store_of_another_installation(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.put("committed")
    repository.commit()
    garbage = repository.put_stray("data/s/garbage")
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    monkeypatch.setattr(LakeFSClient, "metadata_file", lambda *_: None)  # as one with another store answers
    with pytest.raises(SafetyError, match="is another one than"):
        collector.sweep(mark)
    assert repository.store.stat_many([garbage])


def test_the_proof_is_of_the_client_that_reads(
    spark: SparkSession, of_copy: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one may reach another store: its credentials are read anew."""
    collector = Collector(spark, of_copy)
    collector.collect(until="uncommitted")

    def opened_anew(location: StoreLocation) -> ObjectStore:
        raise AssertionError(f"another client of {location.url}")

    monkeypatch.setattr("lakefs_gc_tests.support.collector.open_store", opened_anew)
    with pytest.raises(SafetyError, match="is another one than"):
        collector.materialize("active_ranges")


def behind(proxy: LakeFSProxy, lake: Lake) -> LakeFSClient:
    credentials = lake.credentials.model_copy(update={"endpoint_url": proxy.url})
    return LakeFSClient(credentials, sleep=lambda seconds: None)


def written_by_the_server(repository: LakeRepository, written: str) -> None:
    repository.put("committed")
    repository.commit()
    if written == "rules":
        repository.keep_days(10_000)
    if written == "staged":
        repository.put("staged")


@pytest.mark.parametrize("written", ["rules", "staged", "nothing"])
def test_a_list_of_the_server_does_not_show_its_store(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    """A replica of the bucket has the list as well, and may be the store of another server."""
    written_by_the_server(repository, written)
    collector = Collector(spark, repository)
    collector.collect(until="uncommitted")
    monkeypatch.setattr(LakeFSClient, "metadata_file", lambda *_: None)  # as one with another store answers
    with pytest.raises(SafetyError, match="is another one than"):
        collector.materialize("active_ranges")


@pytest.mark.parametrize(("written", "status"), [("rules", 404), ("staged", 404), ("rules", 500)])
def test_an_older_server_shows_its_store_by_a_list(
    spark: SparkSession,
    lake: Lake,
    repository: LakeRepository,
    proxy: LakeFSProxy,
    monkeypatch: pytest.MonkeyPatch,
    written: str,
    status: int,
) -> None:
    """Before lakeFS 1.25, it has no call for files, and answers 500 to an unknown one."""
    monkeypatch.setattr(LakeFSClient, "version", lambda _: "1.24.0")
    written_by_the_server(repository, written)
    answer = Answered(status, unknown_call(Answered(200, b"")).body)
    proxy.spoil.append(lambda asked, _: answer if ASKED in asked.path else None)
    Collector(spark, repository, server=behind(proxy, lake)).collect(until="active_ranges")
    assert sum(ASKED in asked.path for asked in proxy.asked) == 1
    assert witnesses(repository) == []


def unknown_call(real: Answered) -> Answered:
    return Answered(404, b'{"message":"invalid API endpoint"}')


def refused_by_a_proxy(real: Answered) -> Answered:
    return Answered(404, b"<h1>Not Found</h1>", {"Content-Type": "text/html"})


def forbidden(real: Answered) -> Answered:
    return Answered(403, b'{"message":"insufficient permissions"}')


def of_another_file(real: Answered) -> Answered:
    return Answered(200, b"0" * len(real.body), real.headers)


def unavailable(real: Answered) -> Answered:
    return Answered(503, b'{"message":"try again"}')


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (unknown_call, SafetyError, "may be another one .* invalid API endpoint"),
        (refused_by_a_proxy, SafetyError, "may be another one .* not from lakeFS"),
        (forbidden, SafetyError, "may be another one .* insufficient permissions"),
        (of_another_file, SafetyError, "is another one"),
        (unavailable, ServerUnavailableError, "try again"),
    ],
)
@pytest.mark.parametrize("written", ["nothing", "rules"])
def test_an_answer_that_shows_no_store(
    spark: SparkSession,
    lake: Lake,
    repository: LakeRepository,
    proxy: LakeFSProxy,
    answer: Callable[[Answered], Answered],
    error: type[LakeFSGCError],
    text: str,
    written: str,
) -> None:
    written_by_the_server(repository, written)
    proxy.spoil.append(lambda asked, real: answer(real()) if ASKED in asked.path else None)
    collector = Collector(spark, repository, server=behind(proxy, lake))
    collector.collect(until="uncommitted")
    with pytest.raises(error, match=text):
        collector.materialize("active_ranges")
    assert witnesses(repository) == []


def test_a_file_that_cannot_be_deleted_hinders_nothing(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    delete = LocalStore.delete_many

    def refuse(store: LocalStore, keys: Sequence[str]) -> list[Deletion]:
        if any(WITNESSES in key for key in keys):
            raise StorageError("refused")
        return delete(store, keys)

    collector = Collector(spark, repository)
    collector.collect(until="uncommitted")
    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "delete_many", refuse)
        collector.materialize("active_ranges")
    assert "is not needed any more, and cannot be deleted: refused" in caplog.text
    assert len(witnesses(repository)) == 1
