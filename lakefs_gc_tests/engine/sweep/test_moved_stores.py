"""A process that goes on, whose stores lead elsewhere: by the files of AWS, which change while its variables do not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.engine.run import continue_run
from lakefs_gc.engine.spark.workers import proofs_of_tasks
from lakefs_gc.engine.sweep import deletion
from lakefs_gc.errors import ConfigurationError, StorageError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.endpoints import begin_clients
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.faulty_s3 import Answer, FaultyS3, Request
from lakefs_gc_tests.support.faulty_store import LevelledS3, StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository

_BOTH_KINDS = pytest.mark.parametrize(
    "small", [True, pytest.param(False, marks=(pytest.mark.executors, pytest.mark.long(15)))]
)


@dataclass
class Moving:
    """Two servers, and the files by which this process and Spark's workers find one of them."""

    server: FaultyS3
    copy: FaultyS3
    folder: Path

    def lead_to(self, server: FaultyS3) -> None:
        (self.folder / "config").write_text(f"[default]\nregion = us-east-1\nendpoint_url = {server.endpoint}\n")

    def be(self, tenant: str) -> None:
        """Have other credentials from now on."""
        (self.folder / "credentials").write_text(
            f"[default]\naws_access_key_id = {tenant}\naws_secret_access_key = secret\n"
        )

    def move(self, kind: str) -> None:
        """Lead to the other server, or be another tenant of the same one."""
        if kind == "server":
            self.lead_to(self.copy)
        else:
            self.be("tenant-2")

    def fill_copy(self) -> None:
        self.copy.objects.update(self.server.objects)
        self.copy.written_at.update(self.server.written_at)

    def answer_tenants(self, request: Request) -> Answer | None:
        of_copy = "Credential=tenant-2/" in request.headers["authorization"]
        return self.copy.right_answer(request) if of_copy else None


@pytest.fixture
def moving(
    spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Moving]:
    """The store of a lake. Its server, the sandbox, is in this process, too, and keeps the clients that it has."""
    environment = spark.sparkContext.environment
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
        monkeypatch.setitem(environment, name, "")
    for name, file in (("AWS_CONFIG_FILE", "config"), ("AWS_SHARED_CREDENTIALS_FILE", "credentials")):
        monkeypatch.setenv(name, str(tmp_path / file))
        monkeypatch.setitem(environment, name, str(tmp_path / file))
    with LevelledS3() as copy:
        moving = Moving(store_in_s3.server, copy, tmp_path)
        moving.lead_to(moving.server)
        moving.be("tenant-1")
        moving.server.faults.append(moving.answer_tenants)
        yield moving


def mark_garbage(spark: SparkSession, repository: LakeRepository) -> tuple[Collector, str]:
    repository.put("live")
    repository.commit()
    repository.keep_days(10_000)
    garbage = repository.put_stray("data/s/garbage")
    return Collector(spark, repository), garbage


def deletes_of_objects(server: FaultyS3) -> list[Request]:
    """Not those of the files by which a run proves its store."""
    return [r for r in server.requests if r.operation.startswith("Delete") and any("/data/" in key for key in r.keys)]


def sweep_and_move(collector: Collector, moving: Moving, kind: str, small: bool) -> None:
    """Sweep a mark, and move between the second look and the deletes."""
    mark = collector.collect_and_mark()
    moving.fill_copy()
    look = collector.second_look(collector.begin(), mark)

    def look_then_move(objects: DataFrame) -> DataFrame:
        found = look(objects).persist()
        found.count()
        moving.move(kind)
        return found

    collector.sweep(mark, look=look_then_move, small=small)


@_BOTH_KINDS
def test_no_delete_reaches_another_server_than_the_look(
    spark: SparkSession, moving: Moving, in_s3: LakeRepository, small: bool
) -> None:
    collector, _ = mark_garbage(spark, in_s3)
    with pytest.raises(ConfigurationError, match=r"(This run began to send|A worker of Spark sends) the requests"):
        sweep_and_move(collector, moving, "server", small)
    assert not deletes_of_objects(moving.copy)
    assert not deletes_of_objects(moving.server)


@_BOTH_KINDS
def test_no_delete_reaches_the_store_of_another_tenant_than_the_look(
    spark: SparkSession, moving: Moving, in_s3: LakeRepository, small: bool
) -> None:
    collector, _ = mark_garbage(spark, in_s3)
    with pytest.raises(StorageError, match="finds another store at s3://bucket/lakes/"):
        sweep_and_move(collector, moving, "tenant", small)
    assert not deletes_of_objects(moving.server)


