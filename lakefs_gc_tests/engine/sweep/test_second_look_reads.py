"""What a second look reads, what it need not read again, and what it accepts as unknown (rules 6 and 12)."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.collect.references.committed import write_addresses
from lakefs_gc.engine.records.check import OTHER_REPOSITORIES_WERE_READ, SERVER_LIST_IS_COMPLETE
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.mark_parts import PART_SCHEMA, part_content
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.sweep import commit_readings, second_look
from lakefs_gc.engine.sweep.at_mark import Accepted, SeenAtMark, seen_at_mark
from lakefs_gc.engine.workspace.workspace import Dataset, Workspace, utc_now
from lakefs_gc.errors import (
    CorruptFileError,
    ObjectNotFoundError,
    SafetyError,
    SparkFailedError,
)
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.client_marks import UNIFIED, write_client_mark
from lakefs_gc_tests.support.collector import Collector, counts, marked
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository, keys_below
from lakefs_gc_tests.support.lakefs_proxy import LakeFSProxy


@pytest.mark.parametrize("version", ["lakefs_gc", "address_reading"])
def test_what_another_version_read_is_read_again(spark: SparkSession, repository: LakeRepository, version: str) -> None:
    repository.put("a")
    repository.commit()
    repository.put_stray("data/x")
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    run = collector.begin()
    assert seen_at_mark(collector.context, run, mark) is not None
    by_another = replace(mark, versions=mark.versions | {version: "0"})
    assert seen_at_mark(collector.context, run, by_another) is None
    elsewhere = replace(run, folder_mounts=(("local:///a/", "file:///b/"),))
    assert seen_at_mark(collector.context, elsewhere, mark) is None


def test_a_mark_that_was_rewritten_is_looked_at_whole(spark: SparkSession, repository: LakeRepository) -> None:
    """Ranges that were read for a mark are left out only for the mark that was made then (rule 12).

    A part and the manifest are rewritten, consistently, to name a live object of an older commit.
    """
    live = repository.put("old")
    repository.commit(age_days=5)
    repository.delete("old")  # else the look for hidden twins finds it where the branch shows it
    repository.put("new")
    repository.commit()
    repository.keep_days(10)
    garbage = repository.put_stray("data/s/garbage")
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {garbage}
    info = repository.store.stat_many([live])[live]
    [part] = mark.parts
    facts = {"size": info.size_bytes, "last_modified": info.last_modified, "reason": "never_committed"}
    rows = pa.Table.from_pylist([{"address": live, **facts}], PART_SCHEMA)
    content = part_content(rows)
    repository.store.put(part.key, content)
    forged = replace(
        mark,
        parts=(replace(part, sha256=hashlib.sha256(content).hexdigest(), size_bytes=info.size_bytes),),
        candidate_bytes=info.size_bytes,
    )
    forged = forged.sealed()
    repository.store.put(MarkPaths.of(mark.mark_id).manifest, forged.to_json())
    read = collector.read_mark(mark.mark_id)
    assert marked(repository, read) == {live}, "nothing in the mark's own files shows it"
    collector.approve(read)
    assert counts(collector.sweep(read)) == {"resurrected": 1}
    assert live in repository.objects()


def test_commits_that_were_not_checked_end_the_sweep(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a")
    repository.commit(age_days=5)
    repository.put("b")
    repository.commit()
    repository.keep_days(10)
    garbage = repository.put_stray("data/s/garbage")
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    collector.safety = SafetyParameters(max_commits=1)
    with pytest.raises(SafetyError, match="were not checked") as raised:
        collector.sweep(mark)
    # The check passed for this mark. So an override of it accepts nothing, and the remedy asks for a new mark.
    assert "make a new mark" in (raised.value.remedy or "")
    with pytest.raises(SafetyError, match="were not checked"):
        collector.sweep(mark, overrides=["server_list_is_complete"])
    assert garbage in repository.objects()
    collector = Collector(spark, repository, safety=SafetyParameters(max_commits=1))
    mark = collector.collect_and_mark()
    assert counts(collector.sweep(mark, overrides=["server_list_is_complete"])) == {"deleted": 1}


@pytest.mark.of_ci
@pytest.mark.executors
def test_each_range_is_read_once(spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path) -> None:
    """However many commits and branches share it; the second look reads what is new."""
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        repository = lake.repository()
        active: set[str] = set()
        for number in range(4):
            repository.put(f"path/{number}")
            commit = repository.commit(age_days=8 - number)
            metarange = repository.metadata_file(repository.metarange_of(commit))
            rows = read_metarange(repository.store.read(metarange), metarange)
            active |= {repository.metadata_file(id_) for id_ in rows.column("range_id").to_pylist()}
            repository.branch(f"branch-{number}")
        garbage = repository.put("staged")
        repository.delete("staged")
        repository.keep_days(10)
        collector = Collector(spark, repository)
        store_in_s3.server.requests.clear()
        collector.collect(until="unmatched")
        reads = Counter(store_in_s3.reads_by_workers())
        assert {key: reads[store_in_s3.key(repository, key)] for key in active} == dict.fromkeys(active, 1)
        collector.materialize("missing", "kept", "candidates")
        metadata = set(keys_below(repository.store, "_lakefs/"))
        reads = Counter(store_in_s3.reads_by_workers())
        ranges_and_metaranges = {key for key in metadata if len(key) == len("_lakefs/") + 64}
        assert ranges_and_metaranges > active
        # What the heads may hide, and the reason of each candidate, are looked for in what was read already.
        assert {key: reads[store_in_s3.key(repository, key)] for key in ranges_and_metaranges} == dict.fromkeys(
            ranges_and_metaranges, 1
        )
        mark = collector.mark()
        assert marked(repository, mark) == {garbage}
        repository.put("path/new")
        commit = repository.commit()
        metarange = repository.metadata_file(repository.metarange_of(commit))
        rows = read_metarange(repository.store.read(metarange), metarange).column("range_id").to_pylist()
        store_in_s3.server.requests.clear()
        assert counts(collector.sweep(mark, objects_per_request=1)) == {"deleted": 1}
        assert garbage not in repository.objects()
        reads = Counter(store_in_s3.reads_by_workers())
        ranges = active | {repository.metadata_file(range_id) for range_id in rows}
        read = {key: reads[store_in_s3.key(repository, key)] for key in ranges}
        new = {repository.metadata_file(range_id) for range_id in rows} - active
        assert new
        # For what is committed; what the head may hide, which is asked of every head again, is in the same range.
        assert {key: read[key] for key in ranges} == {key: int(key in new) for key in ranges}


def committed_and_replaced(repository: LakeRepository, key: str) -> str:
    """Commit an object that is stored, and remove it in the next commit; the metarange that has it."""
    repository.stage("back", key, size_bytes=len("stray"))
    commit = repository.commit(age_days=1)
    repository.delete("back")
    repository.commit()
    return repository.metadata_file(repository.metarange_of(commit))


def test_without_rules_a_metarange_that_is_lost_since_the_mark(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("old")
    old = repository.metadata_file(repository.metarange_of(repository.commit(age_days=30)))
    repository.delete("old")
    repository.put("head")
    repository.commit(age_days=20)
    garbage = {repository.put_stray(f"data/s/{name}") for name in ("came-back", "garbage")}
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == garbage
    live = repository.objects() - garbage

    # What is new since the mark must be read.
    new = committed_and_replaced(repository, "data/s/came-back")
    content = repository.store.read(new)
    repository.store.delete_many([new])
    with pytest.raises(ObjectNotFoundError, match=new):
        collector.sweep(mark)
    assert repository.objects() >= garbage
    repository.store.put(new, content)
    # What was read for the mark has nothing of the mark in it.
    repository.store.delete_many([old])
    collector.sweep(mark)
    assert collector.swept == {"data/s/came-back": "resurrected", "data/s/garbage": "deleted"}
    assert repository.objects() == live | {"data/s/came-back"}


def test_commits_that_grew_beyond_the_limit_since_the_mark(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a")
    repository.commit(age_days=3)
    garbage = repository.put_stray("data/s/garbage")
    collector = Collector(spark, repository, safety=SafetyParameters(max_commits=2))
    mark = collector.collect_and_mark()
    repository.commit(age_days=1, allow_empty=True)
    for days in (None, 10):
        if days:
            repository.keep_days(days)
        with pytest.raises(SafetyError, match="were not checked"):
            collector.sweep(mark)
        assert garbage in repository.objects()
    collector.safety = SafetyParameters(max_commits=3)
    collector.sweep(mark)
    assert collector.swept == {garbage: "deleted"}


@pytest.mark.of_ci
@pytest.mark.parametrize("days", [None, 10])
def test_looks_ask_for_new_commits_alone(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy, days: int | None
) -> None:
    """What a commit has never changes: a sweep asks for it once, however often it looks."""
    repository.put("a")
    repository.commit(age_days=3)
    for number in range(5):
        repository.branch(f"branch-{number}")
        repository.put(f"own-{number}", branch=f"branch-{number}")
        repository.commit(branch=f"branch-{number}", age_days=2)
    garbage = repository.put_stray("data/s/garbage")
    if days:
        repository.keep_days(days)
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    collector = Collector(spark, repository, server=server)
    mark = collector.collect_and_mark()
    collector.server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    look = collector.second_look(collector.begin(), mark)
    suspects = spark.createDataFrame([(garbage, 5)], schemas.SIZED)
    requests = []
    for _ in range(3):
        proxy.asked.clear()
        look(suspects)
        heads = sum("/commits/" in asked.path for asked in proxy.asked)
        requests.append((proxy.count("/commits"), heads))
        repository.commit(allow_empty=True)
    # The history of each of five branches, which is main's, too; then the head that moved.
    assert requests == [(5, 0), (1, 0), (1, 0)]


def test_an_object_that_the_store_did_not_show_during_the_look_is_kept(
    spark: SparkSession, repository: LakeRepository
) -> None:
    """A replica of the store answers one HEAD with 404, so nobody searches for the hidden twin of that size."""
    repository.put_stray("data/s/one", b"12345")
    repository.stage("p", "data/s/one", size_bytes=5, checksum="c")
    repository.commit()
    twin, gone = repository.put_stray("data/s/two", b"12345"), repository.put_stray("data/s/gone")
    repository.stage("p", twin, size_bytes=5, checksum="c")
    write_client_mark(repository.store, UNIFIED, [twin, gone], cutoff=utc_now() - timedelta(hours=24))
    collector = Collector(spark, repository)
    mark = collector.read_mark("m1")
    repository.store.delete_many([gone])
    second_look, file, away = collector.second_look(collector.begin(), mark), repository.folder / twin, "away"

    def look(objects: DataFrame) -> DataFrame:
        file.rename(repository.folder.parent / away)
        try:
            return second_look(objects)
        finally:
            (repository.folder.parent / away).rename(file)

    collector.sweep(mark, look=look)
    assert collector.swept == {twin: "resurrected", gone: "already_gone"}
    assert twin in repository.objects()


def test_an_override_of_a_check_that_passed_accepts_nothing(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a")
    repository.commit()
    repository.put_stray("data/slice/garbage")
    mark = Collector(spark, repository).collect_and_mark()
    accepted = Accepted.of(mark, (OTHER_REPOSITORIES_WERE_READ, SERVER_LIST_IS_COMPLETE))
    assert not accepted.others.others_unread
    assert not accepted.commits_unchecked


def mark_what_comes_back(spark: SparkSession, repository: LakeRepository) -> tuple[Collector, Mark, str]:
    """Mark an object, which a commit brings back then. Returns its key, too."""
    repository.put("a")
    repository.commit()
    repository.keep_days(10)
    garbage = repository.put_stray("data/s/garbage")
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {garbage}
    repository.stage("back", garbage)
    repository.commit()
    return collector, mark, garbage


@pytest.mark.executors
def test_a_look_whose_workers_do_not_report_all_ranges_deletes_nothing(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The range of the commit is read in a task whose result is lost."""
    collector, mark, garbage = mark_what_comes_back(spark, repository)

    def lose(*arguments: Any, **options: Any) -> DataFrame:
        return write_addresses(*arguments, **options).where("files_read = 0")

    monkeypatch.setattr(commit_readings, "write_addresses", lose)
    with pytest.raises(SparkFailedError, match="should have reported 1 files_read, but the reports have 0"):
        collector.sweep(mark)
    assert garbage in keys_below(repository.store, "data/")


