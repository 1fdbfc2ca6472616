"""Approvals: durable, and of one digest (rule 9)."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.records.approval import (
    Approval,
    approve,
    is_approved,
    read_approval,
    refuse_part_approved,
    refuse_without_person,
)
from lakefs_gc.engine.records.check import Answer, Check
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.restore_log import RestoreStart
from lakefs_gc.engine.records.stored_marks import Marked
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.sweep.preconditions import approve_if_needed
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import ApprovalError, CorruptFileError, MarkError, SafetyError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.sample_mark import MARK, NOW

KEY = MarkPaths.of("m1").approval
SAFETY = SafetyParameters()
TODAY = timedelta(0)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreLocation(f"file://{tmp_path}"))


def test_an_approval_is_read_back(store: ObjectStore) -> None:
    given = approve(store, MARK, "sha256:abc", by="ann", via="ui", now=NOW, age=TODAY, safety=SAFETY)
    assert given == Approval("m1", "lake", "sha256:abc", "ann", "ui", NOW)
    assert read_approval(store, MARK) == given


def test_overrides_are_kept_with_their_reason(store: ObjectStore) -> None:
    def given(**overrides: str) -> Approval:
        return approve(
            store, MARK, "sha256:abc", by="ann", via="ui", now=NOW, age=TODAY, safety=SAFETY, overrides=overrides
        )

    kept = given(share_of_bytes="spring").overrides
    assert read_approval(store, MARK).overrides == kept == {"share_of_bytes": "spring"}
    with pytest.raises(ApprovalError, match="Unknown check 'share'"):
        given(share="spring")
    with pytest.raises(ApprovalError, match="The override of check share_of_objects has no reason"):
        given(share_of_objects=" ")


def test_an_override_by_a_former_name(store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    """Given by a person, or stored by an earlier version: it overrides the check by its name of today."""
    lost = Check("live_objects_exist", Answer.UNSAFE, "2 referenced objects do not exist")
    mark = replace(MARK, checks=(lost,))
    former = {"live_objects_are_there": "restored since"}
    with caplog.at_level(logging.WARNING):
        given = approve(
            store, mark, mark.digest, by="ann", via="ui", now=NOW, age=TODAY, safety=SAFETY, overrides=former
        )
    assert given.overrides == {"live_objects_exist": "restored since"}
    assert "an override uses the former check name live_objects_are_there: use live_objects_exist" in caplog.text
    assert json.loads(store.read(KEY))["overrides"] == given.overrides

    caplog.clear()
    store.put(KEY, json.dumps(json.loads(store.read(KEY)) | {"overrides": former}).encode())
    with caplog.at_level(logging.WARNING):
        assert read_approval(store, mark) == given
    assert f"the approval {KEY} uses the former check name live_objects_are_there" in caplog.text


def test_only_the_digest_that_the_mark_has_can_be_approved(store: ObjectStore) -> None:
    for digest in ("sha256:abd", "sha256:ab"):
        with pytest.raises(ApprovalError, match="has the digest sha256:abc, not"):
            approve(store, MARK, digest, by="ann", via="ui", now=NOW, age=TODAY, safety=SAFETY)
    with pytest.raises(ApprovalError, match="is not approved"):
        read_approval(store, MARK)


@pytest.mark.parametrize(
    "mark",
    [replace(MARK, digest="sha256:other"), replace(MARK, repository="lake-2"), replace(MARK, mark_id="m2")],
    ids=["digest", "repository", "mark_id"],
)
def test_an_approval_of_something_else_is_refused(store: ObjectStore, mark: Mark) -> None:
    approve(store, mark, mark.digest, by="ann", via="ui", now=NOW, age=TODAY, safety=SAFETY)
    store.put(KEY, store.read(MarkPaths.of(mark.mark_id).approval))  # moved below this mark by hand
    with pytest.raises(ApprovalError, match="but the mark is m1 of lake with digest sha256:abc"):
        read_approval(store, MARK)


@pytest.mark.parametrize(
    "change",
    [
        {"approved_at": "yesterday"},
        {"approved_at": None},
        {"extra": 1},
        {"approved_by": 7},
        {"overrides": ["share_of_objects"]},
        {"overrides": {"share_of_objects": True}},
        {"overrides": {"share_of_objects": " "}},
        None,
    ],
    ids=["time", "none", "extra", "number", "list", "no reason", "empty reason", "text"],
)
def test_what_is_no_approval_approves_nothing(store: ObjectStore, change: dict[str, Any] | None) -> None:
    approve(store, MARK, MARK.digest, by="ann", via="ui", now=NOW, age=TODAY, safety=SAFETY)
    content = json.loads(store.read(KEY))
    store.put(KEY, b"yes" if change is None else json.dumps(content | change).encode())
    with pytest.raises(CorruptFileError, match="not an approval"):
        read_approval(store, MARK)


def test_what_a_policy_may_sweep_stands_in_the_mark() -> None:
    assert MARK.sweep_policy == "manual", "a mark that does not say it is for a person"
    for made_under in ({}, {"sweep_policy": "manual"}):
        with pytest.raises(ApprovalError, match="only a person can approve"):
            refuse_without_person(replace(MARK, run=made_under), timedelta(days=400), SafetyParameters())
    after = replace(MARK, run={"sweep_policy": "after", "sweep_delay_hours": 24.0})
    with pytest.raises(ApprovalError, match="waits until the mark is 24 h old, and it is 23 h old"):
        refuse_without_person(after, timedelta(hours=23), SafetyParameters())
    refuse_without_person(after, timedelta(hours=24), SafetyParameters())
    refuse_without_person(replace(MARK, run={"sweep_policy": "immediately"}), timedelta(0), SafetyParameters())


@pytest.mark.parametrize("skew_seconds", [60, 300])
def test_a_delay_allows_for_two_clocks(skew_seconds: float) -> None:
    """The sensor's and that of the machine that made the mark; each is as far off as ``max_clock_skew_seconds``."""
    safety = SafetyParameters(max_clock_skew_seconds=skew_seconds)
    after = replace(MARK, run={"sweep_policy": "after", "sweep_delay_hours": 24.0})
    early = timedelta(hours=24, seconds=-2 * skew_seconds)
    refuse_without_person(after, early, safety)
    with pytest.raises(ApprovalError, match="waits until"):
        refuse_without_person(after, early - timedelta(seconds=1), safety)


