"""Where many paths may show an object, its MD5 tells which: that of its content, not what looks alike."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.decide.shown import contents
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.faulty_s3 import Answer, Request
from lakefs_gc_tests.support.faulty_store import LevelledS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository

_MOST = 3
_SHIELDED, _SHOWN = "shielded", "shown_by_a_branch"

pytestmark = pytest.mark.usefixtures("few_paths")


@pytest.fixture
def in_s3(levelled_s3: LevelledS3, tmp_path: Path) -> Iterator[LakeRepository]:
    with Lake(tmp_path / "lake", StoreLocation("s3://bucket/lakes/")) as lake:
        repository = lake.repository()
        for number in range(4):
            repository.put(f"other/{number}", f"other{number}")
        repository.put("p", "123456")
        repository.commit()
        repository.keep_days(10)
        yield repository


def collected(spark: SparkSession, repository: LakeRepository) -> tuple[set[str], dict[str, str]]:
    """Return the candidates, and why other objects are kept."""
    safety = SafetyParameters(max_twin_lookups=_MOST, longest_commit_minutes=0)
    collector = Collector(spark, repository, safety=safety)
    collector.collect()
    rows = collector.dataset("kept").dataframe.collect()
    return collector.addresses("candidates"), {row["address"]: row["why"] for row in rows}


def states_md5s(server: LevelledS3, stored: Callable[[bytes], bytes] = bytes) -> None:
    """Have the server state the MD5 of each object, as it has ``stored`` the content."""

    def state(request: Request) -> Answer | None:
        answer = server.right_answer(request)
        if "ETag" not in answer.headers or not request.keys:
            return answer
        stated = hashlib.md5(stored(server.objects[request.keys[0]])).hexdigest()
        return replace(answer, headers={**answer.headers, "ETag": f'"{stated}"'})

    server.faults.append(state)


def test_a_twin_is_told_by_its_md5(spark: SparkSession, in_s3: LakeRepository, levelled_s3: LevelledS3) -> None:
    states_md5s(levelled_s3)
    twin, garbage = in_s3.put("p", "123456"), in_s3.put_stray("data/s/garbage", b"654321")
    assert collected(spark, in_s3) == ({garbage}, {twin: _SHOWN})


@pytest.mark.parametrize("largest_read_bytes", [contents._LARGEST_READ_BYTES, 1], ids=["small", "large"])
def test_what_only_looks_like_an_md5_tells_nothing(
    spark: SparkSession,
    in_s3: LakeRepository,
    levelled_s3: LevelledS3,
    monkeypatch: pytest.MonkeyPatch,
    largest_read_bytes: int,
) -> None:
    """As where a proxy encrypts: the ETag is the MD5 of what the store has."""
    monkeypatch.setattr(contents, "_LARGEST_READ_BYTES", largest_read_bytes)
    twin, garbage = in_s3.put("p", "123456"), in_s3.put_stray("data/s/garbage", b"654321")
    of_other_size = in_s3.put_stray("data/s/long", b"longer than any path")
    states_md5s(levelled_s3, lambda content: content[::-1])
    assert collected(spark, in_s3) == ({of_other_size}, dict.fromkeys((twin, garbage), _SHIELDED))


def test_the_sample_is_of_all_objects(
    spark: SparkSession, in_s3: LakeRepository, levelled_s3: LevelledS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may have some objects as they are, and others encrypted."""
    monkeypatch.setattr(contents, "_OBJECTS_READ", 4)
    plain = {in_s3.put_stray(f"data/a/{number}", b"65432%d" % number) for number in range(4)}
    encrypted = {in_s3.put_stray(f"data/b/{number}", b"secret") for number in range(3)}
    states_md5s(levelled_s3, lambda content: content[::-1] if content == b"secret" else content)
    assert collected(spark, in_s3) == (set(), dict.fromkeys(plain | encrypted, _SHIELDED))


def test_md5s_of_objects_that_cannot_be_read_any_more_tell_nothing(
    spark: SparkSession, in_s3: LakeRepository, levelled_s3: LevelledS3
) -> None:
    twin, garbage = in_s3.put("p", "123456"), in_s3.put_stray("data/s/garbage", b"654321")
    states_md5s(levelled_s3)

    def gone(request: Request) -> Answer | None:
        is_object = request.operation == "GetObject" and request.keys[0].endswith((twin, garbage))
        return Answer(404, b"<Error><Code>NoSuchKey</Code></Error>") if is_object else None

    levelled_s3.faults.insert(0, gone)
    assert collected(spark, in_s3) == (set(), dict.fromkeys((twin, garbage), _SHIELDED))
