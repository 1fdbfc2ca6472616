"""Commits that the rules retain but the server's list omits, and commits and paths that users protect."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import Protections, SafetyParameters
from lakefs_gc.engine.collect.references.commit_graph import CommitGraph
from lakefs_gc.engine.records.check import Answer
from lakefs_gc.errors import CorruptRangeError, IncompleteAnswerError, SafetyError
from lakefs_gc.formats.commits_csv import read_active_commits, write_active_commits
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lakefs_proxy import Answered, Asked, LakeFSProxy

STATUS = "/gc/prepare_commits/status"


def test_a_retained_commit_that_the_server_omits_is_kept(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    """Depending on commit ids, the list of lakeFS omits a parent that the rules retain."""
    garbage = repository.put("older")
    repository.commit(age_days=40)
    repository.delete("older")
    kept = repository.put("expired-but-parent")
    parent = repository.commit(age_days=30)
    repository.delete("expired-but-parent")
    repository.put("new")
    repository.commit(age_days=1)
    repository.keep_days(10)

    def leave_out(asked: Asked, answer: Answered) -> Answered:
        if answer.json["completed"]:
            file = answer.json["result"]["gc_commits_location"].removeprefix(repository.namespace)
            rows = read_active_commits(repository.store.read(file), file).to_pylist()
            left = [(r["commit_id"], r["metarange_id"]) for r in rows if r["commit_id"] != parent]
            assert len(left) == len(rows) - 1, "the parent is retained by the definition"
            repository.store.put(file, write_active_commits(left))
        return answer

    proxy.instead(STATUS, leave_out)
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    collector = Collector(spark, repository, server=server)
    collector.collect()
    assert collector.addresses("candidates") == {garbage}
    facts = collector.manifest("active_ranges").facts
    assert facts["missed_by_rules"] == 1
    assert facts["missed_commits"][0]["commit"] == parent
    assert "main parent of" in facts["missed_commits"][0]["why"]

    trusting = Collector(spark, repository, server=server, safety=SafetyParameters(max_commits=2))
    mark = trusting.collect_and_mark()
    assert trusting.addresses("candidates") == {garbage, kept}
    facts = trusting.manifest("active_ranges").facts
    assert (facts["commits_seen"], facts["missed_by_rules"]) == (0, None)
    [warned] = [check for check in mark.checks if not check.passed]
    assert (warned.name, warned.blocks_sweep) == ("server_list_is_complete", True)
    assert warned.answer is Answer.UNKNOWN
    assert "safety.max_commits" in warned.message


def test_protected_tags_and_paths_are_kept(spark: SparkSession, repository: LakeRepository) -> None:
    keys = {}
    for number, name in enumerate(("tagged", "untagged", "audit/x", "audit2")):
        keys[name] = repository.put(name)
        commit = repository.commit(age_days=100 - number)
        repository.tag("release-1" if name == "tagged" else f"t{number}", commit)
        repository.delete(name)
    repository.commit(age_days=20)
    repository.commit(age_days=15, allow_empty=True)
    repository.keep_days(10)
    plain = Collector(spark, repository)
    mark = plain.collect_and_mark()
    assert marked(repository, mark) == set(keys.values())

    protect = Protections(tags=("release-*",), path_prefixes=("audit/", "nothing/"))
    collector = Collector(spark, repository, safety=SafetyParameters(protect=protect))
    collector.collect()
    assert collector.addresses("candidates") == {keys["untagged"], keys["audit2"]}
    rows = collector.dataset("kept").dataframe.collect()
    assert {row["address"]: row["why"] for row in rows} == {keys["audit/x"]: "protected_path"}
    assert collector.manifest("kept").facts["protected"] == 1
    facts = collector.manifest("active_ranges").facts
    assert (facts["commits_protected"], facts["missed_by_rules"]) == (1, 0)
    assert facts["missed_commits"][0]["why"] == "tag release-1"

    # Objects that were protected after the mark are not swept either.
    collector.sweep(mark)
    assert {key for key, outcome in collector.swept.items() if outcome == "resurrected"} == {
        keys["tagged"],
        keys["audit/x"],
    }
    assert repository.read("audit/x", "t2") == b"audit/x"


def test_recent_commits_of_deleted_branches_are_kept(spark: SparkSession, repository: LakeRepository) -> None:
    """No call lists them, so they are found by the modification time of their metaranges."""
    repository.put("base")
    repository.commit(age_days=40)
    keys, metaranges = {}, {}
    for branch in ("young", "old"):
        repository.branch(branch)
        keys[branch] = repository.put(branch, branch=branch)
        commit = repository.commit(branch=branch, age_days=20)
        metaranges[branch] = repository.metadata_file(repository.metarange_of(commit))
        repository.delete_branch(branch)
    # A recent metarange may name older ranges, and a recent range does not prove a commit.
    ids = read_metarange(repository.store.read(metaranges["young"]), "young").column("range_id").to_pylist()
    for file in (metaranges["old"], *map(repository.metadata_file, ids)):
        repository.age(file, 61 * 24)
    repository.keep_days(10)
    mark = Collector(spark, repository).collect_and_mark()
    assert marked(repository, mark) == set(keys.values())

    collector = Collector(spark, repository, safety=SafetyParameters(protect=Protections(days=60)))
    collector.collect()
    assert collector.addresses("candidates") == {keys["old"]}
    since = datetime.fromisoformat(collector.manifest("active_ranges").facts["metaranges_since"])
    assert since == collector.run.started_at - timedelta(days=60)
    collector.sweep(mark)
    assert collector.swept == {keys["young"]: "resurrected", keys["old"]: "deleted"}

    repository.put_stray("_lakefs/" + "0" * 64, age_hours=1)
    with pytest.raises(CorruptRangeError, match=r"_lakefs/0{64}"):
        collector.materialize("active_ranges")


def test_protections_of_more_commits_than_the_limit_are_refused(
    spark: SparkSession, repository: LakeRepository
) -> None:
    repository.put("a")
    repository.commit()
    repository.keep_days(10)
    safety = SafetyParameters(protect=Protections(days=30), max_commits=1)
    collector = Collector(spark, repository, safety=safety)
    with pytest.raises(SafetyError, match="more than 1 commits, so the protected commits are unknown"):
        collector.collect()


def test_the_graph_is_complete_with_any_page_size(lake: Lake, repository: LakeRepository) -> None:
    """With branches of branches, merges, and histories longer than a page."""
    commits = [repository.commit(allow_empty=True) for _ in range(25)]
    repository.branch("dev", commits[10])
    dev = [repository.commit(branch="dev", allow_empty=True) for _ in range(15)]
    repository.branch("twig", dev[3])
    twig = repository.commit(branch="twig", allow_empty=True)
    repository.put("a", branch="dev")
    dev.append(repository.commit(branch="dev"))
    merge = repository.merge("dev", "main")
    repository.delete_branch("dev")
    server = LakeFSClient(lake.credentials)
    graph = CommitGraph(1000)
    graph.add_history_of(server, "lake", [twig, merge])
    assert graph.complete
    assert {*commits, *dev, twig, merge} < graph.commits.keys()
    assert len(graph.commits) == len({*commits, *dev, twig, merge}) + 1
    assert all(parent in graph.commits for commit in graph.commits.values() for parent in commit.parents)
    cut = CommitGraph(20)
    cut.add_history_of(server, "lake", [twig, merge])
    assert not cut.complete


def test_a_list_that_gives_a_commit_no_content_fails_the_run(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    repository.put("other")
    repository.commit(age_days=5)
    repository.put("p")
    emptied = repository.commit(age_days=3)
    repository.delete("p")
    repository.commit(age_days=2)
    repository.keep_days(10)

    def empty(asked: Asked, answer: Answered) -> Answered:
        if answer.json["completed"]:
            file = answer.json["result"]["gc_commits_location"].removeprefix(repository.namespace)
            rows = read_active_commits(repository.store.read(file), file).to_pylist()
            metaranges = {r["commit_id"]: r["metarange_id"] for r in rows}
            assert metaranges[emptied]
            repository.store.put(file, write_active_commits(list((metaranges | {emptied: ""}).items())))
        return answer

    proxy.instead(STATUS, empty)
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    with pytest.raises(IncompleteAnswerError, match=f"gives commit {emptied} the metarange ''"):
        Collector(spark, repository, server=server).collect()


class MakesABranchOfTheTag(LakeFSClient):
    """Makes a branch of the tag, and deletes the tag, after the branches were listed for the third time."""

    left = 0

    def prepare(self, repository: LakeRepository) -> None:
        self.lake_repository, self.left = repository, 3

    def heads_of(self, repository: str, default_branch: str = "") -> dict[str, str]:
        heads = super().heads_of(repository, default_branch)
        self.left -= 1
        if not self.left:
            self.lake_repository.branch("of-the-tag", "release")
            self.lake_repository.delete_tag("release")
        return heads


def test_a_protected_tag_that_becomes_a_branch_meanwhile(spark: SparkSession, repository: LakeRepository) -> None:
    """Its commit is on no branch when the server lists the active commits."""
    kept = repository.put("released")
    repository.tag("release", repository.commit(age_days=30))
    repository.delete("released")
    repository.commit(age_days=20)
    repository.put("live")
    repository.commit()
    repository.keep_days(10)
    server = MakesABranchOfTheTag(repository.lake.credentials)
    safety = SafetyParameters(protect=Protections(tags=("release",)))
    collector = Collector(spark, repository, server=server, safety=safety)
    collector.collect(until="uncommitted")
    server.prepare(repository)
    collector.materialize("active_ranges", "committed")
    assert server.left == 0
    assert kept in collector.addresses("committed")
