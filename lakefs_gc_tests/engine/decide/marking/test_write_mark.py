"""The durable decision, as a run writes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.decide.marking import write_mark as mark_module
from lakefs_gc.engine.decide.marking.write_mark import write_mark
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.mark_parts import overview
from lakefs_gc.errors import InputOrderError, MarkError
from lakefs_gc.formats.report import Summary
from lakefs_gc_tests.support.collector import Collector, marked
from lakefs_gc_tests.support.faulty_s3 import Answer, Request, deleted, error
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository, keys_below

OLD_LAYOUT = "4024870a35b7869697429ebc31187143"
"""A name at the root as lakeFS gave it."""


@dataclass(frozen=True)
class Run:
    """A run up to its candidates: three in slices and one at the root."""

    repository: LakeRepository
    collector: Collector
    expected: set[str]


@pytest.fixture(scope="module")
def finished(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with Lake(tmp_path_factory.mktemp("lake")) as lake:
        repository = lake.repository()
        expired = repository.put("expired", "12345678")
        repository.commit(age_days=30)
        repository.delete("expired")
        repository.put("kept")
        repository.commit(age_days=20)
        repository.keep_days(10)
        strays = {repository.put_stray(key, b"123") for key in ("data/zzz/a", "data/zzz/b ä", OLD_LAYOUT)}
        collector = Collector(spark, repository)
        collector.collect()
        yield Run(repository, collector, {expired, *strays})


def test_a_mark_says_what_the_run_found(finished: Run, spark: SparkSession) -> None:
    collector, store = finished.collector, finished.repository.store
    mark = collector.mark()
    paths = MarkPaths.of(mark.mark_id)
    assert marked(finished.repository, mark) == finished.expected
    assert (mark.candidates, mark.candidate_bytes) == (4, 8 + 3 * 3)
    assert mark.reasons == {
        "expired": {"objects": 1, "size_bytes": 8},
        "never_committed": {"objects": 3, "size_bytes": 9},
    }
    assert mark.counts == {"store_listing": 5, "uncommitted": 0, "active_ranges": 1, "committed": 1}
    assert mark.cutoff == collector.run.cutoff
    assert mark.mark_id == collector.manifest("uncommitted").facts["run_id"]
    assert mark.run_key == collector.run_key
    assert collector.read_mark(mark.mark_id) == mark

    # lakeFS's own client reads the report with Spark.
    deleted = spark.read.parquet(str(finished.repository.folder / paths.report.deleted))
    assert dict(deleted.dtypes)["address"] == "string"
    assert {row["address"] for row in deleted.collect()} == finished.expected
    [summary] = spark.read.json(str(finished.repository.folder / paths.summary)).collect()
    assert (summary["success"], summary["num_deleted_objects"], summary["run_id"]) == (True, 4, mark.mark_id)
    text = "".join(store.read(key).decode() for key in keys_below(store, paths.report.deleted_text))
    assert set(text.splitlines()) == finished.expected
    said = Summary.from_json(store.read(paths.summary), "summary")
    listed = sorted(key for key in collector.addresses("store_listing") if key.startswith("data/"))
    assert said.first_slice == listed[0].split("/")[1]
    assert said.cutoff_time == mark.cutoff

    # Made again, it is the same mark; the folder is not touched.
    before = {key: store.read(key) for key in keys_below(store, paths.report.folder)}
    assert collector.mark() == mark
    assert {key: store.read(key) for key in keys_below(store, paths.report.folder)} == before


def test_what_a_person_looks_at(finished: Run) -> None:
    mark = finished.collector.mark()
    seen = overview(finished.repository.store, mark)
    totals = {total.prefix: (total.objects, total.size_bytes) for total in seen.largest_prefixes}
    [slice_of_expired] = totals.keys() - {"data/zzz/", "(root)"}
    assert totals == {slice_of_expired: (1, 8), "data/zzz/": (2, 6), "(root)": (1, 3)}
    assert [total.prefix for total in seen.largest_prefixes] == [slice_of_expired, "data/zzz/", "(root)"]
    assert {row["address"] for row in seen.sample} == finished.expected
    assert all(row["size"] in (3, 8) for row in seen.sample)


def test_a_mark_is_never_replaced(finished: Run) -> None:
    mark = finished.collector.mark()
    finished.collector.materialize("candidates")
    with pytest.raises(MarkError, match=r"already has a mark .* made from other candidates"):
        finished.collector.mark()
    assert finished.collector.read_mark(mark.mark_id) == mark
    remove(finished, mark.mark_id)


def remove(run: Run, mark_id: str) -> None:
    store = run.repository.store
    store.delete_many(list(keys_below(store, MarkPaths.of(mark_id).report.folder)))


def test_parts_of_an_attempt_that_did_not_end_are_no_part_of_the_mark(
    finished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mark_module, "_ROWS_PER_PART", 2)
    mark = finished.collector.mark()
    assert len(mark.parts) == 2
    assert marked(finished.repository, mark) == finished.expected
    store, paths = finished.repository.store, MarkPaths.of(mark.mark_id)
    store.delete_many([paths.summary])  # it did not end
    store.put(f"{paths.report.deleted}part-00099.snappy.parquet", store.read(mark.parts[0].key))
    with pytest.raises(MarkError, match="did not finish"):
        finished.collector.read_mark(mark.mark_id)
    again = finished.collector.mark()
    assert marked(finished.repository, again) == finished.expected
    assert set(keys_below(store, paths.report.deleted)) == {part.key for part in again.parts}
    remove(finished, mark.mark_id)


def test_parts_of_an_attempt_that_cannot_be_removed_leave_no_mark(
    spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path
) -> None:
    """lakeFS's own client sweeps whatever lies in the folder of a mark."""
    with Lake(tmp_path / "lake-in-s3", store_in_s3.location) as lake:
        repository = lake.repository()
        repository.put_stray("data/s/a")
        collector = Collector(spark, repository)
        collector.collect()
        paths = MarkPaths.of(collector.manifest("uncommitted").facts["run_id"])
        left = f"{paths.report.deleted}part-00007.snappy.parquet"
        repository.store.put(left, b"of an attempt that did not end")

        def refuse(request: Request) -> Answer | None:
            failures = dict.fromkeys(request.keys, ("AccessDenied", "told by the test"))
            return deleted(request.keys, failures) if request.operation == "DeleteObjects" else None

        store_in_s3.server.faults.append(refuse)
        with pytest.raises(MarkError, match=f"1 files of an unfinished mark .* cannot be deleted, e.g. {left}"):
            collector.mark()
        store_in_s3.server.faults.clear()
        assert repository.store.stat_many([paths.manifest, paths.summary]) == {}
        assert marked(repository, collector.mark()) == {"data/s/a"}
        assert repository.store.stat_many([left]) == {}