def test_what_has_not_passed_is_not_approved_unless_it_is_overridden(store: ObjectStore) -> None:
    """Else "approved" would be said, and the sweep would fail later, with nobody there."""
    checks = (
        Check("share_of_bytes", Answer.UNSAFE, "80 % of the bytes"),
        Check("other_repositories_were_read", Answer.UNKNOWN, "pond could not be read"),
        Check("share_of_objects", Answer.SAFE, ""),
    )
    mark = replace(MARK, checks=checks)
    names = [check.name for check in checks if not check.passed]

    def given(overrides: list[str], age: timedelta = TODAY) -> Approval:
        whys = dict.fromkeys(overrides, "seen")
        return approve(store, mark, mark.digest, by="ann", via="ui", now=NOW, age=age, safety=SAFETY, overrides=whys)

    for overrides in ([], names[:1], names[1:]):
        with pytest.raises(SafetyError, match="is not swept") as refused:
            given(overrides)
        assert all((f"--override {name}" in refused.value.remedy) == (name not in overrides) for name in names)
    assert store.stat_many([KEY]) == {}
    with pytest.raises(SafetyError, match="days old"):
        given(names, timedelta(days=365))
    assert store.stat_many([KEY]) == {}
    assert given(names).overrides.keys() == set(names)


def test_the_age_of_a_recent_mark_is_not_overridden_in_advance(store: ObjectStore) -> None:
    """It would never end: a sweep years later would find it."""

    def given(age: timedelta) -> Approval:
        overrides = {"mark_is_recent": "seen"}
        return approve(
            store, MARK, MARK.digest, by="ann", via="ui", now=NOW, age=age, safety=SAFETY, overrides=overrides
        )

    oldest = timedelta(days=SAFETY.max_mark_age_days)
    with pytest.raises(ApprovalError, match="would never end"):
        given(oldest)
    assert store.stat_many([KEY]) == {}
    assert given(oldest + timedelta(seconds=1)).overrides


