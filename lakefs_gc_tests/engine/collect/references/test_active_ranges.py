"""The ranges that are live. An incomplete answer fails the run (rule 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.workspace import range_cache
from lakefs_gc.engine.workspace.range_cache import METADATA_FOLDER
from lakefs_gc.errors import (
    CorruptFileError,
    CorruptRangeError,
    IncompleteAnswerError,
    LakeFSGCError,
    NamespaceError,
    ObjectNotFoundError,
)
from lakefs_gc.formats.commits_csv import read_active_commits, write_active_commits
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake, LakeRepository, keys_below
from lakefs_gc_tests.support.lakefs_proxy import Answered, Asked, LakeFSProxy

STATUS = "/gc/prepare_commits/status"


@dataclass(frozen=True)
class Ready:
    """A repository with two commits, and a collector behind a proxy whose next stage is ``active_ranges``."""

    repository: LakeRepository
    proxy: LakeFSProxy
    collector: Collector


@pytest.fixture(scope="module")
def ready(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    with Lake(tmp_path_factory.mktemp("lake")) as lake, LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        repository = lake.repository()
        repository.put("a")
        repository.commit(age_days=2)
        repository.put("b")
        repository.commit()
        repository.keep_days(10)
        yield Ready(repository, proxy, behind(spark, lake, repository, proxy))


def ranges_of(repository: LakeRepository, commit_id: str) -> dict[str, int]:
    """Return the number of entries of each range of a commit."""
    key = repository.metadata_file(repository.metarange_of(commit_id))
    rows = read_metarange(repository.store.read(key), key).to_pylist()
    return {row["range_id"]: row["entries"] for row in rows}


def found(collector: Collector) -> dict[str, int | None]:
    rows = collector.dataset("active_ranges").dataframe.collect()
    assert len({row["range_id"] for row in rows}) == len(rows)
    return {row["range_id"]: row["entries"] for row in rows}


def test_with_rules_only_ranges_of_active_commits_are_live(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("old")
    expired = repository.commit(age_days=30)
    repository.delete("old")
    repository.put("new")
    kept = repository.commit(age_days=20)  # the last commit before the limit is active: it was the head until then
    repository.put("new")
    repository.put("newer")
    head = repository.commit(age_days=1)
    repository.keep_days(10)
    collector = Collector(spark, repository)
    collector.collect(until="active_ranges")
    assert found(collector) == ranges_of(repository, kept) | ranges_of(repository, head)
    assert not ranges_of(repository, expired).keys() & found(collector).keys()
    facts = collector.manifest("active_ranges").facts
    assert facts["mode"] == "rules"
    assert facts["commits_run_id"]


def test_without_rules_every_metadata_file_is_read(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a")
    commits = [repository.commit(age_days=900)]
    repository.delete("a")
    repository.put("b")
    commits.append(repository.commit(age_days=800))
    repository.put_stray("_lakefs/not-an-id")
    collector = Collector(spark, repository)
    collector.collect(until="active_ranges")
    expected = {repository.metarange_of(commit) for commit in commits}
    for commit in commits:
        expected |= ranges_of(repository, commit).keys()
    assert found(collector) == dict.fromkeys(expected)
    assert collector.manifest("active_ranges").facts["mode"] == "all_commits"


Damage = Callable[[LakeRepository, str], None]


def cut_in_a_line(repository: LakeRepository, file: str) -> None:
    repository.store.put(file, repository.store.read(file)[:-30])


def cut_after_a_line(repository: LakeRepository, file: str) -> None:
    """Remove the row of the head, at any position."""
    head = repository.lake.client.branches_api.get_branch(repository.name, "main").commit_id
    rows = read_active_commits(repository.store.read(file), file).to_pylist()
    left = [(row["commit_id"], row["metarange_id"]) for row in rows if row["commit_id"] != head]
    assert len(left) == len(rows) - 1 > 0
    repository.store.put(file, write_active_commits(left))


def no_commits(repository: LakeRepository, file: str) -> None:
    repository.store.put(file, write_active_commits([]))


def remove(repository: LakeRepository, file: str) -> None:
    repository.store.delete_many([file])


def remove_metarange(repository: LakeRepository, file: str) -> None:
    remove(repository, a_metarange(repository, file))


def cut_metarange(repository: LakeRepository, file: str) -> None:
    metarange = a_metarange(repository, file)
    repository.store.put(metarange, repository.store.read(metarange)[:-1])


def range_for_metarange(repository: LakeRepository, file: str) -> None:
    metarange = a_metarange(repository, file)
    range_id = read_metarange(repository.store.read(metarange), metarange).column("range_id")[0].as_py()
    repository.store.put(metarange, repository.store.read(repository.metadata_file(range_id)))


def a_metarange(repository: LakeRepository, file: str) -> str:
    ids = read_active_commits(repository.store.read(file), file).column("metarange_id").to_pylist()
    return repository.metadata_file(max(ids))


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (cut_in_a_line, CorruptFileError, r"commits\.csv: the last line has no line end"),
        (cut_after_a_line, IncompleteAnswerError, "the head of a branch. The list is incomplete"),
        (no_commits, IncompleteAnswerError, "lists no commit"),
        (remove, ObjectNotFoundError, r"commits\.csv"),
        (remove_metarange, ObjectNotFoundError, r"_lakefs/[0-9a-f]{64} does not exist"),
        (cut_metarange, CorruptRangeError, r"_lakefs/[0-9a-f]{64}: "),
        (
            range_for_metarange,
            CorruptRangeError,
            r"_lakefs/[0-9a-f]{64}: it was read twice, and has the content of another file",
        ),
    ],
)
def test_an_incomplete_list_of_commits_is_refused(
    ready: Ready, damage: Damage, error: type[LakeFSGCError], message: str
) -> None:
    repository = ready.repository
    whole = {key: repository.store.read(key) for key in keys_below(repository.store, "_lakefs/")}

    def spoil(asked: Asked, answer: Answered) -> Answered:
        if answer.json["completed"]:
            damage(repository, answer.json["result"]["gc_commits_location"].removeprefix(repository.namespace))
        return answer

    ready.proxy.instead(STATUS, spoil)
    try:
        with pytest.raises(error, match=message):
            ready.collector.materialize("active_ranges")
    finally:
        ready.proxy.spoil.clear()
        for key, content in whole.items():
            repository.store.put(key, content)


def behind(spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy) -> Collector:
    """A collector behind the proxy, ready for ``active_ranges``."""
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    collector = Collector(spark, repository, server=server)
    collector.collect(until="uncommitted")
    return collector


def test_the_list_may_omit_a_head_that_moves_meanwhile(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    repository.put("a")
    repository.commit(age_days=2)
    repository.branch("gone")
    repository.put("on-gone", branch="gone")
    repository.commit(branch="gone", age_days=30)
    repository.keep_days(10)
    collector = behind(spark, lake, repository, proxy)

    def move(asked: Asked, real: Callable[[], Answered]) -> None:
        if asked.is_for("/gc/prepare_commits/async"):
            repository.delete_branch("gone")
        if asked.is_for(STATUS) and asked.number == 1:
            repository.put("b")
            repository.commit()

    proxy.spoil.append(move)
    collector.materialize("active_ranges")
    assert found(collector)


def test_a_list_outside_the_namespace_is_refused(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    repository.keep_days(10)
    elsewhere = {"gc_commits_location": "local://lake-2/commits.csv", "gc_addresses_location": "", "run_id": "r"}
    proxy.instead(
        STATUS, lambda asked, answer: answer.with_json(result=elsewhere) if answer.json["completed"] else None
    )
    with pytest.raises(NamespaceError, match="not in the namespace"):
        behind(spark, lake, repository, proxy).materialize("active_ranges")


def without(repository: LakeRepository, *commits: str) -> dict[str, bytes]:
    """Remove the metaranges of commits. Return their contents."""
    files = [repository.metadata_file(repository.metarange_of(commit)) for commit in commits]
    lost = {file: repository.store.read(file) for file in files}
    repository.store.delete_many(files)
    return lost


def test_without_rules_each_commit_of_a_ref_has_its_metarange(spark: SparkSession, repository: LakeRepository) -> None:
    """A missing file is not listed, and nothing else shows that its objects are live."""
    commits = {}
    for name in ("middle", "tagged", "head"):
        repository.put(name)
        commits[name] = repository.commit(age_days=900)
        repository.delete(name)
        if name == "tagged":
            repository.branch("gone")
            repository.put("gone", branch="gone")
            commits["gone"] = repository.commit(branch="gone", age_days=800)
            repository.tag("of-gone", commits["gone"])
            repository.delete_branch("gone")
    repository.put("last")
    repository.commit(age_days=700)
    collector = Collector(spark, repository)
    collector.collect(until="uncommitted")
    for name in ("middle", "gone", "head"):
        lost = without(repository, commits[name])
        [file] = lost
        with pytest.raises(
            ObjectNotFoundError, match=f"{file} does not exist, but it is the metarange of commit {commits[name]}"
        ):
            collector.materialize("active_ranges")
        repository.store.put(file, lost[file])
    collector.materialize("active_ranges")
    facts = collector.manifest("active_ranges").facts
    assert (facts["commits_seen"], facts["missed_by_rules"]) == (6, 0)


def test_without_rules_a_metarange_of_the_cache_must_exist(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a")
    commit = repository.commit(age_days=900)
    repository.delete("a")
    repository.put("b")
    repository.commit(age_days=800)
    Collector(spark, repository).collect()
    [file] = without(repository, commit)
    with pytest.raises(ObjectNotFoundError, match=f"{file} does not exist"):
        Collector(spark, repository).collect()


def test_without_rules_commits_beyond_the_limit_are_unknown(spark: SparkSession, repository: LakeRepository) -> None:
    for number in range(20):
        repository.put(f"path/{number}")
        repository.commit(age_days=900 - number)
    repository.branch("other")
    repository.put("head", branch="other")
    head = repository.commit(branch="other")
    collector = Collector(spark, repository, safety=SafetyParameters(max_commits=5))
    collector.collect(until="active_ranges")
    assert collector.manifest("active_ranges").facts["missed_by_rules"] is None
    # The metaranges of the heads are known even so.
    without(repository, head)
    with pytest.raises(ObjectNotFoundError, match=f"it is the metarange of commit {head}"):
        collector.materialize("active_ranges")


def test_without_rules_commits_of_a_deleted_branch_are_live(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a")
    repository.commit(age_days=900)
    repository.branch("gone")
    key = repository.put("gone", branch="gone")
    repository.commit(branch="gone", age_days=800)
    repository.delete_branch("gone")
    collector = Collector(spark, repository)
    collector.collect()
    assert key in collector.addresses("committed")
    assert not collector.addresses("candidates")


def test_a_log_that_omits_an_ancestor_is_refused(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    repository.put("a")
    oldest = repository.commit(age_days=900)
    repository.put("b")
    repository.commit(age_days=800)

    def cut(asked: Asked, answer: Answered) -> Answered:
        commits = [commit for commit in answer.json["results"] if commit["id"] != oldest]
        return answer.with_json(results=commits)

    proxy.instead("/commits", cut)
    with pytest.raises(IncompleteAnswerError, match=f"omits its ancestor {oldest}"):
        behind(spark, lake, repository, proxy).materialize("active_ranges")


def test_a_shared_history_is_read_once(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    """The pages of a history that branches share are requested once. Each branch costs one more request."""
    for number in range(130):
        repository.commit(age_days=900 - number, allow_empty=True)
    for number in range(12):
        repository.branch(f"same-{number}")
        repository.branch(f"own-{number}")
        repository.commit(branch=f"own-{number}", age_days=number, allow_empty=True)
    collector = behind(spark, lake, repository, proxy)
    proxy.asked.clear()
    collector.materialize("active_ranges")
    assert collector.manifest("active_ranges").facts["commits_seen"] == 131 + 12
    logs = proxy.count("/commits")
    # For main, pages of 10, of 100, and the rest. For each other head, one page.
    assert logs == 3 + 12
    assert proxy.count("/branches") == proxy.count("/tags") == 1


def test_a_metarange_that_workers_cannot_read_beside_remembered_ones(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.keep_days(10)
    repository.put("a")
    repository.commit()
    Collector(spark, repository).collect()
    repository.put("b")
    file = f"{METADATA_FOLDER}{repository.metarange_of(repository.commit())}"
    repository.store.delete_many([file])
    monkeypatch.setattr(range_cache, "few_to_read", lambda cores, located: False)
    with pytest.raises(ObjectNotFoundError, match=file):
        Collector(spark, repository).collect()
