"""A branch that the first reading of commits has not seen, and that is deleted before the last one (rules 6 and 12)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.decide.shown import hidden_twins
from lakefs_gc.engine.decide.shown.shown_objects import Shown, find_shown
from lakefs_gc.engine.sweep import second_look
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import PreparedCommits
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.lake import LakeRepository

CONTENT = "x" * 100


class Behind(LakeFSClient):
    """A replica that is behind while it has an old list of active commits: there is no branch ``late``."""

    old: PreparedCommits | None = None

    def branch_heads(self, repository: str) -> Iterator[tuple[str, str]]:
        return (
            (name, commit_id)
            for name, commit_id in super().branch_heads(repository)
            if name != "late" or self.old is None
        )

    def prepare_commits(self, repository: str, *, timeout_seconds: float) -> PreparedCommits:
        return self.old or super().prepare_commits(repository, timeout_seconds=timeout_seconds)


@pytest.mark.parametrize("is_behind", [False, True], ids=["created meanwhile", "not listed at first"])
def test_what_leaves_a_commit_of_a_late_branch_is_kept(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch, is_behind: bool
) -> None:
    """It is in an active commit before the head. It becomes a hidden twin when the paths have been looked up."""
    repository.put("hidden", CONTENT)
    repository.put("a")
    repository.commit()
    repository.keep_days(10, late=100)
    key = repository.put_stray("data/s/object", CONTENT.encode())
    garbage = repository.put_stray("data/s/garbage", b"garbage")
    server = Behind(repository.lake.credentials)
    collector = Collector(spark, repository, server=server)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {key, garbage}
    old = server.prepare_commits("lake", timeout_seconds=60)
    checksum = hashlib.md5(CONTENT.encode()).hexdigest()
    repository.branch("late")
    repository.stage("p", key, branch="late", size_bytes=len(CONTENT), checksum=checksum)
    repository.commit(branch="late", age_days=30)
    repository.delete("p", branch="late")
    head = repository.commit(branch="late", age_days=20)
    if is_behind:
        server.old = old
    else:
        repository.delete_branch("late")
    look_up_again, searches, moves = hidden_twins.TwinPaths.look_up_again, list[int](), list[int]()

    def appearing(*arguments: Any, **options: Any) -> Shown:
        if not searches and not is_behind:
            repository.branch("late", head)
        server.old = None
        searches.append(1)
        return find_shown(*arguments, **options)

    def moving(twins: hidden_twins.TwinPaths, riders: Any) -> None:
        look_up_again(twins, riders)
        if not moves:
            repository.stage("hidden", key, size_bytes=len(CONTENT), checksum=checksum)
            repository.delete_branch("late")
            moves.append(1)

    monkeypatch.setattr(second_look, "find_shown", appearing)
    monkeypatch.setattr(hidden_twins.TwinPaths, "look_up_again", moving)
    collector.sweep(mark)
    assert moves
    assert collector.swept == {key: "resurrected", garbage: "deleted"}
    assert repository.read("hidden") == CONTENT.encode()
