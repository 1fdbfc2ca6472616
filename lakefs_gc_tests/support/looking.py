"""A look at an object that a branch gets after the mark, on a server whose lists may be old for a while."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.decide.shown import hidden_twins
from lakefs_gc.lakefs.models import PreparedCommits
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.denied_branch import DenyingClient
from lakefs_gc_tests.support.lake import LakeRepository

CONTENT = "x" * 100
CHECKSUM = hashlib.md5(CONTENT.encode()).hexdigest()


class Behind(DenyingClient):
    """A replica that is behind while it has an old list of active commits: ``late`` is at ``head``, or not there."""

    old: PreparedCommits | None = None
    head = ""

    def branch_heads(self, repository: str) -> Iterator[tuple[str, str]]:
        for name, commit_id in super().branch_heads(repository):
            if name != "late" or self.old is None:
                yield name, commit_id
            elif self.head:
                yield name, self.head

    def prepare_commits(self, repository: str, *, timeout_seconds: float) -> PreparedCommits:
        return self.old or super().prepare_commits(repository, timeout_seconds=timeout_seconds)


class Looking:
    """A marked object that ``late`` gets then, in a commit before its head or as a hidden twin of it."""

    def __init__(self, spark: SparkSession, repository: LakeRepository, patch: pytest.MonkeyPatch) -> None:
        self.repository, self.patch = repository, patch
        repository.put("hidden", CONTENT)
        repository.put("a")
        repository.commit()
        repository.keep_days(10, late=100)
        self.key = repository.put_stray("data/s/object", CONTENT.encode())
        self.garbage = repository.put_stray("data/s/garbage", b"garbage")
        self.server = Behind(repository, "late")
        self.collector = Collector(spark, repository, server=self.server)
        self.mark = self.collector.collect_and_mark()
        assert marked(repository, self.mark) == {self.key, self.garbage}

    def stage(self, path: str, branch: str = "main") -> None:
        self.repository.stage(path, self.key, branch=branch, size_bytes=len(CONTENT), checksum=CHECKSUM)

    def be_behind(self, *, head: str = "") -> None:
        """From now on the server is as it would be now, or where ``late`` is at ``head``."""
        self.server.head, self.server.old = head, self.server.prepare_commits("lake", timeout_seconds=60)

    def first_commit(self) -> str:
        self.repository.branch("late")
        self.repository.put("z", branch="late")
        return self.repository.commit(branch="late", age_days=40)

    def commit_and_delete(self, age_days: int = 20) -> str:
        """Have it in a commit of ``late`` before its head. Returns the head, which is so old."""
        self.stage("p", "late")
        self.repository.commit(branch="late", age_days=age_days + 1)
        self.repository.delete("p", branch="late")
        return self.repository.commit(branch="late", age_days=age_days)

    def hide(self) -> None:
        """Have it as a hidden twin of the head of ``late``."""
        self.repository.put("q", CONTENT, branch="late")
        self.repository.commit(branch="late")
        self.stage("q", "late")

    def move(self) -> None:
        """Let it be a hidden twin of another branch, and delete ``late``."""
        self.stage("hidden")
        self.repository.delete_branch("late")

    def around(self, what: object, name: str, before: Callable[[], object], after: Callable[[], object]) -> None:
        """Do this before and after the first call of a function."""
        called, calls = getattr(what, name), list[int]()

        def calling(*arguments: Any, **options: Any) -> Any:
            calls.append(1)
            if len(calls) > 1:
                return called(*arguments, **options)
            before()
            answer = called(*arguments, **options)
            after()
            return answer

        self.patch.setattr(what, name, calling)

    def catch_up_for_list(self, number: int) -> None:
        """From now on, only this list of branches is not old."""
        old, listed, lists = self.server.old, self.server.branch_heads, list[int]()

        def heads(repository: str) -> Iterator[tuple[str, str]]:
            lists.append(1)
            self.server.old = None if len(lists) == number else old
            answer = list(listed(repository))
            self.server.old = old
            return iter(answer)

        self.patch.setattr(self.server, "branch_heads", heads)

    def move_after_second_lookups(self) -> None:
        self.around(hidden_twins.TwinPaths, "look_up_again", nothing, self.move)

    def catch_up(self) -> None:
        self.server.old = None

    def sweep(self) -> None:
        self.collector.sweep(self.mark)
        assert self.collector.swept == {self.key: "resurrected", self.garbage: "deleted"}


def nothing() -> None:
    """Do nothing."""
