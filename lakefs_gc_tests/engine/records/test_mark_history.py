"""The states of marks in ``history``: a part that was approved or swept does not make the rest look done."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from lakefs_gc.engine.records import mark_history
from lakefs_gc.engine.records.approval import Approval
from lakefs_gc.engine.records.check import Answer, Check, Severity
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.mark_history import history_of, state_of
from lakefs_gc.engine.records.restore_log import RestoreEnd
from lakefs_gc.engine.scope import Scope
from lakefs_gc.formats.report import Summary
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.sample_mark import MARK, NOW

PATHS = MarkPaths.of("m1")


def parted(expired: int = 2, never_committed: int = 3) -> Mark:
    objects = {"expired": expired, "never_committed": never_committed}
    reasons = {only: {"objects": count, "size_bytes": 0} for only, count in objects.items()}
    return replace(MARK, candidates=expired + never_committed, reasons=reasons)


class History:
    """The files of one mark, each a minute newer than the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._at = folder, NOW
        self.store: ObjectStore = open_store(StoreLocation(folder.as_uri()))

    def _put(self, key: str, content: bytes) -> None:
        self._at += timedelta(minutes=1)
        self.store.put(key, content)
        os.utime(self.folder / key, (self._at.timestamp(),) * 2)

    def approve(self, only: Scope) -> None:
        self._put(PATHS.approval_of(only), b"{}")

    def sweep(self, only: Scope, *, deleted: int = 0, failed: int = 0) -> None:
        outcomes = {"deleted": {"objects": deleted}, "failed": {"objects": failed}}
        self._put(PATHS.sweep_summary_of(only), json.dumps({"outcomes": outcomes}).encode())

    def restore(self, objects: int) -> None:
        self._put(f"{PATHS.restores}{self._at:%Y%m%dT%H%M%S}.json", b"{}")
        self._put(
            f"{PATHS.restores}{self._at - timedelta(minutes=1):%Y%m%dT%H%M%S}-ended.json",
            RestoreEnd(objects, 0).to_json(),
        )

    def state(self, mark: Mark | None = None) -> str:
        return str(state_of(self.store, mark or parted())["state"])


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def test_the_parts_are_done_one_after_the_other(history: History) -> None:
    assert history.state() == "marked"
    history.approve(Scope.expired)
    assert history.state() == "approved: only expired"
    history.sweep(Scope.expired, deleted=2)
    assert history.state() == "swept: only expired"
    history.approve(Scope.never_committed)
    assert history.state() == "swept: only expired; approved: only never committed"
    facts = state_of(history.store, parted())
    assert (facts["swept"], facts["approved"]) == (["expired"], ["expired", "never_committed"])
    history.sweep(Scope.never_committed, deleted=2, failed=1)
    assert history.state() == "incomplete"
    history.sweep(Scope.never_committed, deleted=3)
    assert history.state() == "swept"


def test_a_failed_part_is_incomplete(history: History) -> None:
    history.sweep(Scope.expired, deleted=1, failed=1)
    history.approve(Scope.all)
    assert history.state() == "incomplete: only expired; approved"
    history.sweep(Scope.all, deleted=5)
    assert history.state() == "swept"
    history.sweep(Scope.never_committed, failed=1)
    assert history.state() == "incomplete"


def test_a_part_without_objects_needs_no_sweep(history: History) -> None:
    history.approve(Scope.expired)
    assert history.state(parted(never_committed=0)) == "approved: only expired"
    history.sweep(Scope.expired, deleted=2)
    assert history.state(parted(never_committed=0)) == "swept"


def test_a_restored_part(history: History) -> None:
    history.sweep(Scope.expired, deleted=2)
    history.restore(1)
    assert history.state() == "partly restored (1 of 2)"
    history.sweep(Scope.never_committed, deleted=3)
    assert history.state() == "swept: only never committed; restore after the sweep: only expired"
    history.sweep(Scope.expired)
    assert history.state() == "swept"
    history.restore(5)
    assert history.state() == "restored"


def test_before_and_during_a_sweep(history: History) -> None:
    blocked = replace(parted(), checks=(Check("share_of_objects", Answer.UNSAFE, "most of it"),))
    warned = replace(blocked, checks=(replace(blocked.checks[0], severity=Severity.WARN),))
    assert [history.state(mark) for mark in (blocked, warned, MARK)] == ["blocked", "marked", "empty"]
    approval = Approval("m1", "lake", MARK.digest, "ada", "command line", NOW)
    history.store.put(PATHS.approval_of(Scope.all), approval.to_json())
    facts = state_of(history.store, blocked)
    assert (facts["state"], facts["approver"]) == ("approved", "ada")
    record = f"{PATHS.ledger}20260701-00000-intent.parquet"
    history.store.put(record, b"")
    assert history.state() == "sweeping"
    os.utime(history.folder / record, (0, 0))
    assert history.state() == "sweep failed", "it recorded nothing for half an hour, and no result"
    history.sweep(Scope.all, deleted=5)
    assert history.state() == "swept"


def put_marks(store: ObjectStore, mark_ids: Iterable[str]) -> None:
    for mark_id in mark_ids:
        mark = replace(parted(), mark_id=mark_id, run=MARK.run, folder=MarkPaths.of(mark_id).report.folder).sealed()
        paths = MarkPaths.of(mark_id)
        summary = Summary(mark_id, True, "", NOW, NOW, mark.candidates, "lakefs-gc")
        store.put(paths.manifest, mark.to_json())
        store.put(paths.summary, summary.to_json())


def test_many_marks_are_in_their_order(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mark_history, "_MARKS_AT_ONCE", 3)
    mark_ids = [f"m{number}" for number in range(8)]  # ids of newer marks sort first
    put_marks(history.store, mark_ids)
    history.store.delete_many([MarkPaths.of(mark_id).summary for mark_id in ("m0", "m4")])  # not complete
    complete = [mark_id for mark_id in mark_ids if mark_id not in ("m0", "m4")]
    rows = history_of(history.store, "lake", MARK.namespace)
    assert [row["mark_id"] for row in rows] == complete
    assert [row["state"] for row in rows] == ["marked", *["superseded"] * 5]
    for limit in range(7):
        assert history_of(history.store, "lake", MARK.namespace, limit) == rows[:limit]


def test_a_mark_before_a_newer_one_is_superseded(history: History) -> None:
    put_marks(history.store, ["m1", "m2"])
    rows = history_of(history.store, "lake", MARK.namespace)
    assert [(row["mark_id"], row["state"]) for row in rows] == [("m1", "marked"), ("m2", "superseded")]
    history.store.put(MarkPaths.of("m2").sweep_summary, b"not JSON")
    (_, damaged) = history_of(history.store, "lake", MARK.namespace)
    assert damaged["state"].startswith("unreadable: ")
    assert damaged["failed_checks"] == ""
