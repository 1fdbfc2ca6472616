"""The pending approvals of a namespace, for which a sensor must start a sweep."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakefs_gc.engine.records.approval import (
    POLICY,
    VIA_COMMAND_LINE,
    VIA_DAGSTER,
    VIA_SWEEP_COMMAND,
    Approval,
)
from lakefs_gc.engine.records.ledger import sequence_of
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.newest import NEWEST
from lakefs_gc.engine.records.pending_approvals import pending_approvals
from lakefs_gc.engine.records.restore_log import RestoreStart, notes
from lakefs_gc.engine.scope import Scope
from lakefs_gc.errors import OldListError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.sample_mark import MARK

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
_LATER = NOW + timedelta(days=1)


class Namespace:
    """A folder with marks in it, whose files have the times that a test gives them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store: ObjectStore = open_store(StoreLocation(folder.as_uri()))

    def put(self, key: str, content: bytes, at: datetime) -> None:
        self.store.put(key, content)
        os.utime(self.folder / key, (at.timestamp(), at.timestamp()))

    def mark(self, mark_id: str, *, run_key: str = "") -> None:
        mark = replace(MARK, mark_id=mark_id, run=MARK.run | {"run_key": run_key or f"lake/run-{mark_id}"})
        self.put(MarkPaths.of(mark_id).manifest, mark.sealed().to_json(), NOW)

    def approve(self, mark_id: str, via: str = VIA_COMMAND_LINE, at: datetime = NOW, repository: str = "lake") -> None:
        approval = Approval(mark_id, repository, "sha256:abc", "ann", via, at)
        self.put(MarkPaths.of(mark_id).approval, approval.to_json(), at)

    def pending(self) -> list[str]:
        return [one.approval.mark_id for one in pending_approvals(self.store, "lake")]


@pytest.fixture
def namespace(tmp_path: Path) -> Namespace:
    return Namespace(tmp_path)


def test_a_persons_approval_is_found_whoever_wrote_it(namespace: Namespace) -> None:
    assert pending_approvals(namespace.store, "lake") == []
    vias = {"m1": VIA_COMMAND_LINE, "m2": VIA_DAGSTER, "m3": VIA_SWEEP_COMMAND, "m4": f"{POLICY}after"}
    for mark_id, via in vias.items():
        namespace.mark(mark_id)
        namespace.approve(mark_id, via)
    namespace.mark("m5")
    first, second = pending_approvals(namespace.store, "lake")
    assert (first.run_key, second.run_key) == ("lake/run-m1", "lake/run-m2")
    assert (first.approval.mark_id, first.approval.approved_by, first.approval.approved_at) == ("m1", "ann", NOW)


def test_a_mark_of_another_tool_has_a_partition_named_after_it(namespace: Namespace) -> None:
    namespace.approve("m1")
    assert [one.run_key for one in pending_approvals(namespace.store, "lake")] == ["lake/m1"]


def test_an_approval_that_was_followed_is_not_found_until_it_is_given_again(namespace: Namespace) -> None:
    paths = MarkPaths.of("m1")
    for minutes, followed_by in enumerate(
        [
            paths.sweep_summary,
            f"{paths.restores}20260701T120000.json",
            f"{paths.ledger}{sequence_of(NOW + timedelta(minutes=2), 0, Scope.all)}-00000-a-000000-intent.parquet",
        ]
    ):
        given_at = NOW + timedelta(minutes=minutes)
        namespace.mark("m1")
        namespace.approve("m1", at=given_at - timedelta(seconds=30))
        assert namespace.pending() == ["m1"], "what is older does not follow it"
        content = RestoreStart(given_at, "").to_json() if followed_by.startswith(paths.restores) else b"{}"
        namespace.put(followed_by, content, given_at)
        assert namespace.pending() == [], followed_by


def test_files_with_new_times_make_no_approval_pending_that_a_restore_followed(namespace: Namespace) -> None:
    """The namespace was copied: to a new disk, to another storage class, or with another encryption."""
    note = f"{MarkPaths.of('m1').restores}20260701T120100.json"
    namespace.mark("m1")
    for content in (RestoreStart(NOW + timedelta(minutes=1), "").to_json(), b"damaged"):
        namespace.approve("m1")
        namespace.put(note, content, NOW + timedelta(minutes=1))
        assert namespace.pending() == []
        namespace.put(MarkPaths.of("m1").approval, namespace.store.read(MarkPaths.of("m1").approval), _LATER)
        assert namespace.pending() == []
    namespace.put(note, RestoreStart(NOW + timedelta(minutes=1), "").to_json(), NOW + timedelta(minutes=1))
    namespace.approve("m1", at=_LATER)
    assert namespace.pending() == ["m1"]


def test_what_cannot_be_read_approves_nothing_and_hides_no_other(
    namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    for mark_id in ("m1", "m2", "m3", "m4"):
        namespace.mark(mark_id)
        namespace.approve(mark_id)
    namespace.put(MarkPaths.of("m1").approval, b"yes", NOW)
    namespace.approve("m2", repository="pond")
    namespace.put(MarkPaths.of("m3").manifest, b"{}", NOW)
    assert namespace.pending() == ["m4"]
    for mark_id in ("m1", "m2", "m3"):
        assert f"ignoring the approval of mark {mark_id} of lake" in caplog.text


def test_each_approval_of_a_part_is_pending_until_its_own_sweep(namespace: Namespace) -> None:
    """A sweep of one part does not make the rest look swept."""
    paths, followed_at = MarkPaths.of("m1"), NOW + timedelta(minutes=2)

    def pending(*swept: str) -> list[Scope]:
        namespace.mark("m1")
        for only in Scope:
            approval = Approval("m1", "lake", "sha256:abc", "ann", VIA_COMMAND_LINE, NOW, only=only)
            namespace.put(paths.approval_of(only), approval.to_json(), NOW)
        for key in swept:
            namespace.put(key, b"{}", followed_at)
        found = sorted(one.approval.only for one in pending_approvals(namespace.store, "lake"))
        namespace.store.delete_many(list(swept))
        return found

    def record(only: Scope) -> str:
        return f"{paths.ledger}{sequence_of(followed_at, 1, only)}-00000-a-000000-intent.parquet"

    everything = [Scope.all, Scope.expired, Scope.never_committed]
    assert pending() == everything
    for only in (Scope.expired, Scope.never_committed):
        rest = [other for other in everything if other != only]
        assert pending(paths.sweep_summary_of(only)) == pending(record(only)) == rest
    assert pending(paths.sweep_summary) == pending(record(Scope.all)) == []
    assert pending(record(Scope.expired), record(Scope.never_committed)) == [Scope.all]


def test_an_approval_in_the_file_of_another_part_is_ignored(
    namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    namespace.mark("m1")
    approval = Approval("m1", "lake", "sha256:abc", "ann", VIA_COMMAND_LINE, NOW, only=Scope.expired)
    namespace.put(MarkPaths.of("m1").approval, approval.to_json(), NOW)
    assert namespace.pending() == []
    assert "this is an approval of expired objects" in caplog.text


def test_one_mark_whose_restores_are_hidden_blocks_no_other(namespace: Namespace) -> None:
    """A lifecycle rule has removed its newest note, or a list is of before it."""
    for mark_id in ("m1", "m2"):
        namespace.mark(mark_id)
        namespace.approve(mark_id)
    namespace.put(MarkPaths.of("m1").restores + NEWEST, b"20260701T120000.json", NOW - timedelta(days=1))
    assert namespace.pending() == ["m2"]
    with pytest.raises(OldListError):
        notes(namespace.store, "m1")