def test_an_approval_names_a_person_and_a_digest(store: ObjectStore) -> None:
    no_person = "does not name a person"
    for by, digest, missing in (("", MARK.digest, no_person), (" ", MARK.digest, no_person), ("ann", "", "no digest")):
        with pytest.raises(ApprovalError, match=f"^The approval of mark m1 of lake .*{missing}"):
            approve(store, MARK, digest, by=by, via="ui", now=NOW, age=TODAY, safety=SAFETY)
    assert store.stat_many([KEY]) == {}


PARTED = replace(
    MARK,
    candidates=5,
    reasons={"expired": {"objects": 2, "size_bytes": 20}, "never_committed": {"objects": 3, "size_bytes": 30}},
)
"""A mark with objects of both parts."""


def approve_part(store: ObjectStore, only: Scope, mark: Mark = PARTED) -> Approval:
    return approve(store, mark, "sha256:abc", by="ann", via="ui", now=NOW, age=TODAY, safety=SAFETY, only=only)


def test_an_approval_of_a_part_approves_nothing_else(store: ObjectStore) -> None:
    given = approve_part(store, Scope.expired)
    assert (given.only, read_approval(store, PARTED, Scope.expired)) == (Scope.expired, given)
    for only in (Scope.never_committed, Scope.all):
        assert not is_approved(store, PARTED, only)
    with pytest.raises(ApprovalError, match=r"mark m1 of lake \(only never committed objects\) is not") as caught:
        read_approval(store, PARTED, Scope.never_committed)
    assert "--only never-committed" in str(caught.value.remedy)
    later = approve_part(store, Scope.never_committed)
    assert read_approval(store, PARTED, Scope.never_committed) == later
    assert read_approval(store, PARTED, Scope.expired) == given
    assert not is_approved(store, PARTED)


def test_an_approval_of_the_whole_mark_covers_its_parts(store: ObjectStore) -> None:
    whole = approve_part(store, Scope.all)
    assert [read_approval(store, PARTED, only) for only in Scope] == [whole] * 3
    of_part = approve_part(store, Scope.expired)
    assert read_approval(store, PARTED, Scope.expired) == of_part
    store.put(MarkPaths.of("m1").approval_of(Scope.expired), b"{}")
    assert read_approval(store, PARTED, Scope.expired) == whole


def test_the_file_of_an_approval_does_not_widen_it(store: ObjectStore) -> None:
    approve_part(store, Scope.expired)
    paths = MarkPaths.of("m1")
    for only in (Scope.never_committed, Scope.all):
        store.put(paths.approval_of(only), store.read(paths.approval_of(Scope.expired)))
        with pytest.raises(ApprovalError, match=f"of expired objects, not of {only} ones"):
            read_approval(store, PARTED, only)


def test_an_approval_says_what_it_is_of(store: ObjectStore) -> None:
    """Rule 12: a file of this version without the field is not of the whole mark."""
    approve_part(store, Scope.expired)
    key = MarkPaths.of("m1").approval_of(Scope.expired)
    content = json.loads(store.read(key))
    assert (content["schema_version"], content["only"]) == (2, "expired")
    changes: tuple[dict[str, Any], ...] = ({}, {"only": None}, {"only": "some"})
    for change in changes:
        changed = {name: value for name, value in content.items() if name != "only"} | change
        with pytest.raises(CorruptFileError, match="only"):
            Approval.from_json(json.dumps(changed).encode(), key)
    del content["schema_version"]
    with pytest.raises(CorruptFileError, match="version 1 has no field 'only'"):
        Approval.from_json(json.dumps(content).encode(), key)


