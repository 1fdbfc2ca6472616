"""A list of the repository's own metadata files that lacks one which exists is refused (rule 12)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import Protections, SafetyParameters
from lakefs_gc.engine.collect.references.active_ranges import METADATA_FOLDER, active_ranges, metaranges_so_far
from lakefs_gc.engine.collect.references.old_list import metarange_ids, refuse_old_list
from lakefs_gc.engine.records.check import SERVER_LIST_IS_COMPLETE
from lakefs_gc.engine.run import RunContext
from lakefs_gc.errors import ObjectNotFoundError, StorageError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.faulty_s3 import Answer, Request
from lakefs_gc_tests.support.faulty_store import LevelledS3, StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lakefs_proxy import LakeFSProxy

AUDITED = SafetyParameters(protect=Protections(path_prefixes=("audit/",)))
NAMED = "which exists, and which a commit named before"
"""Of several such files, one is named."""
RECENT = SafetyParameters(protect=Protections(days=60))

_LARGE = "large run"
in_runs_of_each_size = pytest.mark.parametrize("size", ["small run", pytest.param(_LARGE, marks=pytest.mark.executors)])
in_large_runs_in_ci = pytest.mark.parametrize(
    "size",
    ["small run", pytest.param(_LARGE, marks=[pytest.mark.executors, pytest.mark.of_ci, pytest.mark.long(20)])],
)


class OldLists:
    """``with old_lists.of(repository)``: its metadata files are listed as at the last call of ``note``."""

    def __init__(self, store: StoreInS3) -> None:
        self._store, self._then = store, LevelledS3()

    def note(self) -> None:
        self._then.objects = dict(self._store.server.objects)
        self._then.written_at = dict(self._store.server.written_at)

    @contextmanager
    def of(self, repository: LakeRepository) -> Iterator[None]:
        folder = self._store.key(repository, METADATA_FOLDER)

        def list_as_then(request: Request) -> Answer | None:
            asked = request.operation, request.query.get("prefix")
            return self._then.right_answer(request) if asked == ("ListObjectsV2", folder) else None

        faults = self._store.server.faults
        faults.append(list_as_then)
        yield
        faults.remove(list_as_then)


class OneProcess(Collector):
    """The stages of a mark have one context, so later ones know what earlier ones have read."""

    @cached_property
    def context(self) -> RunContext:
        return self.context_with()


@pytest.fixture
def old_lists(store_in_s3: StoreInS3) -> OldLists:
    return OldLists(store_in_s3)


def refused(repository: LakeRepository, commit: str) -> str:
    file = re.escape(repository.metadata_file(repository.metarange_of(commit)))
    return f"but not {file}, which exists"


def audit(repository: LakeRepository, key: str) -> str:
    """Commit an object below a protected path, on a branch whose head has it no more. Return the expired commit."""
    repository.branch("with-audit")
    repository.stage("audit/a", key, branch="with-audit", size_bytes=5)
    expired = repository.commit(branch="with-audit", age_days=40)
    repository.delete("audit/a", branch="with-audit")
    repository.commit(branch="with-audit", age_days=30)
    repository.put("head", branch="with-audit")
    repository.commit(branch="with-audit", age_days=20)
    return expired


@in_large_runs_in_ci
@pytest.mark.parametrize("is_empty", [True, False], ids=["an empty list", "an old list"])
def test_a_look_without_rules_refuses(
    spark: SparkSession, in_s3: LakeRepository, old_lists: OldLists, is_empty: bool, size: str
) -> None:
    repository = in_s3
    repository.put("a")
    repository.commit(age_days=3)
    late = repository.put_stray("data/s/late")
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {late}
    if not is_empty:
        old_lists.note()
    repository.stage("late", late, size_bytes=5)
    repository.commit(age_days=2)
    repository.delete("late")
    repository.commit(age_days=1)
    with old_lists.of(repository), pytest.raises(StorageError, match=METADATA_FOLDER):
        collector.sweep(mark)
    assert late in repository.objects()
    collector.sweep(mark)
    assert collector.swept == {late: "resurrected"}


@in_runs_of_each_size
def test_a_mark_without_rules_refuses(
    spark: SparkSession, in_s3: LakeRepository, old_lists: OldLists, size: str
) -> None:
    """The error says that the file exists: nobody has to restore it."""
    in_s3.put("a")
    in_s3.commit(age_days=3)
    old_lists.note()
    in_s3.put("b")
    commit = in_s3.commit(age_days=2)
    collector = Collector(spark, in_s3)
    collector.collect(until="uncommitted")
    with old_lists.of(in_s3), pytest.raises(StorageError, match=refused(in_s3, commit)) as caught:
        collector.materialize("active_ranges")
    assert "lists of the store are behind" in caught.value.remedy


@in_runs_of_each_size
def test_a_mark_that_keeps_the_commits_of_the_last_days_refuses(
    spark: SparkSession, in_s3: LakeRepository, old_lists: OldLists, size: str
) -> None:
    in_s3.keep_days(10)
    in_s3.put("a")
    in_s3.commit(age_days=3)
    old_lists.note()
    in_s3.put("b")
    commit = in_s3.commit(age_days=2)
    collector = Collector(spark, in_s3, safety=RECENT)
    collector.collect(until="uncommitted")
    with old_lists.of(in_s3), pytest.raises(StorageError, match=refused(in_s3, commit)):
        collector.materialize("active_ranges")


@in_large_runs_in_ci
def test_a_mark_with_a_protected_path_refuses(
    spark: SparkSession, in_s3: LakeRepository, old_lists: OldLists, size: str
) -> None:
    repository = in_s3
    repository.keep_days(10)
    repository.put("a")
    repository.commit(age_days=3)
    old_lists.note()
    audit(repository, repository.put_stray("data/s/audited"))
    collector = Collector(spark, repository, safety=AUDITED)
    collector.collect(until="missing")
    with old_lists.of(repository), pytest.raises(StorageError, match=NAMED):
        collector.materialize("kept")
    collector.materialize("kept")
    assert collector.addresses("kept") == {"data/s/audited"}


@pytest.mark.parametrize("is_look", [False, True], ids=["a mark", "a look"])
def test_of_too_many_commits_those_of_tags_are_asked_for(
    spark: SparkSession, in_s3: LakeRepository, old_lists: OldLists, is_look: bool
) -> None:
    repository = in_s3
    repository.keep_days(10)
    for age_days in (4, 3):
        repository.put(f"of-{age_days}")
        repository.commit(age_days=age_days)
    late = repository.put_stray("data/s/late")
    collector = OneProcess(spark, repository, safety=AUDITED.model_copy(update={"max_commits": 2}))
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {late}
    old_lists.note()
    repository.branch("with-audit")
    repository.stage("audit/a", late, branch="with-audit", size_bytes=5)
    repository.tag("release", repository.commit(branch="with-audit", age_days=40))
    repository.delete_branch("with-audit")
    if is_look:
        asks: Callable[[], object] = partial(collector.sweep, mark, overrides=[SERVER_LIST_IS_COMPLETE])
    else:
        collector.collect(until="missing")
        asks = partial(collector.materialize, "kept")
    with old_lists.of(repository), pytest.raises(StorageError, match=NAMED):
        asks()
    assert late in repository.objects()


@in_large_runs_in_ci
@pytest.mark.parametrize("max_commits", [1000, 2], ids=["all commits are known", "too many commits"])
def test_a_look_with_a_protected_path_refuses(
    spark: SparkSession, in_s3: LakeRepository, old_lists: OldLists, max_commits: int, size: str
) -> None:
    """Of too many commits, those of heads are asked for. The log of the first branch, main, is already too long."""
    repository = in_s3
    repository.keep_days(10)
    for age_days in (4, 3):
        repository.put(f"of-{age_days}")
        repository.commit(age_days=age_days)
    late = repository.put_stray("data/s/late")
    collector = Collector(spark, repository, safety=SafetyParameters(max_commits=max_commits))
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {late}
    old_lists.note()
    audit(repository, late)
    collector.safety = AUDITED.model_copy(update={"max_commits": max_commits})
    with old_lists.of(repository), pytest.raises(StorageError, match="which exists"):
        collector.sweep(mark, overrides=[SERVER_LIST_IS_COMPLETE])
    assert late in repository.objects()


def test_the_commits_of_a_mark_are_read_once(spark: SparkSession, lake: Lake, repository: LakeRepository) -> None:
    repository.keep_days(10)
    repository.put("a")
    commit = repository.commit(age_days=3)
    with LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
        collector = Collector(spark, repository, server=server, safety=AUDITED)
        collector.collect(until="uncommitted")
        context, run, expected = collector.context, collector.run, {repository.metarange_of(commit): commit}
        active_ranges(context, run, collector.dataset("uncommitted"))
        logs = proxy.count("/commits")
        assert metaranges_so_far(context, run) == expected
        assert proxy.count("/commits") == logs > 0
        # In another process.
        assert metaranges_so_far(collector.context, run) == expected
        assert proxy.count("/commits") > logs


@in_runs_of_each_size
def test_a_protected_commit_must_have_its_metadata(spark: SparkSession, repository: LakeRepository, size: str) -> None:
    """What a file that is gone protects is unknown. It may come back, for example from a version of the bucket."""
    repository.keep_days(10)
    repository.put("a")
    repository.commit(age_days=3)
    expired = audit(repository, repository.put_stray("data/s/audited"))
    file = repository.metadata_file(repository.metarange_of(expired))
    content = repository.store.read(file)
    repository.store.delete_many([file])
    collector = Collector(spark, repository, safety=AUDITED)
    with pytest.raises(
        ObjectNotFoundError, match=f"{file} does not exist, but it is the metarange of commit {expired}"
    ):
        collector.collect_and_mark()
    repository.store.put(file, content)
    assert marked(repository, collector.collect_and_mark()) == set()


@in_runs_of_each_size
def test_no_old_list_makes_what_was_committed_never_committed(
    spark: SparkSession, in_s3: LakeRepository, old_lists: OldLists, size: str
) -> None:
    """Somebody may approve the objects that were never committed, and no other."""
    in_s3.keep_days(10)
    in_s3.put("a")
    in_s3.commit(age_days=3)
    old_lists.note()
    audit(in_s3, in_s3.put_stray("data/s/audited"))
    collector = Collector(spark, in_s3)
    collector.collect(until="kept")
    with old_lists.of(in_s3), pytest.raises(StorageError, match=NAMED):
        collector.materialize("candidates")


def test_what_does_not_exist_is_not_missed(tmp_path: Path) -> None:
    store = open_store(StoreLocation(tmp_path.as_uri()))
    names = [f"{number:064x}" for number in range(2500)]
    listed = metarange_ids([METADATA_FOLDER + name for name in names[:10]])
    refuse_old_list(store, listed, metarange_ids(names))
    refuse_old_list(store, listed, metarange_ids([]))
    store.put(METADATA_FOLDER + names[-1], b"")
    with pytest.raises(StorageError, match=f"but not {METADATA_FOLDER}{names[-1]}, which exists"):
        refuse_old_list(store, listed, metarange_ids(names))
