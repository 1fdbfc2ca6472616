"""The example of lakeFS's documents on garbage collection: main retains for 21 days, dev for 7, and GC runs 2022-03-31.

The documents' answer: the commits of 2022-02-27 and 2022-03-01, and those of dev before 2022-03-23, are collected.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import SparkSession

from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc.lakefs.active_commits import Commit, active_commits
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository

RUN = datetime(2022, 3, 31, tzinfo=UTC)
PARENTS = {
    "02-27": (),
    "03-01": ("02-27",),
    "03-09": ("03-01",),
    "03-12": ("03-09",),
    "d 03-14": ("03-09",),
    "d 03-16": ("d 03-14",),
    "03-18": ("03-12",),
    "d 03-20": ("d 03-16",),
    "d 03-23": ("d 03-20",),
    "merge 03-25": ("03-18", "d 03-23"),
    "03-26": ("merge 03-25",),
}
COLLECTED = {"02-27", "03-01", "d 03-14", "d 03-16", "d 03-20"}


def day_of(name: str) -> datetime:
    return datetime.fromisoformat(f"2022-{name[-5:]}").replace(tzinfo=UTC)


def age_days(name: str) -> float:
    return (RUN - day_of(name)).total_seconds() / 86_400


def test_the_active_commits_are_those_of_the_documents() -> None:
    commits = [Commit(name, parents, day_of(name), f"metarange of {name}") for name, parents in PARENTS.items()]
    rules = GCRules(14, {"main": 21, "dev": 7})
    active = active_commits(commits, {"main": "03-26", "dev": "d 03-23"}, rules, RUN)
    assert set(active) == set(PARENTS) - COLLECTED


def test_the_objects_are_collected_as_the_documents_say(spark: SparkSession, repository: LakeRepository) -> None:
    """Each commit overwrites a path of its branch, so that it alone shows one object. The merge adds none."""
    objects: dict[str, str] = {}

    def commit(name: str) -> None:
        branch = "dev" if name.startswith("d ") else "main"
        objects[name] = repository.put(f"changes-{branch}", name, branch=branch)
        repository.commit(branch=branch, age_days=age_days(name))

    earlier = repository.put("earlier", "added in the first commit, and in all later ones")
    for name in ("02-27", "03-01", "03-09"):
        commit(name)
    repository.branch("dev")
    commit("03-12")
    added = repository.put("d", "added by dev on 03-14, overwritten on 03-20", branch="dev")
    deleted = repository.put("e", "added by dev on 03-14, deleted on 03-20", branch="dev")
    for name in ("d 03-14", "d 03-16"):
        commit(name)
    commit("03-18")
    overwriting = repository.put("d", "added by dev on 03-20", branch="dev")
    repository.delete("e", branch="dev")
    for name in ("d 03-20", "d 03-23"):
        commit(name)
    repository.merge("dev", "main")
    commit("03-26")
    repository.keep_days(14, main=21, dev=7)

    collector = Collector(spark, repository)
    collector.collect()
    assert collector.addresses("candidates") == {objects[name] for name in COLLECTED} | {added, deleted}
    collector.sweep(collector.mark())
    assert repository.objects() == {earlier, overwriting} | {
        object_ for name, object_ in objects.items() if name not in COLLECTED
    }
