"""An answer of the store about another object is not taken for one about the object that was asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.sweep.at_mark import Accepted
from lakefs_gc.engine.sweep.client_marks import ClientMarkChecks
from lakefs_gc.engine.sweep.second_look import second_look_at
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import CorruptFileError, InputOrderError
from lakefs_gc.formats.uncommitted_parquet import UNCOMMITTED_FILE_SCHEMA, write_uncommitted
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.client_marks import UNIFIED, write_client_mark
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.faulty_s3 import Answer, FaultyS3, Request
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import LakeRepository


@pytest.mark.parametrize("is_wrong", [False, True])
@pytest.mark.parametrize("is_busy", [False, True])
def test_the_md5_of_another_object(
    spark: SparkSession,
    in_s3: LakeRepository,
    store_in_s3: StoreInS3,
    monkeypatch: pytest.MonkeyPatch,
    is_wrong: bool,
    is_busy: bool,
) -> None:
    """It decides which paths are looked up where they are many. The answer to a HEAD does not say what it is about."""
    repository, server = in_s3, store_in_s3.server
    key, other, content = "data/s/x", "data/s/y", b"x" * 4321
    repository.keep_days(1)
    for number in range(14):
        repository.put(f"p{number}", f"{number:02}".ljust(len(content), "y"))
    repository.put("hidden", content.decode())
    repository.commit()
    repository.put_stray(key, content)
    repository.put_stray(other, b"garbage of another size")
    is_shown, heads = False, 0

    def with_md5(request: Request) -> Answer | None:
        nonlocal heads
        if request.operation != "HeadObject" or request.keys[0] not in server.objects:
            return None
        of = request.keys[0]
        if is_shown and of.endswith(key):
            heads += 1
            if is_wrong and heads == 1:
                of = of.removesuffix(key) + other
        answer = server.right_answer(replace(request, keys=(of,)))
        md5 = hashlib.md5(server.objects[of]).hexdigest()
        return replace(answer, headers=answer.headers | {"ETag": f'"{md5}"'})

    server.faults.append(with_md5)
    safety = repository.lake.settings.safety.model_copy(update={"max_twin_lookups": 1})
    collector = Collector(spark, repository, safety=safety)
    collector.collect()
    mark = collector.mark()
    assert key in marked(repository, mark)
    repository.stage("hidden", key, size_bytes=len(content), checksum=hashlib.md5(content).hexdigest())
    is_shown = True
    list_branches = LakeFSClient.branch_heads

    def meanwhile(server: LakeFSClient, name: str) -> Iterator[tuple[str, str]]:
        repository.branch(f"new-{next(numbers)}")
        return list_branches(server, name)

    numbers = count()
    if is_busy:  # a look searches more than once, and asks once
        monkeypatch.setattr(LakeFSClient, "branch_heads", meanwhile)
    collector.sweep(mark)
    assert heads == 3, "two in the look, one right before the delete"
    assert collector.swept[key] == "resurrected"
    assert collector.swept[other] == "deleted"


@pytest.fixture
def imported(in_s3: LakeRepository) -> LakeRepository:
    """A repository with garbage, and another one, in which that can be imported. The workspace is in the same store."""
    in_s3.put("a")
    in_s3.commit()
    in_s3.keep_days(1)
    in_s3.put_stray("data/s/imported")
    return in_s3


def import_in_other(repository: LakeRepository, other: LakeRepository) -> None:
    other.stage("imported", f"{repository.namespace}data/s/imported")
    other.commit()


def collector_of(spark: SparkSession, repository: LakeRepository) -> Collector:
    settings = repository.lake.settings.model_copy(update={"work_url": "s3://bucket/work"})
    return Collector(spark, repository, settings=settings)


@pytest.mark.parametrize("when", ["at the mark", "at the look"])
def test_the_manifest_of_another_stage(
    spark: SparkSession, imported: LakeRepository, store_in_s3: StoreInS3, when: str
) -> None:
    """It has no rows. So no file of the other repository would be read, and all of them would count as read."""
    server, other = store_in_s3.server, imported.lake.repository("other")
    other.put("own")
    other.commit()
    collector = collector_of(spark, imported)
    spoiled = False

    def fault(request: Request) -> Answer | None:
        nonlocal spoiled
        wrong = "/foreign_files/manifest.json" if when == "at the mark" else "/look_1_foreign_files/manifest.json"
        if request.operation != "GetObject" or spoiled or not request.keys[0].endswith(wrong):
            return None
        spoiled = True
        contents = (content for key, content in server.objects.items() if key.endswith("/uncommitted/manifest.json"))
        return Answer(body=next(content for content in contents if json.loads(content)["rows"] == 0))

    server.faults.append(fault)
    message = "this is the manifest of stage uncommitted of run"
    if when == "at the mark":
        import_in_other(imported, other)
        with pytest.raises(CorruptFileError, match=message):
            collector.collect_and_mark()
        assert marked(imported, collector.collect_and_mark()) == set()
        return
    mark = collector.collect_and_mark()
    assert marked(imported, mark) == {"data/s/imported"}
    import_in_other(imported, other)
    with pytest.raises(CorruptFileError, match=message):
        collector.sweep(mark)
    collector.sweep(mark)
    assert collector.swept["data/s/imported"] == "resurrected"


@pytest.mark.parametrize("number", [1, 2])
def test_an_old_manifest_of_a_look(
    spark: SparkSession, imported: LakeRepository, store_in_s3: StoreInS3, number: int
) -> None:
    """A cache has it from a sweep that ended before it deleted anything, and gives it as the first or second answer."""
    server, collector = store_in_s3.server, collector_of(spark, imported)
    mark = collector.collect_and_mark()
    look = collector.second_look(collector.begin(), mark)
    look(collector.dataset("candidates").dataframe.select("address", "size"))
    ending = "/look_1_foreign_files/manifest.json"
    [(key, old)] = [(key, content) for key, content in server.objects.items() if key.endswith(ending)]
    import_in_other(imported, imported.lake.repository("other"))
    asked = count(1)

    def fault(request: Request) -> Answer | None:
        is_asked = request.operation == "GetObject" and request.keys[0] == key
        return Answer(body=old) if is_asked and next(asked) == number else None

    server.faults.append(fault)
    with pytest.raises(InputOrderError, match="look_1_foreign_files of run"):
        collector.sweep(mark)
    assert next(asked) == number + 1
    collector.sweep(mark)
    assert collector.swept["data/s/imported"] == "resurrected"


@pytest.mark.parametrize("is_wrong", [False, True])
def test_the_size_of_another_marked_object(
    spark: SparkSession, in_s3: LakeRepository, store_in_s3: StoreInS3, is_wrong: bool
) -> None:
    """A mark of lakeFS's own client has no sizes, and a hidden twin is searched by its size."""
    repository, server = in_s3, store_in_s3.server
    twin, other, content = "data/s/x", "data/s/y", b"x" * 4321
    repository.put("hidden", content.decode())
    repository.commit()
    repository.put_stray(twin, content)
    repository.put_stray(other, b"garbage of another size")
    write_client_mark(repository.store, UNIFIED, [twin, other], cutoff=utc_now() - timedelta(hours=24))
    collector = Collector(spark, repository)
    mark, run = collector.read_mark("m1"), collector.begin()
    found = ClientMarkChecks(collector.context).evaluate(run, mark, Accepted.of(mark, ()))
    assert found.any_size is None
    committed = repository.lake.client.objects_api.stat_object(repository.name, "main", "hidden")
    repository.stage("hidden", twin, size_bytes=len(content), checksum=committed.checksum)
    answer_once(server, twin, other if is_wrong else twin)
    look = second_look_at(collector.context, run, mark, found.accepted, found.any_size)
    collector.sweep(mark, look=look)
    assert collector.swept == {twin: "resurrected", other: "deleted"}


