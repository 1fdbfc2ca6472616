"""The stage ``forecast`` on a sandbox: its answer for some rules is the mark after these rules are set."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import Protections, SafetyParameters
from lakefs_gc.engine.forecast import held_files
from lakefs_gc.engine.forecast.forecast import forecast
from lakefs_gc.engine.forecast.outlook import Forecast, Total, only_heads, only_this_branch, outlook
from lakefs_gc.engine.forecast.stored_runs import STAGE, forecast_of
from lakefs_gc.engine.spark.compat import to_arrow
from lakefs_gc.engine.workspace.history_index import HistoryIndex
from lakefs_gc.errors import SafetyError, StorageError
from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository

INPUTS = ("store_listing", "uncommitted", "foreign_references", "unmatched", "kept")


def forecast_with(collector: Collector, *ruled_branches: str) -> Forecast:
    """Return the forecast of a run that has its inputs."""
    listing, *others = (collector.dataset(stage) for stage in INPUTS)
    output = forecast(
        collector.context,
        collector.run,
        listing=listing,
        **{dataset.manifest.stage: dataset for dataset in others},
        ruled_branches=ruled_branches,
    )
    collector.workspace.write(collector.spark, collector.run_key, STAGE, output)
    stored = collector.dataset(STAGE)
    return forecast_of(stored.manifest, pa.table(to_arrow(stored.dataframe)))


def candidates(spark: SparkSession, repository: LakeRepository, safety: SafetyParameters | None = None) -> Total:
    """Return what a new run would mark."""
    collector = Collector(spark, repository, safety=safety)
    collector.collect()
    manifest = collector.manifest("candidates")
    return Total(manifest.rows, manifest.facts["size_bytes"])


def history(repository: LakeRepository) -> None:
    """A main line whose commits replace ``x``, a branch that is behind, a deleted branch, staged and stray objects."""
    for size, age_days in ((1, 40), (2, 30), (3, 20), (4, 10), (5, 1)):
        repository.put("x", "x" * size)
        repository.commit(age_days=age_days)
        if age_days == 30:
            repository.branch("exp")
        if age_days == 20:
            repository.branch("gone")
    for size, age_days in ((100, 29), (200, 25)):
        repository.put("y", "y" * size, branch="exp")
        repository.commit(branch="exp", age_days=age_days)
    repository.put("z", "z" * 1000, branch="gone")
    repository.commit(branch="gone", age_days=8)
    repository.delete_branch("gone")
    repository.put("staged", "s" * 10_000)
    repository.put_stray("data/garbage", b"g" * 20_000)
    repository.put_stray("data/new", b"n" * 30_000, age_hours=1)


@pytest.mark.long(90)
def test_the_forecast_of_rules_is_the_mark_after_they_are_set(spark: SparkSession, repository: LakeRepository) -> None:
    history(repository)
    repository.keep_days(60)
    collector = Collector(spark, repository)
    collector.collect(until="kept")
    made = forecast_with(collector, "exp")
    assert made.unreadable == ()
    # lakeFS takes 0 days for all branches for no rules.
    for days, branches in ((15, {"exp": 27}), (0, {"exp": 0})):
        expected = outlook(made, GCRules(days, branches))
        assert not expected.unknown.objects
        repository.keep_days(days, **branches)
        assert candidates(spark, repository) == expected.total, (days, branches)
    assert outlook(made, GCRules(0), 1).total == expected.total + Total(1, 30_000), "a day later data/new is old enough"
    assert {made.branches[n or 0].name: total for n, total in only_heads(made, GCRules(0)).items()} == {
        "main": Total(1, 5),
        "exp": Total(2, 202),  # y, and the second x
    }
    assert [branch.idle_days for branch in made.branches] == [25, 1]
    assert [branch.shown for branch in made.branches] == [Total(2, 202), Total(1, 5)]
    assert only_this_branch(made) == {0: Total(2, 202), 1: Total(1, 5)}


def test_an_executor_that_lists_another_folder_ends_a_forecast(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.put("path")
    repository.commit()
    collector = Collector(spark, repository)
    collector.collect(until="kept")
    monkeypatch.setattr(held_files, "some_metadata", lambda _: "f" * 64)
    with pytest.raises(StorageError, match=f"an executor lists 2 metadata files, but not {'f' * 64}"):
        forecast_with(collector)


def test_a_question_need_not_read_what_a_forecast_read(spark: SparkSession, repository: LakeRepository) -> None:
    for age_days in (100, 50, 1):
        repository.put("path", str(age_days))
        repository.commit(age_days=age_days)
    repository.keep_days(10)
    collector = Collector(spark, repository)
    collector.collect(until="kept")

    def indexed() -> set[str]:
        store = open_store(collector.workspace.range_cache.location)
        return set(HistoryIndex.read(store, collector.run.known_folders).ranges_of)

    log = collector.server.log_page(repository.name, "main", after="", amount=100).commits
    assert len(indexed()) == 2, "the head, and its parent, which expires 10 days after it"
    forecast_with(collector)
    assert indexed() == {commit.meta_range_id for commit in log} - {""}


@pytest.mark.long(40)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.of_ci) for seed in (2, 5))])
def test_random_histories(seed: int, spark: SparkSession, repository: LakeRepository) -> None:
    """The rules of a random history get shorter or longer; what is unknown under longer rules may be marked or not."""
    chance = random.Random(seed)
    random_history(repository, chance)
    protect = Protections(
        tags=chance.choice([(), ("t*",)]), last_commits=chance.choice([0, 2]), days=chance.choice([0, 7])
    )
    safety = repository.lake.settings.safety.model_copy(update={"protect": protect})
    repository.keep_days(chance.choice([3, 12, 60]), b1=chance.choice([0, 25]))
    collector = Collector(spark, repository, safety=safety)
    collector.collect(until="kept")
    made = forecast_with(collector, "main", "b2")
    rules = GCRules(chance.choice([1, 9, 30]), {name: chance.choice([0, 8, 50]) for name in ("main", "b2")})
    repository.keep_days(rules.default_retention_days, **rules.branches)
    marked, expected = candidates(spark, repository, safety), outlook(made, rules)
    assert expected.total.objects <= marked.objects <= (expected.total + expected.unknown).objects
    assert expected.total.size_bytes <= marked.size_bytes <= (expected.total + expected.unknown).size_bytes
    assert made.rules is not None
    if rules.default_retention_days <= made.rules.default_retention_days:
        assert expected.unknown == Total()


def random_history(repository: LakeRepository, chance: random.Random) -> None:
    """Commit at random ages on branches that begin anywhere, some of which are merged, deleted or tagged."""
    branches, size = ["main"], 0
    for number in range(14):
        branch = chance.choice(branches)
        for path in chance.sample(["a", "b", "c"], 2):
            size += 1
            repository.put(path, "x" * size, branch=branch)
        commit = repository.commit(branch=branch, age_days=chance.randint(0, 60))
        if chance.random() < 0.3 and len(branches) < 4:
            branches.append(f"b{number}" if number > 1 else "b1")
            repository.branch(branches[-1], chance.choice([commit, "main"]))
        if chance.random() < 0.15 and len(branches) > 2:
            repository.delete_branch(branches.pop())
        if chance.random() < 0.2:
            repository.tag(f"t{number}", commit)


def test_protections_and_unknown_commits(spark: SparkSession, repository: LakeRepository) -> None:
    """No rules are set, so commits of the deleted branch are invisible: what they have is unknown, and not freed."""
    repository.put("keep/a", "a" * 3)
    repository.commit(age_days=40)
    repository.delete("keep/a")  # only its path protects it, and not the tag
    repository.put("b", "b" * 10)
    first = repository.commit(age_days=30)
    repository.tag("v1", first)
    repository.delete("b")
    repository.put("c", "c" * 100)
    repository.commit(age_days=20)
    repository.delete("c")
    repository.commit(age_days=15)
    repository.branch("gone")
    repository.put("d", "d" * 1000, branch="gone")
    repository.commit(branch="gone", age_days=10)
    repository.delete_branch("gone")
    safety = repository.lake.settings.safety.model_copy(
        update={"protect": Protections(tags=("v*",), path_prefixes=("keep/",))}
    )
    collector = Collector(spark, repository, safety=safety)
    collector.collect(until="kept")
    made = forecast_with(collector)
    assert outlook(made, None).total == Total()
    now = outlook(made, GCRules(5))
    assert (now.total, now.kept["protected"]) == (Total(1, 100), Total(2, 13))
    assert now.unknown == Total(1, 1000)
    assert made.facts["metadata"]["unnamed_files"] == 2, "the metarange and the range of the deleted branch"
    repository.keep_days(5)
    assert candidates(spark, repository, safety) == now.total + now.unknown


def test_a_file_that_cannot_be_read_is_reported(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a", "a" * 10)
    old = repository.commit(age_days=40)
    repository.delete("a")
    repository.put("b", "b" * 100)
    repository.commit(age_days=30)
    repository.keep_days(50)
    collector = Collector(spark, repository)
    collector.collect(until="kept")
    repository.keep_days(5)
    lost = repository.metadata_file(repository.metarange_of(old))
    repository.store.delete_many([lost])
    made = forecast_with(collector)
    assert made.unreadable == (repository.metarange_of(old),)
    assert made.branches[0].shown == Total(1, 100)
    collector.safety = collector.safety.model_copy(update={"max_commits": 1})
    with pytest.raises(SafetyError, match="more than 1 commits"):
        forecast_with(collector)