@pytest.mark.parametrize("only", [Scope.expired, Scope.never_committed])
def test_a_part_needs_a_mark_that_records_it(store: ObjectStore, only: Scope) -> None:
    with pytest.raises(MarkError, match="does not record why each object is marked"):
        approve_part(store, only, MARK)
    with pytest.raises(MarkError, match="does not record why each object is marked"):
        approve_part(store, only, replace(PARTED, made_by="lakeFS Spark client"))
    [other] = {Scope.expired, Scope.never_committed} - {only}
    with pytest.raises(MarkError, match=f"so it holds no {only} objects"):
        approve_part(store, only, replace(PARTED, run=PARTED.run | {"only": other.value}))
    assert approve_part(store, only, replace(PARTED, run=PARTED.run | {"only": only.value}))
    assert (PARTED.objects_of(only), PARTED.bytes_of(only)) == tuple(PARTED.reasons[only].values())


def test_no_policy_sweeps_what_a_person_did_not_approve(store: ObjectStore) -> None:
    refuse_part_approved(store, PARTED)
    approve_part(store, Scope.all)
    refuse_part_approved(store, PARTED)
    approve_part(store, Scope.expired)
    with pytest.raises(ApprovalError, match="Only a part of mark m1") as caught:
        refuse_part_approved(store, PARTED)
    assert "--only never-committed" in str(caught.value.remedy)


def test_the_approval_of_a_policy_ends_when_a_person_approves_a_part(store: ObjectStore) -> None:
    """The policy's sweep failed, and a person then omitted a part: a repeated run must not sweep that part."""
    whole = approve(store, PARTED, "sha256:abc", by="nobody", via="policy after", now=NOW, age=TODAY, safety=SAFETY)
    assert [read_approval(store, PARTED, only) for only in Scope] == [whole] * 3
    of_part = approve_part(store, Scope.expired)
    assert read_approval(store, PARTED, Scope.expired) == of_part
    for only in (Scope.all, Scope.never_committed):
        with pytest.raises(ApprovalError, match="Only a part of mark m1"):
            read_approval(store, PARTED, only)
    immediately = replace(PARTED, created_at=utc_now(), run=PARTED.run | {"sweep_policy": "immediately"})
    with pytest.raises(ApprovalError, match="Only a part of mark m1"):
        approve_if_needed(
            Marked(immediately, store),
            "sha256:abc",
            by="nobody",
            via="policy after",
            is_repeated=True,
            safety=SAFETY,
            clock=utc_now,
        )


def test_files_with_new_times_do_not_revive_an_approval_that_a_restore_made_void(store: ObjectStore) -> None:
    """A copy of the namespace wrote the approval last."""

    def given(at: datetime) -> None:
        approve(store, MARK, MARK.digest, by="ann", via="ui", now=at, age=TODAY, safety=SAFETY)
        time.sleep(0.01)

    given(NOW)
    note = f"{MarkPaths.of(MARK.mark_id).restores}20260701T120000.json"
    for content in (RestoreStart(NOW + timedelta(seconds=1), "").to_json(), b"damaged"):
        store.put(note, content)
        time.sleep(0.01)
        store.put(KEY, store.read(KEY))
        with pytest.raises(ApprovalError, match=r"A restore of mark .* has begun"):
            read_approval(store, MARK)
    store.put(note, RestoreStart(NOW + timedelta(seconds=1), "").to_json())
    time.sleep(0.01)
    given(NOW + timedelta(seconds=2))
    assert read_approval(store, MARK).approved_at == NOW + timedelta(seconds=2)
