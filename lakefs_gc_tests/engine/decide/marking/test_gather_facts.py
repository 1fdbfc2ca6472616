"""What becomes of each listed object: the classes of the funnel are disjoint, and add up to the listing."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import Protections, SafetyParameters, Settings
from lakefs_gc.engine.decide.marking.gather_facts import lowered_settings
from lakefs_gc.engine.records.mark_facts import Amount, Funnel, MarkFacts, facts_key, read_facts
from lakefs_gc.engine.scope import Scope
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import OLD_HOURS, LakeRepository
from lakefs_gc_tests.support.mark_facts import write_facts_of


def facts_of(spark: SparkSession, repository: LakeRepository, only: Scope = Scope.all) -> MarkFacts:
    protect = Protections(path_prefixes=("audit/",))
    safety = repository.lake.settings.safety.model_copy(update={"protect": protect})
    collector = Collector(spark, repository, safety=safety)
    collector.only = only
    mark = collector.collect_and_mark()
    facts = write_facts_of(collector, mark)
    assert read_facts(repository.store, mark) == facts
    return facts


def total(funnel: Funnel) -> Amount:
    classes = (funnel.live, funnel.newer, funnel.kept, funnel.not_lakefs, funnel.other_part, funnel.marked)
    return sum(classes, Amount())


@pytest.mark.long(40)
def test_every_listed_object_is_in_one_class(spark: SparkSession, repository: LakeRepository) -> None:
    expired = {"sales/day=1/a.parquet": "x" * 100, "sales/day=2/<b>|.parquet": "x" * 200, "audit/1": "x" * 50}
    address_of = {path: repository.put(path, content) for path, content in expired.items()}
    commit = repository.commit(age_days=30)
    for path in expired:
        repository.delete(path)
    repository.put("live/1", "x" * 7)
    repository.commit(age_days=20)
    repository.keep_days(10)
    repository.put_stray("data/s/old", b"x" * 30)
    repository.put_stray("data/s/new", b"x" * 3, age_hours=1)
    repository.put_stray("terraform.tfstate", b"x" * 2)

    facts = facts_of(spark, repository)
    funnel = facts.funnel
    assert funnel is not None
    assert funnel.live == Amount(1, 7)
    assert funnel.newer == Amount(1, 3)
    assert funnel.kept == Amount(1, 50)
    assert funnel.kept_because == {"protected_path": Amount(1, 50)}
    assert funnel.not_lakefs == Amount(1, 2)
    assert funnel.marked == Amount(3, 330)
    assert funnel.listed == total(funnel) == Amount(7, 392)
    assert facts.earlier is None
    assert (sum(facts.marked_by_age.values()), sum(facts.never_committed_by_age.values())) == (330, 30)

    assert facts.paths is not None
    (group,) = facts.paths.groups
    assert (group.folder, group.objects, group.size_bytes, group.commit_id) == ("sales/", 2, 300, commit)
    assert (group.branch, group.rule, group.committer) == ("main", "default: 10 days", "admin")
    # The next commit is 20 days old, and the rule keeps its parent for 10 days.
    assert group.expired_on == f"{facts.started_at - timedelta(days=10):%Y-%m-%d}"
    assert facts.paths.unknown == "1 marked objects were never committed, so they have no path."

    # Expired objects have their path, last commit and rule. One that was never committed has its age alone.
    *of_sales, never = facts.sample
    assert 1 <= len(of_sales) == len({row["path"] for row in of_sales}) <= 2
    for row in of_sales:
        path = str(row["path"])
        assert (row["address"], row["size"], row["commit_id"]) == (address_of[path], len(expired[path]), commit)
        assert (row["branch"], row["rule"], row["expired_on"]) == (group.branch, group.rule, group.expired_on)
    assert never.keys() == {"address", "size", "last_modified", "reason"}
    assert (never["address"], never["reason"]) == ("data/s/old", "never_committed")
    for row in facts.sample:
        age = facts.started_at - datetime.fromisoformat(str(row["last_modified"]))
        assert timedelta(hours=OLD_HOURS - 1) < age < timedelta(hours=OLD_HOURS + 1)

    part = facts_of(spark, repository, Scope.expired).funnel
    assert part is not None
    assert (part.marked, part.other_part, part.kept) == (Amount(2, 300), Amount(1, 30), Amount(1, 50))
    assert part.listed == total(part)

    again = facts_of(spark, repository)
    assert again.earlier is not None
    assert (again.earlier.mark_id, again.earlier.marked) == (facts.mark_id, Amount(3, 330)), "not that of a part"


def test_facts_of_another_mark_or_damaged_ones_are_not_shown(spark: SparkSession, repository: LakeRepository) -> None:
    collector = Collector(spark, repository)
    repository.put("live/1")
    repository.commit()
    mark = collector.collect_and_mark()
    assert read_facts(repository.store, mark) is None, "a mark of an earlier version has none"
    for content in (b"{}", b"not JSON"):
        repository.store.put(facts_key(mark.mark_id), content)
        assert read_facts(repository.store, mark) is None


def test_settings_that_lower_safety_are_named() -> None:
    assert list(lowered_settings(Settings())) == []
    safety = SafetyParameters(
        longest_commit_minutes=0, max_marked_share=0.9, head_sample_objects=1000, min_age_hours=2 / 3600
    )
    lowered = {setting.name: (setting.value, setting.default) for setting in lowered_settings(Settings(safety=safety))}
    assert lowered == {
        "safety.longest_commit_minutes": ("0", "10"),
        "safety.max_marked_share": ("0.9", "0.5"),
        "safety.min_age_hours": ("2 s", "24 h"),
    }
    read_less = SafetyParameters(check_foreign_references=False, repositories_not_read=("other",))
    names = {setting.name for setting in lowered_settings(Settings(safety=read_less))}
    assert names == {"safety.check_foreign_references", "safety.repositories_not_read"}
