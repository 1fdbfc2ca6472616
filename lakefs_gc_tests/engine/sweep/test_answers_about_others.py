"""An answer of the store about another object is not taken for one about the object that was asked for."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.faulty_s3 import Answer, Request
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import LakeRepository


@pytest.mark.parametrize("is_wrong", [False, True])
def test_the_md5_of_another_object(
    spark: SparkSession, in_s3: LakeRepository, store_in_s3: StoreInS3, is_wrong: bool
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
    collector.sweep(mark)
    assert heads >= 2
    assert collector.swept[key] == "resurrected"
    assert collector.swept[other] == "deleted"
