"""What came back to life between a mark and its sweep is not deleted (rule 6)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.errors import LakeFSGCError, SafetyError
from lakefs_gc.formats.commits_csv import write_active_commits
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.server import LakeFSServer
from lakefs_gc_tests.collector import Collector, Lake, LakeRepository, counts, keys_below, marked
from lakefs_gc_tests.engine.faulty_store import StoreInS3
from lakefs_gc_tests.lakefs_proxy import Answered, Asked, LakeFSProxy


def test_what_came_back_is_kept(spark: SparkSession, lake: Lake, repository: LakeRepository) -> None:
    """Each object comes back in another way; one does not."""
    other = lake.repository("other")
    paths = {name: repository.put(name) for name in ("reverted", "branched", "garbage-1", "restored")}
    first = repository.commit(age_days=100)
    for path in ("branched", "garbage-1"):
        repository.delete(path)
    repository.commit(age_days=90)
    repository.delete("reverted")
    deletion = repository.commit(age_days=80)
    repository.put("own")
    repository.delete("restored")
    longer = repository.commit(age_days=70)
    repository.branch("long", longer)
    paths["long"] = repository.put("long", branch="long")
    repository.commit(branch="long", age_days=60)
    repository.delete("long", branch="long")
    repository.commit(branch="long", age_days=50)
    repository.commit(branch="long", age_days=40, allow_empty=True)
    repository.commit(age_days=30, allow_empty=True)
    repository.commit(age_days=1, allow_empty=True)
    for name in ("staged", "imported", "garbage-2"):
        paths[name] = repository.put_stray(f"data/s/{name}")
    repository.keep_days(10)

    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == set(paths.values())

    repository.revert(deletion)
    repository.commit(allow_empty=True)
    repository.branch("from-expired", first)
    repository.delete("garbage-1", branch="from-expired")  # staged: the commit still has it
    repository.stage("staged", paths["staged"], size_bytes=len("stray"))
    repository.keep_days(10, long=55)
    other.stage("imported", f"local://lake/{paths['imported']}")
    other.commit()
    result = collector.sweep(mark)

    # The new branch brings back everything that its commit has.
    gone = {paths["garbage-2"]}
    assert {address for address, outcome in collector.swept.items() if outcome == "deleted"} == gone
    assert counts(result) == {"deleted": 1, "resurrected": len(paths) - 1}
    assert repository.read("reverted") == b"reverted"
    assert repository.read("branched", "from-expired") == b"branched"
    assert repository.read("restored", first) == b"restored"
    assert repository.read("staged") == b"stray"
    assert repository.objects() >= set(paths.values()) - gone
    result.raise_if_incomplete()


def test_a_second_look_that_is_not_whole_deletes_nothing(
    spark: SparkSession, lake: Lake, repository: LakeRepository, proxy: LakeFSProxy
) -> None:
    garbage = repository.put("a")
    repository.commit(age_days=30)
    repository.delete("a")
    repository.put("b")
    head = repository.commit(age_days=20)
    repository.keep_days(10)
    server = LakeFSServer(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    collector = Collector(spark, repository, server=server)
    mark = collector.collect_and_mark()
    assert marked(repository, mark) == {garbage}

    def empty(asked: Asked, answer: Answered) -> Answered:
        if answer.json["completed"]:
            file = answer.json["result"]["gc_commits_location"].removeprefix(repository.namespace)
            repository.store.put(file, write_active_commits([(head, "")]))
        return answer

    proxy.instead("/gc/prepare_commits/status", empty)
    with pytest.raises(SafetyError, match="no committed object was found"):
        collector.sweep(mark)
    proxy.spoil.clear()
    metarange = repository.metadata_file(repository.metarange_of(head))
    [lost] = read_metarange(repository.store.read(metarange), metarange).column("range_id").to_pylist()
    repository.store.delete_many([repository.metadata_file(lost)])
    with pytest.raises(LakeFSGCError, match=lost):
        collector.sweep(mark)
    assert garbage in repository.objects()


def test_each_range_is_read_once(spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path) -> None:
    """However many commits and branches share it; the second look reads it once more, since nothing is cached."""
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
        collector.collect()
        metadata = set(keys_below(repository.store, "_lakefs/"))
        reads = Counter(store_in_s3.reads_by_workers())
        assert {key: reads[store_in_s3.key(repository, key)] for key in active} == dict.fromkeys(active, 1)
        ranges_and_metaranges = {key for key in metadata if len(key) == len("_lakefs/") + 64}
        assert ranges_and_metaranges > active
        # Metaranges are read once more for the reason of each candidate.
        assert all(reads[store_in_s3.key(repository, key)] <= 2 for key in ranges_and_metaranges)
        mark = collector.mark()
        assert marked(repository, mark) == {garbage}
        assert counts(collector.sweep(mark)) == {"deleted": 1}
        assert garbage not in repository.objects()
