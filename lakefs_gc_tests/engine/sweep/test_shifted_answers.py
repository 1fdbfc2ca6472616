"""The store answers each HEAD as the one before it: a surplus answer on a connection, e.g. of a proxy.

An object between two of one content gets the same wrong answer in either order. Others do not.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.sweep.at_mark import Accepted
from lakefs_gc.engine.sweep.client_marks import ClientMarkChecks
from lakefs_gc.engine.sweep.second_look import second_look_at
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc_tests.support.client_marks import UNIFIED, write_client_mark
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.faulty_s3 import Answer, FaultyS3, Request
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import LakeRepository

CONTENT = b"x" * 4321
AROUND = [f"{letter}{number}" for letter in "az" for number in range(20)]
"""Names around ``m``."""


class _Before(threading.local):
    """What was asked for on this connection: the server has a thread for each."""

    def __init__(self) -> None:
        self.keys: list[str] = []


def answer_heads(server: FaultyS3, folder: str, *, shifted: str = "") -> None:
    """From now on each HEAD has an MD5.

    Below ``folder`` it is about the HEAD before it, of ``all`` connections or of each one, if that is ``shifted``.
    """
    of_all, of_each = list[str](), _Before()

    def fault(request: Request) -> Answer | None:
        if request.operation != "HeadObject":
            return None
        key, before = request.keys[0], of_all if shifted == "all" else of_each.keys
        if shifted and folder in key:
            with server.lock:
                before.append(key)
                key = before[-2] if len(before) > 1 else key
        answer = server.right_answer(replace(request, keys=(key,)))
        if key not in server.objects:
            return answer
        return replace(answer, headers=answer.headers | {"ETag": f'"{hashlib.md5(server.objects[key]).hexdigest()}"'})

    server.faults[:] = [fault]


@pytest.mark.parametrize("shifted", ["", "all", "each connection"])
def test_md5s_of_marked_objects(
    spark: SparkSession, in_s3: LakeRepository, store_in_s3: StoreInS3, shifted: str
) -> None:
    repository, server = in_s3, store_in_s3.server
    repository.keep_days(1)
    for number in range(14):
        repository.put(f"p{number}", f"{number:02}".ljust(len(CONTENT), "y"))
    repository.put("hidden", CONTENT.decode())
    repository.commit()
    twin = repository.put_stray("data/s/m", CONTENT)
    others = [repository.put_stray(f"data/s/{name}", b"g" * len(CONTENT)) for name in AROUND]
    safety = repository.lake.settings.safety.model_copy(update={"max_twin_lookups": 1})
    collector = Collector(spark, repository, safety=safety)
    answer_heads(server, "/data/s/")
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {twin, *others}
    repository.stage("hidden", twin, size_bytes=len(CONTENT), checksum=hashlib.md5(CONTENT).hexdigest())
    answer_heads(server, "/data/s/", shifted=shifted)
    collector.sweep(mark)
    assert collector.swept[twin] == "resurrected"
    # If the same object gets the MD5 of the twin in both orders, that one leads to the path, which shows the twin.
    assert shifted or {collector.swept[other] for other in others} == {"deleted"}


@pytest.mark.parametrize("shifted", ["", "all", "each connection"])
def test_sizes_of_marked_objects(
    spark: SparkSession, in_s3: LakeRepository, store_in_s3: StoreInS3, shifted: str
) -> None:
    """A mark of lakeFS's own client has none."""
    repository, server = in_s3, store_in_s3.server
    repository.put("hidden", CONTENT.decode())
    repository.commit()
    twin = repository.put_stray("data/s/m", CONTENT)
    others = [repository.put_stray(f"data/s/{name}", b"of another size") for name in AROUND]
    write_client_mark(repository.store, UNIFIED, [twin, *others], cutoff=utc_now() - timedelta(hours=24))
    collector = Collector(spark, repository)
    mark, run = collector.read_mark("m1"), collector.begin()
    found = ClientMarkChecks(collector.context).evaluate(run, mark, Accepted.of(mark, ()))
    assert found.any_size is None
    committed = repository.lake.client.objects_api.stat_object(repository.name, "main", "hidden")
    repository.stage("hidden", twin, size_bytes=len(CONTENT), checksum=committed.checksum)
    answer_heads(server, "/data/s/", shifted=shifted)
    collector.sweep(mark, look=second_look_at(collector.context, run, mark, found.accepted, found.any_size))
    assert collector.swept[twin] == "resurrected"
    assert shifted or {collector.swept[other] for other in others} == {"deleted"}


@pytest.mark.parametrize("shifted", ["", "all", "each connection"])
def test_sizes_of_committed_objects(
    spark: SparkSession, in_s3: LakeRepository, store_in_s3: StoreInS3, shifted: str
) -> None:
    """An entry states a wrong size. The listing lacks the objects, and imports of that size are around it."""
    repository, server = in_s3, store_in_s3.server
    repository.stage("p", repository.put_stray("imported/m", b"12345"), size_bytes=100, checksum="c")
    for name in AROUND:
        repository.stage(f"q{name}", repository.put_stray(f"imported/{name}", b"z" * 100), size_bytes=100)
    repository.commit()
    twin, garbage = repository.put_stray("data/s/x", b"7654321"), repository.put_stray("data/s/y", b"garbage")
    collector = Collector(spark, repository)
    answer_heads(server, "/imported/", shifted=shifted)
    mark = collector.collect_and_mark()
    server.faults.clear()
    assert marked(repository, mark) == {twin, garbage}
    repository.stage("p", twin, size_bytes=100, checksum="c")
    collector.sweep(mark)
    assert collector.swept == {twin: "resurrected", garbage: "deleted"}


@pytest.mark.parametrize("number", [1, 2])
def test_a_body_that_breaks_once_is_read_again(
    spark: SparkSession, in_s3: LakeRepository, store_in_s3: StoreInS3, number: int
) -> None:
    """A page of the uncommitted list is read twice, and either may be on a connection that breaks."""
    repository, server = in_s3, store_in_s3.server
    repository.put("a")
    repository.commit()
    repository.put("b")
    garbage, reads = repository.put_stray("data/s/x"), list[str]()

    def fault(request: Request) -> Answer | None:
        is_page = request.operation == "GetObject" and "/gc/uncommitted/" in request.keys[0]
        if not is_page or "range" in request.headers:
            return None
        reads.append(request.keys[0])
        return replace(server.right_answer(request), cut_at=20) if len(reads) == number else None

    server.faults.append(fault)
    collector = Collector(spark, repository)
    assert marked(repository, collector.collect_and_mark()) == {garbage}
    assert len(reads) > number