@pytest.mark.parametrize("of_the_other", ["begin", "end"])
def test_nothing_is_deleted_after_a_look_beside_another_run_of_the_process(
    spark: SparkSession, lake: Lake, of_the_other: str
) -> None:
    """The begin of one, and the end of another sweep, free the tasks of the look of their proof."""
    repository = lake.repository()
    collector, garbage = mark_garbage(spark, repository)
    mark = collector.collect_and_mark()
    look = collector.second_look(collector.begin(), mark)

    def look_beside(objects: DataFrame) -> DataFrame:
        if of_the_other == "begin":
            begin_clients("another run")
        else:
            with proofs_of_tasks():
                pass
        return look(objects)

    with pytest.raises(ConfigurationError, match="Another run of this process began or ended during the second look"):
        collector.sweep(mark, look=look_beside)
    assert garbage in repository.objects()
    collector.sweep(mark)
    assert garbage not in repository.objects()


@_BOTH_KINDS
@pytest.mark.parametrize("kind", ["server", "tenant"])
def test_a_sweep_reads_what_it_deletes_in_a_process_that_has_marked_elsewhere(
    spark: SparkSession,
    moving: Moving,
    store_in_s3: StoreInS3,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small: bool,
    kind: str,
) -> None:
    """An installation moves between a mark and its sweep: only the new store shows what was imported since."""
    of_lakefs: list[ObjectStore] = []

    def noted(location: StoreLocation) -> ObjectStore:
        of_lakefs.append(open_store(location))
        return of_lakefs[-1]

    monkeypatch.setattr("lakefs_gc.sandbox.data.namespaces.open_store", noted)
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        repository, other = lake.repository(), lake.repository("other")
        for number in range(20):
            other.put(f"file-{number}")
            other.commit()
        collector, garbage = mark_garbage(spark, repository)
        mark = collector.collect_and_mark()
        assert marked(repository, mark) == {garbage}
        moving.fill_copy()
        moving.move(kind)
        for store in of_lakefs:
            store._s3._clients.clear()  # type: ignore[attr-defined]  # the server starts again
        monkeypatch.setattr("lakefs_gc.storage.s3.shared_clients._recent", {})
        other.stage("imported", repository.namespace + garbage, size_bytes=5)
        other.commit()
        collector.sweep(mark)
        assert collector.swept == {garbage: "resurrected"}
        assert other.read("imported") == b"stray"


