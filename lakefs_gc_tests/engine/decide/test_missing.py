"""What is referenced and not there (rule 7)."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import ListingSettings
from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.check import Severity
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.sweep import deletion
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import StaleLookError
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.collector import STAGES, Collector, counts
from lakefs_gc_tests.support.inventory_report import Report
from lakefs_gc_tests.support.lake import Lake, LakeRepository


def missing(collector: Collector) -> dict[str, tuple[str, str]]:
    rows = collector.dataset("missing").dataframe.collect()
    assert len({row["address"] for row in rows}) == len(rows)
    return {row["address"]: (row["found_in"], row["deleted_by"]) for row in rows}


def test_lost_objects_are_listed(spark: SparkSession, repository: LakeRepository) -> None:
    there, lost, both = (repository.put(name) for name in ("there", "lost", "both"))
    repository.commit()
    repository.stage("copy", both)
    staged_lost, late = repository.put("staged"), repository.put("late")
    elsewhere = repository.put_stray("elsewhere/x")
    repository.stage("elsewhere", elsewhere)
    repository.stage("nowhere", "elsewhere/y")
    repository.keep_days(10)
    late_content = repository.store.read(late)
    repository.store.delete_many([lost, both, staged_lost, late])

    collector = Collector(spark, repository)
    # Uploaded after the store was listed.
    collector.collect(before={"uncommitted": lambda: repository.put_stray(late, late_content)})
    found = missing(collector)
    assert found.pop(both)[0] in ("committed", "uncommitted")
    assert found == {lost: ("committed", ""), staged_lost: ("uncommitted", ""), "elsewhere/y": ("uncommitted", "")}
    assert collector.manifest("missing").facts["lost"] == 4
    assert collector.manifest("unmatched").facts["not_in_store"] >= 6
    assert collector.addresses("candidates") == set()
    assert there in repository.objects()


def test_what_our_own_sweep_deleted_is_told_apart(spark: SparkSession, repository: LakeRepository) -> None:
    """A retention that grows after a sweep makes commits active again whose objects are gone."""
    expired, gone = repository.put("a"), repository.put("b")
    repository.commit(age_days=40)
    repository.delete("a")
    repository.delete("b")
    repository.commit(age_days=30)
    repository.commit(age_days=25, allow_empty=True)
    repository.keep_days(10)
    collector = Collector(spark, repository)
    mark = collector.collect_and_mark()
    repository.store.delete_many([gone])  # by somebody else
    collector.sweep(mark)
    assert collector.swept == {expired: "deleted", gone: "already_gone"}
    repository.keep_days(100)
    again = Collector(spark, repository)
    again.collect()
    assert missing(again) == {expired: ("committed", mark.mark_id), gone: ("committed", "")}
    assert again.manifest("missing").facts["lost"] == 1


def test_nothing_is_missing(spark: SparkSession, repository: LakeRepository) -> None:
    repository.put("a")
    repository.commit()
    repository.put("b", age_hours=0)
    repository.keep_days(10)
    collector = Collector(spark, repository)
    collector.collect()
    assert missing(collector) == {}
    assert collector.manifest("unmatched").rows == 0


def test_a_listing_without_old_live_objects_is_not_whole(spark: SparkSession, repository: LakeRepository) -> None:
    """A folder that is not mounted while the store is listed looks empty."""
    keys = [repository.put(f"live/{number}", age_hours=24 * 30) for number in range(3)]
    repository.put("young", age_hours=48)
    repository.commit()
    repository.put_stray("data/slice/garbage")
    data, away = repository.folder / "data", repository.folder.parent / "away"
    collector = Collector(spark, repository)
    data.rename(away)
    data.mkdir()
    collector.materialize("store_listing")
    data.rmdir()
    away.rename(data)
    collector.materialize(*STAGES[1:])
    mark = collector.mark()
    assert collector.manifest("missing").facts["unlisted"] == len(keys)
    assert missing(collector) == {}
    [check] = [check for check in mark.checks if not check.passed]
    assert (check.name, check.severity) == ("live_objects_exist", Severity.WARN)
    assert "3 live objects exist and are older than the cutoff" in check.message
    assert not check.blocks_sweep


def test_what_an_old_report_cannot_have_is_not_missing_from_it(
    spark: SparkSession, lake: Lake, repository: LakeRepository, tmp_path: Path
) -> None:
    """A weekly report lacks what was uploaded in the eight days before the cutoff."""
    old = repository.put("old", age_hours=24 * 30)
    repository.put("since", age_hours=204)
    repository.commit()
    report = Report(open_store(StoreLocation(f"{tmp_path.as_uri()}/reports/lake/daily")))
    report.write_s3_keys(repository.namespace, [old], utc_now() - timedelta(hours=213))
    listing = ListingSettings(source="inventory", inventory_url=report.store.location.url, max_inventory_age_hours=240)
    collector = Collector(spark, repository, settings=lake.settings.model_copy(update={"listing": listing}))
    collector.collect()
    assert collector.manifest("missing").facts["unlisted"] == 0


@pytest.mark.of_ci("locked")
@pytest.mark.parametrize(
    "recorded", [("intent", "locked"), ("intent", "deleted", "resurrected")], ids=lambda recorded: recorded[-1]
)
def test_a_delete_before_the_object_was_seen_hides_no_later_loss(
    spark: SparkSession, repository: LakeRepository, recorded: tuple[str, ...]
) -> None:
    """A lock refused the delete. Or the object came back by hand, and the sweep of a later mark kept it."""
    repository.put("live")
    repository.commit()
    key = repository.put_stray("data/s/a", b"1")
    for number, outcome in enumerate(recorded):
        folder = MarkPaths.of(("g" if outcome == "resurrected" else "h") * 20).ledger
        writer = ledger.LedgerWriter(repository.store, folder, 0, f"20260101T000000000000-{number:05}").chunk(0)
        record = {"address": key, "size": 1, "outcome": outcome, "error": ""}
        batch = pa.RecordBatch.from_pylist([record], schema=ledger.RECORD)
        if outcome == ledger.INTENT:
            writer.intent(batch)
        else:
            writer.outcome(batch)
        time.sleep(1.1)  # some stores record whole seconds
    repository.stage("again", key)
    repository.commit()
    repository.store.delete_many([key])  # by another program: data are lost
    collector = Collector(spark, repository)
    collector.collect()
    assert missing(collector) == {key: ("committed", "")}


@pytest.mark.parametrize("is_retracted", [True, False])
def test_an_intent_that_was_not_carried_out_hides_no_later_loss(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch, is_retracted: bool
) -> None:
    """A pass is stopped after its intent, or its worker is killed there and a later sweep keeps the object."""
    repository.put("live")
    repository.commit()
    key = repository.put_stray("data/s/a", b"1")
    collector = Collector(spark, repository)
    mark = collector.mark_objects(key)
    if is_retracted:
        with monkeypatch.context() as patched:
            patched.setattr(deletion, "is_stopped", lambda *_: True)
            with pytest.raises(StaleLookError):
                collector.sweep(mark, live=[], small=True)
    else:
        record = {"address": key, "size": 1, "outcome": ledger.INTENT, "error": ""}
        writer = ledger.LedgerWriter(
            repository.store, MarkPaths.of(mark.mark_id).ledger, 0, "20260101T000000000000-00001"
        )
        writer.chunk(0).intent(pa.RecordBatch.from_pylist([record], schema=ledger.RECORD))
        time.sleep(1.1)  # some stores record whole seconds
        assert counts(collector.sweep(mark, live=[key])) == {"resurrected": 1}
    assert key in repository.objects()
    repository.stage("again", key)
    repository.commit()
    repository.store.delete_many([key])  # by another program: data are lost
    again = Collector(spark, repository)
    again.collect()
    assert missing(again) == {key: ("committed", "")}
    assert again.manifest("missing").facts["lost"] == 1