def test_a_look_whose_ranges_are_others_than_were_found_deletes_nothing(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the stage is read with another content."""
    collector, mark, garbage = mark_what_comes_back(spark, repository)
    read = Workspace.read

    def swapped(workspace: Workspace, spark: SparkSession, run_key: str, stage: str, *schema: Any) -> Dataset:
        dataset = read(workspace, spark, run_key, stage, *schema)
        if "active_ranges" not in stage or stage == "active_ranges":
            return dataset
        ranges = [tuple(row) for row in dataset.dataframe.collect()]
        others = local_rows(spark, [ranges[0]] * len(ranges), schemas.ACTIVE_RANGES)
        return Dataset(lambda: others, dataset.manifest, dataset.files)

    monkeypatch.setattr(Workspace, "read", swapped)
    with pytest.raises(CorruptFileError, match="it has other rows than were written"):
        collector.sweep(mark)
    assert garbage in keys_below(repository.store, "data/")


def ranges_now(spark: SparkSession, repository: LakeRepository) -> DataFrame:
    """Those of the look: with them in the place of the mark's, none would be left to read."""
    now = Collector(spark, repository)
    now.collect(until="active_ranges")
    return now.dataset("active_ranges").dataframe


def test_the_ranges_of_a_mark_that_change_during_the_look_end_it(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were compared before."""
    collector, mark, garbage = mark_what_comes_back(spark, repository)
    ranges = ranges_now(spark, repository)

    def changed(context: RunContext, run: GCRun, mark: Mark) -> SeenAtMark | None:
        seen = seen_at_mark(context, run, mark)
        assert seen is not None
        return replace(seen, ranges=Dataset(lambda: ranges, seen.ranges.manifest, seen.ranges.files))

    monkeypatch.setattr(second_look, "seen_at_mark", changed)
    with pytest.raises(CorruptFileError, match="active_ranges: it has other rows than were written"):
        collector.sweep(mark)
    assert garbage in keys_below(repository.store, "data/")


def test_the_ranges_of_a_mark_that_changed_are_read_again(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, mark, garbage = mark_what_comes_back(spark, repository)
    ranges = ranges_now(spark, repository)
    read = Workspace.read

    def changed(workspace: Workspace, spark: SparkSession, run_key: str, stage: str, *schema: Any) -> Dataset:
        dataset = read(workspace, spark, run_key, stage, *schema)
        of_mark = stage == "active_ranges" and run_key == mark.run["run_key"]
        return Dataset(lambda: ranges, dataset.manifest, dataset.files) if of_mark else dataset

    monkeypatch.setattr(Workspace, "read", changed)
    assert counts(collector.sweep(mark)) == {"resurrected": 1}
    assert garbage in keys_below(repository.store, "data/")
    run = collector.begin()
    assert seen_at_mark(collector.context, run, mark) is None
