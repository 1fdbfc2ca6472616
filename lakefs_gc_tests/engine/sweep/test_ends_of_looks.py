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


def test_without_rules_what_is_committed_at_the_end_is_active(
    spark: SparkSession, expired: Expired, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All metadata files are listed again, if a branch has moved."""
    collector = Collector(spark, expired.repository)
    mark = collector.collect_and_mark()
    expired.repository.keep_everything()
    collector.sweep(mark)
    assert collector.swept == {expired.key: "resurrected"}