@pytest.mark.executors
@pytest.mark.long(20)
def test_a_machine_that_reads_an_old_copy_ends_the_look(
    spark: SparkSession, moving: Moving, in_s3: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No list of the metadata there has what another repository has imported since."""
    other = in_s3.lake.repository("other")
    collector, garbage = mark_garbage(spark, in_s3)
    mark = collector.collect_and_mark()
    moving.fill_copy()
    other.stage("imported", in_s3.namespace + garbage, size_bytes=5)
    other.commit()
    look = collector.second_look(collector.begin(), mark)

    def on_that_machine(objects: DataFrame) -> DataFrame:
        with monkeypatch.context() as patch:
            patch.setitem(spark.sparkContext.environment, "AWS_ACCESS_KEY_ID", "tenant-2")
            patch.setitem(spark.sparkContext.environment, "AWS_SECRET_ACCESS_KEY", "secret")
            found = look(objects).persist()
            found.count()
            return found

    with pytest.raises(StorageError, match="finds another store at s3://bucket/lakes/"):
        collector.sweep(mark, look=on_that_machine, small=False)
    assert other.read("imported") == b"stray"


@_BOTH_KINDS
def test_a_store_that_is_another_one_during_a_look_ends_it(
    spark: SparkSession, store_in_s3: StoreInS3, in_s3: LakeRepository, small: bool
) -> None:
    """A service fails over to its standby, and back before the deletes. The standby lacks what was written last."""
    server, other = store_in_s3.server, in_s3.lake.repository("other")
    other.put("first")
    other.commit()
    collector, garbage = mark_garbage(spark, in_s3)
    mark = collector.collect_and_mark()
    has_failed_over = False
    with LevelledS3() as standby:
        standby.objects.update(server.objects)
        standby.written_at.update(server.written_at)
        other.stage("imported", in_s3.namespace + garbage, size_bytes=5)
        other.commit()
        look = collector.second_look(collector.begin(), mark)
        server.faults.append(lambda request: standby.right_answer(request) if has_failed_over else None)

        def during_a_failover(objects: DataFrame) -> DataFrame:
            nonlocal has_failed_over
            has_failed_over = True
            try:
                found = look(objects).persist()
                found.count()
            finally:
                has_failed_over = False
            return found

        with pytest.raises(StorageError, match="finds another store at s3://bucket/lakes/"):
            collector.sweep(mark, look=during_a_failover, small=small)
    assert other.read("imported") == b"stray"


@pytest.mark.executors
@pytest.mark.long(20)
def test_a_machine_with_the_ledger_of_another_store_ends_the_sweep(
    spark: SparkSession, moving: Moving, in_s3: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the same mark was swept: nothing would be left to look at, and everything would count as deleted."""
    collector, garbage = mark_garbage(spark, in_s3)
    mark = collector.collect_and_mark()
    moving.fill_copy()
    collector.sweep(mark, small=False)
    assert collector.swept == {garbage: "deleted"}
    moving.be("tenant-2")
    monkeypatch.setattr("lakefs_gc.storage.s3.shared_clients._recent", {})
    environment = spark.sparkContext.environment
    monkeypatch.setitem(environment, "AWS_ACCESS_KEY_ID", "tenant-1")  # as that of the machine still is
    monkeypatch.setitem(environment, "AWS_SECRET_ACCESS_KEY", "secret")
    with pytest.raises(StorageError, match="finds another store at s3://bucket/lakes/"):
        Collector(spark, in_s3).sweep(mark, small=False)


def replicate(moving: Moving) -> None:
    """Copy what the first server has, and not what it deletes, to the second one from now on."""
    replicated = set[str]()

    def copy(request: Request) -> None:
        if "Credential=tenant-2/" in request.headers["authorization"]:
            for key in moving.server.objects.keys() - replicated:
                moving.copy.objects[key] = moving.server.objects[key]
                moving.copy.written_at[key] = moving.server.written_at[key]
                replicated.add(key)

    moving.server.faults.insert(0, copy)


def test_a_process_that_gets_to_a_replica_of_the_store_deletes_nothing(
    spark: SparkSession, moving: Moving, in_s3: LakeRepository
) -> None:
    """The new client of the deletes sees there what the run has written. Nobody has read the references there."""
    collector, garbage = mark_garbage(spark, in_s3)
    replicate(moving)
    with pytest.raises(StorageError, match="of which it may be a replica"):
        sweep_and_move(collector, moving, "tenant", small=True)
    assert any(key.endswith(garbage) for key in moving.copy.objects)
    assert not deletes_of_objects(moving.copy)


@pytest.mark.executors
@pytest.mark.long(20)
def test_machines_with_a_replica_of_the_store_delete_nothing(
    spark: SparkSession, moving: Moving, in_s3: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They see what the process of the run writes, and it sees nothing of theirs: nobody has read their references."""
    collector, garbage = mark_garbage(spark, in_s3)
    mark = collector.collect_and_mark()
    replicate(moving)
    environment = spark.sparkContext.environment
    monkeypatch.setitem(environment, "AWS_ACCESS_KEY_ID", "tenant-2")
    monkeypatch.setitem(environment, "AWS_SECRET_ACCESS_KEY", "secret")
    with pytest.raises(StorageError, match="workers write to another store than s3://bucket/lakes/"):
        collector.sweep(mark, small=False)
    assert any(key.endswith(garbage) for key in moving.copy.objects)
    assert any(key.endswith(garbage) for key in moving.server.objects)


def test_a_link_that_is_turned_between_deletes_ends_the_sweep(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads from a copy of an installation to the original, in which an object of the mark is live."""
    with Lake(tmp_path / "original") as original:
        repository = original.repository()
        shutil.copytree(tmp_path / "original", tmp_path / "copy")
        live = repository.put("live")
        garbage = repository.put_stray("data/a/garbage")
        objects = {name: tmp_path / name / "objects" for name in ("copy", "original")}
        shutil.copytree(objects["original"], objects["copy"], dirs_exist_ok=True)
        link = tmp_path / "link"
        link.symlink_to(objects["copy"])
        with Lake(tmp_path / "copy") as lake:
            settings = lake.settings.model_copy(update={"mounts": {"local://": f"{link.as_uri()}/"}})
            of_copy = LakeRepository(lake, repository.name, repository.namespace)
            collector = Collector(spark, of_copy, settings=settings)
            mark = collector.collect_and_mark()
            assert marked(of_copy, mark) == {garbage, live}
            delete_chunk = deletion._delete_chunk

            def then_turned(*arguments: Any) -> bool:
                is_done = delete_chunk(*arguments)
                link.unlink(missing_ok=True)
                link.symlink_to(objects["original"])
                return is_done

            monkeypatch.setattr(deletion, "_delete_chunk", then_turned)
            with pytest.raises(StorageError, match="finds another store at file:///"):
                collector.sweep(mark, objects_per_request=1, requests_at_once=1)
        assert repository.read("live") == b"live"
        assert {garbage, live} <= repository.objects()


def test_no_stage_goes_on_with_another_server_than_its_run_began_with(
    spark: SparkSession, moving: Moving, in_s3: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefs_gc.storage.s3.shared_clients._SHARED_SECONDS", 0)
    collector, _ = mark_garbage(spark, in_s3)
    collector.collect(until="store_listing")
    listing = collector.manifest("store_listing")
    assert continue_run(collector.context, listing) == collector.run
    moving.fill_copy()
    moving.move("server")
    with pytest.raises(ConfigurationError, match="This run began to send the requests about S3 to"):
        continue_run(collector.context, listing)
    collector.collect(until="store_listing")
    continue_run(collector.context, collector.manifest("store_listing"))