def answer_once(server: FaultyS3, key: str, other: str) -> None:
    """Answer the next HEAD of one object about another one."""
    left = [other]

    def of_another(request: Request) -> Answer | None:
        if request.operation != "HeadObject" or not request.keys[0].endswith(key) or not left:
            return None
        return server.right_answer(replace(request, keys=(request.keys[0].removesuffix(key) + left.pop(),)))

    server.faults.append(of_another)


@pytest.mark.parametrize("is_wrong", [False, True])
def test_the_size_of_another_committed_object(
    spark: SparkSession, in_s3: LakeRepository, store_in_s3: StoreInS3, is_wrong: bool
) -> None:
    """The mark records which entries state a wrong size, because such a path may hide an object of any size."""
    repository = in_s3
    one, two = repository.put_stray("imported/one", b"12345"), repository.put_stray("imported/two", b"z" * 100)
    repository.stage("p", one, size_bytes=100, checksum="c")
    repository.stage("q", two, size_bytes=100)
    repository.commit()
    twin, garbage = repository.put_stray("data/s/x", b"7654321"), repository.put_stray("data/s/y", b"garbage")
    answer_once(store_in_s3.server, one, two if is_wrong else one)
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {twin, garbage}
    repository.stage("p", twin, size_bytes=100, checksum="c")
    collector.sweep(mark)
    assert collector.swept == {twin: "resurrected", garbage: "deleted"}


def test_the_list_of_an_earlier_run(spark: SparkSession, in_s3: LakeRepository, store_in_s3: StoreInS3) -> None:
    """The server's lists of staged addresses may have the same length."""
    repository, server = in_s3, store_in_s3.server
    repository.put("a")
    repository.commit()
    repository.keep_days(1)
    staged, garbage = repository.put_stray("data/s/1234567890abcde"), repository.put_stray("data/s/edcba0987654321")
    repository.stage("p", staged)
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {garbage}
    [at_mark] = lists_in(server)
    repository.delete("p")
    repository.stage("p", garbage, size_bytes=7)  # the client states another size
    spoiled: list[str] = []

    def earlier(request: Request) -> Answer | None:
        [key] = request.keys if request.operation == "GetObject" else [""]
        if key not in lists_in(server) or key == at_mark or "range" in request.headers or spoiled:
            return None
        spoiled.append(key)
        return Answer(body=list_of(staged, len(server.objects[key])), headers={"ETag": '"e"'})

    server.faults.append(earlier)
    with pytest.raises(CorruptFileError, match="it was read twice, with different content"):
        collector.sweep(mark)
    assert spoiled
    collector.sweep(mark)
    assert collector.swept == {garbage: "resurrected"}


def list_of(address: str, size_bytes: int) -> bytes:
    """Return a list of the server with one address. It is compressed, so its length depends on the date in it."""
    dates = range(1_700_000_000, 1_700_100_000)
    rows = ({"physical_address": [address], "creation_date": [date]} for date in dates)
    lists = (write_uncommitted(pa.RecordBatch.from_pydict(row, schema=UNCOMMITTED_FILE_SCHEMA)) for row in rows)
    return next(content for content in lists if len(content) == size_bytes)


def lists_in(server: FaultyS3) -> dict[str, bytes]:
    """Return the files of the server's lists of staged addresses."""
    return {
        key: content
        for key, content in server.objects.items()
        if "/retention/gc/uncommitted/" in key and "/uncommitted/" in key.partition("/retention/gc/uncommitted/")[2]
    }