@pytest.mark.parametrize("lying", [("HeadObject",), ("HeadObject", "GetObject")])
def test_a_wrong_answer_about_a_complete_mark_removes_none_of_its_files(
    spark: SparkSession, store_in_s3: StoreInS3, tmp_path: Path, lying: tuple[str, ...]
) -> None:
    """Of a proxy, while the mark is materialized again. Its approval and what its sweep did are beside it."""
    with Lake(tmp_path / "lake-in-s3", store_in_s3.location) as lake:
        repository = lake.repository()
        repository.put_stray("data/s/a")
        collector = Collector(spark, repository)
        mark = collector.collect_and_mark()
        paths = MarkPaths.of(mark.mark_id)
        repository.store.put(paths.approval, b"{}")
        summary = store_in_s3.key(repository, paths.summary)
        before = list(keys_below(repository.store, paths.report.folder))

        def denies(request: Request) -> Answer | None:
            if request.operation not in lying or request.keys != (summary,):
                return None
            return error(404, "NoSuchKey") if request.operation == "GetObject" else Answer(404)

        store_in_s3.server.faults.append(denies)
        if "GetObject" in lying:
            with pytest.raises(MarkError, match=r"was complete once: 2 files .* e\.g\. lakefs-gc/approval\.json"):
                collector.mark()
        else:
            assert collector.mark() == mark
        store_in_s3.server.faults.clear()
        assert list(keys_below(repository.store, paths.report.folder)) == before


def test_a_mark_that_was_swept_is_not_made_again_in_its_folder(finished: Run) -> None:
    """Somebody deleted its summary."""
    mark = finished.collector.mark()
    store, paths = finished.repository.store, MarkPaths.of(mark.mark_id)
    for record in (paths.approval, f"{paths.ledger}x", f"{paths.claims}x", f"{paths.restores}x", paths.sweep_summary):
        store.put(record, b"{}")
        store.delete_many([paths.summary])
        before = list(keys_below(store, paths.report.folder))
        with pytest.raises(MarkError, match="was complete once: 1 files"):
            finished.collector.mark()
        assert list(keys_below(store, paths.report.folder)) == before
        store.delete_many([record])
    remove(finished, mark.mark_id)


def test_a_listing_made_after_the_candidates_is_refused(finished: Run) -> None:
    with pytest.raises(InputOrderError, match="store_listing was materialized again"):
        write_mark(
            finished.collector.begin(),
            candidates=finished.collector.dataset("candidates"),
            counts={},
            mark_id="m1",
        )


def test_a_mark_has_each_candidate(finished: Run) -> None:
    candidates, store = finished.collector.dataset("candidates"), finished.repository.store
    fewer = replace(candidates, read=lambda: candidates.dataframe.where(f"address != '{OLD_LAYOUT}'"))
    with pytest.raises(MarkError, match="3 objects were written to the mark, but there are 4 candidates"):
        write_mark(finished.collector.run, candidates=fewer, counts={}, mark_id="m2")
    paths = MarkPaths.of("m2")
    assert store.stat_many([paths.manifest, paths.summary]) == {}, "it is no mark"
    remove(finished, "m2")


def test_a_mark_of_nothing_can_be_read_by_either_tool(spark: SparkSession, repository: LakeRepository) -> None:
    collector = Collector(spark, repository)
    mark = collector.mark_objects()
    assert (mark.candidates, mark.candidate_bytes, marked(repository, mark)) == (0, 0, set())
    deleted = spark.read.parquet(str(repository.folder / MarkPaths.of(mark.mark_id).report.deleted))
    assert (deleted.dtypes, deleted.count()) == ([("address", "string")], 0)
    assert collector.read_mark(mark.mark_id) == mark
    assert sum(outcome.objects for outcome in collector.sweep(mark, live=[]).outcomes.values()) == 0
