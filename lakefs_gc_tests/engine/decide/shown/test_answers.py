"""What a branch shows is kept, whatever was stated of it; and what a lookup does not show may be any object."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.collect.references import uncommitted
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import Change
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.lake import LakeRepository

CONTENT = b"x" * 100


class NotUTF8(LakeFSClient):
    """Shows the path ``odd`` as a server shows one that goes on with a byte that is not UTF-8."""

    def changes(self, repository: str, branch: str) -> Iterator[Change]:
        for change in super().changes(repository, branch):
            yield replace(change, path="odd\N{REPLACEMENT CHARACTER}") if change.path == "odd" else change


def with_garbage(repository: LakeRepository) -> tuple[str, str]:
    """Return the keys of two objects that nothing refers to, in a repository with another staged object."""
    repository.put("p", "y" * 100)
    repository.commit()
    repository.keep_days(10)
    repository.put("b")
    return repository.put_stray("data/s/object", CONTENT), repository.put_stray("data/s/garbage", b"z" * 55)


@pytest.mark.of_ci("-100", "-3", "staged-100", "committed-3")
@pytest.mark.parametrize("stated_bytes", [100, 3])
@pytest.mark.parametrize("another", ["", "staged", "committed"])
def test_a_staged_path_that_the_api_cannot_name(
    spark: SparkSession,
    repository: LakeRepository,
    monkeypatch: pytest.MonkeyPatch,
    stated_bytes: int,
    another: str,
) -> None:
    """The list omits it. Another object may really be at the path that the server shows in its place."""
    if another == "committed":
        repository.put("odd\N{REPLACEMENT CHARACTER}", "another")
    key, garbage = with_garbage(repository)
    collector = Collector(spark, repository, server=NotUTF8(repository.lake.credentials))
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {key, garbage}
    repository.stage("odd", key, size_bytes=stated_bytes)
    if another == "staged":
        repository.put("odd\N{REPLACEMENT CHARACTER}", "another")
    monkeypatch.setattr(uncommitted, "_files", lambda *_: [])
    collector.sweep(mark)
    assert key in repository.objects()
    # Such a path is no reason to keep garbage if nothing is omitted.
    monkeypatch.undo()
    repository.stage("linked", key, size_bytes=len(CONTENT))
    collector.sweep(mark)
    assert (key in repository.objects(), garbage in repository.objects()) == (True, False)


def test_a_staged_path_that_has_this_character(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a valid one, and its object is the one that the server shows."""
    key, garbage = with_garbage(repository)
    repository.put("na\N{REPLACEMENT CHARACTER}ve", "staged")
    repository.stage("imported", "local://elsewhere/x", size_bytes=77)  # in no list, so the numbers differ
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {key, garbage}
    repository.stage("of\N{REPLACEMENT CHARACTER}", key)
    monkeypatch.setattr(uncommitted, "_files", lambda *_: [])
    collector.sweep(mark)
    assert collector.swept == {key: "resurrected", garbage: "deleted"}


def test_what_a_path_shows_is_kept_whatever_its_size(spark: SparkSession, repository: LakeRepository) -> None:
    """The path is looked up because garbage has its size. Its staged entry states the size of the committed object."""
    key, garbage = with_garbage(repository)
    same_size = repository.put_stray("data/s/same-size", b"g" * 100)
    small = repository.put_stray("data/s/small", b"s" * 50)
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {key, garbage, same_size, small}
    repository.stage("p", small, size_bytes=100, checksum=hashlib.md5(b"y" * 100).hexdigest())
    collector.sweep(mark)
    assert collector.swept == {key: "deleted", garbage: "deleted", same_size: "deleted", small: "resurrected"}
