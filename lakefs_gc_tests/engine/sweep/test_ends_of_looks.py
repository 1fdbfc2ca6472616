"""A commit that becomes active near the end of a look, after commits were read again (rule 6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.run import refuse_overlaps
from lakefs_gc.engine.sweep import second_look
from lakefs_gc.engine.sweep.second_look import SecondLook
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.lake import LakeRepository


@dataclass
class Expired:
    """A marked object, and the expired commit that has it."""

    repository: LakeRepository
    key: str
    commit_id: str


@pytest.fixture
def expired(repository: LakeRepository) -> Expired:
    key = repository.put("p", "old")
    commit_id = repository.commit(age_days=100)
    repository.delete("p")
    repository.put("q", "new content")
    repository.commit(age_days=90)
    repository.put("r", "newer content")
    repository.commit(age_days=80)
    other = repository.lake.repository("other")
    other.put("b")
    other.commit()
    repository.keep_days(10)
    return Expired(repository, key, commit_id)


def begin_branch(expired: Expired) -> None:
    expired.repository.branch("late", expired.commit_id)


def keep_longer(expired: Expired) -> None:
    expired.repository.keep_days(1000)


def keep_everything(expired: Expired) -> None:
    expired.repository.keep_everything()


@pytest.mark.parametrize("change", [begin_branch, keep_longer, keep_everything])
@pytest.mark.parametrize("when", ["other repositories are read", "folders are compared"])
def test_what_becomes_active_while(
    spark: SparkSession,
    expired: Expired,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Expired], None],
    when: str,
) -> None:
    collector = Collector(spark, expired.repository)
    mark = collector.collect_and_mark()
    assert marked(expired.repository, mark) == {expired.key}
    read, changes = SecondLook._read_foreign, list[str]()

    def change_once() -> None:
        if not changes:
            changes.append(when)
            change(expired)

    def reading(look: SecondLook, again: str = "") -> Dataset:
        if again == "_again":
            change_once()
        return read(look, again)

    def comparing(*arguments: object) -> None:
        change_once()
        refuse_overlaps(*arguments)  # type: ignore[arg-type]

    if when == "other repositories are read":
        monkeypatch.setattr(SecondLook, "_read_foreign", reading)
    else:
        monkeypatch.setattr(second_look, "refuse_overlaps", comparing)
    collector.sweep(mark)
    assert changes
    assert collector.swept == {expired.key: "resurrected"}


@pytest.mark.parametrize("how", ["its branch is deleted", "the last list of branches is old"])
def test_without_rules_a_commit_that_no_list_of_branches_has(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """All metadata files are listed again at the end, also if no branch seems to have moved."""
    repository.put("p", "content")
    repository.commit(age_days=100)
    key = repository.put_stray("data/s/x", b"0123456789")
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {key}
    server, heads, commits = collector.server, collector.server.branch_heads, list[str]()

    def comparing(*arguments: object) -> None:
        if not commits:
            old, branch = list(heads(repository.name)), "main" if "old" in how else "late"
            if branch == "late":
                repository.branch("late")
            repository.stage("x", key, branch=branch)
            commits.append(repository.commit(branch=branch))
            if branch == "late":
                repository.delete_branch("late")
            else:
                monkeypatch.setattr(server, "branch_heads", lambda name: iter(old))
        refuse_overlaps(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(second_look, "refuse_overlaps", comparing)
    collector.sweep(mark)
    assert commits
    assert collector.swept == {key: "resurrected"}
