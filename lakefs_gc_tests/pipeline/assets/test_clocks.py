"""The store's clock, in the assets: each stage asks for it, and the age of a mark goes by it (rule 2)."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.errors import ApprovalError, ClockSkewError, SafetyError
from lakefs_gc.pipeline.assets import sweep as sweep_asset
from lakefs_gc.storage.local import LocalStore
from lakefs_gc_tests.support.code_location import RUN, CodeLocation, failure_of, materialized, values
from lakefs_gc_tests.support.collector import STAGES
from lakefs_gc_tests.support.lake import LakeRepository


def test_every_stage_asks_for_the_stores_time(
    location: CodeLocation, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may run on a machine of its own.  The mark itself has no time of this machine."""
    assert location.run("gc_mark", RUN).success
    real, asked = LocalStore.now, []

    def of_another_hour(store: LocalStore) -> datetime:
        asked.append(store.location.folder_url)
        return real(store) + timedelta(hours=1)

    monkeypatch.setattr(LocalStore, "now", of_another_hour)
    for stage in STAGES:
        asked.clear()
        failure = failure_of(location.materialize(RUN, stage), stage)
        assert failure["error"] == ClockSkewError.__name__, stage
        assert asked == [repository.location.folder_url], stage


def test_the_age_of_a_mark_goes_by_the_stores_clock(
    location: CodeLocation, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark_id = str(values(materialized(location.run("gc_mark", RUN))["mark"])["mark_id"])
    assert location.approve(RUN).success
    summary, before = MarkPaths.of(mark_id).summary, repository.objects()
    repository.age(summary, 31 * 24)
    failure = failure_of(location.run("gc_sweep", RUN), "sweep")
    assert (failure["error"], "--override mark_is_recent" in failure["what_to_do"]) == (SafetyError.__name__, True)
    assert repository.objects() == before

    repository.age(summary, 0)
    waited: list[tuple[str, float]] = []

    def wait(store: LocalStore, mark: object, safety: SafetyParameters) -> None:
        waited.append((store.location.folder_url, safety.longest_commit_minutes))

    monkeypatch.setattr(sweep_asset, "wait_for_commits", wait)
    assert location.run("gc_sweep", RUN).success
    assert waited == [(repository.location.folder_url, 0.0)]


def test_the_delay_of_a_policy_goes_by_the_stores_clock(location: CodeLocation, repository: LakeRepository) -> None:
    sweep = location.settings.sweep.model_copy(update={"policy": "after", "delay_hours": 2.0})
    location = CodeLocation.of(location.settings.model_copy(update={"sweep": sweep}), location.instance)
    mark = values(materialized(location.run("gc_mark", RUN))["mark"])
    before = repository.objects()
    # The sensor's clock is two hours ahead.
    by_policy = {"approve_digest": str(mark["digest"]), "approved_via": "policy after"}
    failure = failure_of(location.run("gc_sweep", RUN, sweep=by_policy), "sweep")
    assert (failure["error"], "waits until" in failure["description"]) == (ApprovalError.__name__, True)
    # A summary that is older does not make the mark older.
    repository.age(MarkPaths.of(str(mark["mark_id"])).summary, 3)
    failure = failure_of(location.run("gc_sweep", RUN, sweep=by_policy), "sweep")
    assert "waits until" in failure["description"]
    assert repository.objects() == before
