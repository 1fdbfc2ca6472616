"""What keeps a mark from being swept until a person has looked (rule 8)."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakefs_gc.config import Protections, SafetyParameters
from lakefs_gc.engine.decide.marking.check_numbers import check_numbers
from lakefs_gc.engine.decide.marking.checks import (
    ChosenNames,
    EarlierMark,
    Evidence,
    HeadSample,
    ListedOtherwise,
    UnreadRepositories,
    evaluate,
    protections_from_json,
)
from lakefs_gc.engine.records.check import (
    CHECKS,
    WARNING_CHECKS,
    Answer,
    Check,
    Severity,
    Unknown,
    refuse_failed_checks,
)
from lakefs_gc.errors import SafetyError
from lakefs_gc.formats.gc_rules import GCRules

NOW = datetime(2026, 7, 1, tzinfo=UTC)
SAFETY = SafetyParameters(share_counts_from_objects=10)
FINE = Evidence(
    cutoff=NOW,
    listed=100,
    listed_bytes=10_000,
    marked=50,
    marked_bytes=5_000,
    newest_marked=NOW - timedelta(microseconds=1),
    committed=1,
    has_metadata=True,
    rules=GCRules(10, {"main": 20}),
    earlier=EarlierMark("before", GCRules(10, {"main": 20}), Protections()),
    heads=HeadSample(5),
    lost=0,
    lost_to_our_sweeps=3,
    unlisted=0,
    listed_otherwise=ListedOtherwise(),
    others=UnreadRepositories(),
    shielded=0,
    server_missed=0,
    chosen_names=ChosenNames(),
)


def on(evidence: Evidence) -> set[str]:
    return {check.name for check in evaluate(evidence, SAFETY) if not check.passed}


CASES: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"marked": 51}, "share_of_objects"),
    ({"marked": 10, "listed": 10}, ""),
    ({"marked": 11, "listed": 11}, "share_of_objects"),
    ({"marked_bytes": 5_001}, "share_of_bytes"),
    ({"marked": 10, "listed": 20, "marked_bytes": 5 * 2**30, "listed_bytes": 6 * 2**30}, "share_of_bytes"),
    ({"marked": 10, "listed": 20, "marked_bytes": 2**30, "listed_bytes": 2**30}, ""),
    ({"committed": 0}, "committed_data_found"),
    ({"unlisted": 1}, "live_objects_exist"),
    ({"listed_otherwise": ListedOtherwise(1, "data/s/x", "data/s/X")}, "live_objects_exist"),
    ({"listed_otherwise": Unknown("too many")}, "live_objects_exist"),
    ({"committed": 0, "has_metadata": False}, ""),
    ({"committed": 0, "marked": 0, "marked_bytes": 0}, ""),
    ({"rules": GCRules(9, {"main": 20})}, "rules_not_looser"),
    ({"rules": GCRules(10, {"main": 19})}, "rules_not_looser"),
    ({"rules": GCRules(10)}, "rules_not_looser"),
    ({"rules": GCRules(10, {"main": 20, "dev": 9})}, "rules_not_looser"),
    ({"rules": GCRules(11, {"main": 21, "dev": 10})}, "rules_not_looser"),
    ({"rules": GCRules(11, {"main": 21, "dev": 11})}, ""),
    ({"rules": None}, ""),
    ({"earlier": EarlierMark("before", None, Protections())}, "rules_not_looser"),
    ({"earlier": None}, ""),
    ({"earlier": Unknown("damaged")}, "rules_not_looser"),
    ({"newest_marked": NOW}, "nothing_newer_than_cutoff"),
    ({"newest_marked": None, "marked": 0}, ""),
    ({"heads": HeadSample(5, ("data/s/x",))}, "no_head_object_marked"),
    ({"heads": HeadSample(0, unread={"main": "denied"})}, "no_head_object_marked"),
    ({"heads": Unknown("switched off")}, "no_head_object_marked"),
    ({"lost": 1}, "live_objects_exist"),
    ({"others": UnreadRepositories(unreadable={"other": "denied"})}, "other_repositories_were_read"),
    ({"others": UnreadRepositories(not_asked={"other": "named"})}, "other_repositories_were_read"),
    ({"others": Unknown("switched off")}, "other_repositories_were_read"),
    ({"shielded": 1}, "no_object_kept_unverified"),
    ({"server_missed": 2}, "server_list_is_complete"),
    ({"server_missed": Unknown("too many")}, "server_list_is_complete"),
    ({"chosen_names": ChosenNames(1, "data/part-0.parquet")}, "only_names_of_lakefs"),
    ({"chosen_names": ChosenNames(at_root=1, example_at_root="0" * 32)}, "only_names_of_lakefs"),
    ({"chosen_names": Unknown("not counted")}, "only_names_of_lakefs"),
]


@pytest.mark.parametrize("otherwise", [ListedOtherwise(1, "data/s/x", "data/s/X"), Unknown("too many to compare")])
def test_a_lost_object_hides_no_other_reason(otherwise: ListedOtherwise | Unknown) -> None:
    """Both are overridden by one name."""
    [check] = [
        check for check in evaluate(replace(FINE, lost=2, listed_otherwise=otherwise), SAFETY) if not check.passed
    ]
    assert check.answer is Answer.UNSAFE
    assert "2 referenced objects do not exist" in check.message
    assert ("data/s/x has its size" in check.message) or ("too many to compare" in check.message)


@pytest.mark.parametrize(("changes", "check"), CASES, ids=[f"{n}-{c[1]}" for n, c in enumerate(CASES)])
def test_each_check(changes: dict[str, Any], check: str) -> None:
    if changes.get("rules") == GCRules(11, {"main": 21, "dev": 10}):
        # dev was kept for the default of 10 days: 10 days are not fewer.
        assert on(replace(FINE, **changes)) == set()
    else:
        assert on(replace(FINE, **changes)) == ({check} if check else set())


def test_a_small_share_is_not_shown_as_none() -> None:
    safety = SAFETY.model_copy(update={"max_marked_share": 0.001})
    seen = replace(FINE, listed=30_000, marked=100)
    messages = [check.message for check in evaluate(seen, safety) if check.name == "share_of_objects"]
    assert messages == ["100 of 30,000 objects are marked, more than 0.1%"]
    assert check_numbers(seen, safety)["share_of_objects"]["share"] == 0.00333


PROTECTED = Protections(
    tags=("v*", "release-*"), branches=("main",), days=30, last_commits=5, path_prefixes=("audit/", "b/c")
)


@pytest.mark.parametrize(
    ("changes", "dropped"),
    [
        ({}, ""),
        ({"tags": ("release-*", "v*", "w")}, ""),
        ({"tags": ("v*",)}, "tags release-*"),
        ({"branches": ("mai*",)}, "branches main"),
        ({"path_prefixes": ("b/", "x", "a")}, ""),
        ({"path_prefixes": ("",)}, ""),
        ({"path_prefixes": ("audit/2024", "b/c")}, "paths audit/"),
        ({"days": 31, "last_commits": 6}, ""),
        ({"days": 29.5}, "commits newer than 30 days (now 29.5)"),
        ({"last_commits": 4}, "the last 5 commits of each branch (now 4)"),
    ],
)
def test_protections_that_are_dropped(changes: dict[str, Any], dropped: str) -> None:
    now = PROTECTED.model_copy(update=changes)
    before = EarlierMark("before", GCRules(10, {"main": 20}), PROTECTED)
    seen = replace(FINE, protections=now, earlier=before)
    on_now = {check.name: check.message for check in evaluate(seen, SAFETY) if not check.passed}
    said = f"since mark before safety.protect no longer has {dropped}"
    assert on_now == ({"rules_not_looser": said} if dropped else {})
    assert not on(replace(seen, earlier=None))
    assert not on(replace(seen, earlier=replace(before, protections=Protections())))


def test_a_configuration_that_is_not_found_drops_them_all() -> None:
    before = EarlierMark("before", GCRules(10, {"main": 20}), PROTECTED)
    seen = replace(FINE, earlier=before, rules=GCRules(10))
    [said] = [check.message for check in evaluate(seen, SAFETY) if not check.passed]
    assert said == (
        "since mark before branch main is retained for 10 days instead of 20; safety.protect no longer has "
        "tags release-*, v*; branches main; paths audit/, b/c; commits newer than 30 days (now 0); "
        "the last 5 commits of each branch (now 0)"
    )


def test_protections_as_a_mark_keeps_them() -> None:
    content = PROTECTED.model_dump(mode="json")
    assert protections_from_json(json.loads(json.dumps(content))) == PROTECTED
    assert protections_from_json(content | {"of_a_later_version": 1}) == PROTECTED
    assert protections_from_json(None) == Protections(), "marks of before say nothing"


def test_all_are_there_and_every_one_has_a_case() -> None:
    assert [check.name for check in evaluate(FINE, SAFETY)] == list(CHECKS)
    assert {check for _, check in CASES} - {""} == set(CHECKS)
    assert {check.name for check in evaluate(FINE, SAFETY) if check.severity is Severity.WARN} == WARNING_CHECKS


def test_what_was_not_checked_has_not_passed() -> None:
    unread = HeadSample(0, unread={"main": "denied", "dev": "refused"})
    checks = evaluate(replace(FINE, heads=unread), SAFETY)
    said = {check.name: check.message for check in checks if not check.passed}
    assert "was not checked on 2 branches, e.g. dev: refused (start a new run" in said["no_head_object_marked"]
    with pytest.raises(SafetyError, match="--override no_head_object_marked --why"):
        refuse(checks, {})


UNKNOWN: list[dict[str, Any]] = [
    {"earlier": Unknown("the reason")},
    {"heads": Unknown("the reason")},
    {"heads": HeadSample(5, unread={"main": "the reason"})},
    {"others": Unknown("the reason")},
    {"others": UnreadRepositories(unreadable={"the reason": "denied"})},
    {"server_missed": Unknown("the reason")},
]


@pytest.mark.parametrize("changes", UNKNOWN, ids=lambda changes: next(iter(changes)))
def test_unknown_never_passes_and_blocks(changes: dict[str, Any]) -> None:
    """Rule 12: for every sweep, until a person overrides it by its name."""
    checks = evaluate(replace(FINE, **changes), SAFETY)
    [unknown] = [check for check in checks if check.answer is Answer.UNKNOWN]
    assert (unknown.passed, unknown.blocks_sweep) == (False, True)
    assert "the reason" in unknown.message
    with pytest.raises(SafetyError, match="the reason"):
        refuse(checks, {})
    with pytest.raises(SafetyError, match="the reason"):
        refuse(checks, dict.fromkeys(CHECKS.keys() - {unknown.name}, "another"))
    refuse(checks, {unknown.name: "looked at by hand"})


def test_what_the_settings_exempt_only_warns_and_has_not_passed() -> None:
    checks = evaluate(replace(FINE, others=UnreadRepositories(not_asked={"dead": "named"})), SAFETY)
    [exempt] = [check for check in checks if not check.passed]
    assert (exempt.answer, exempt.blocks_sweep) == (Answer.UNKNOWN, False)
    assert "safety.repositories_not_read names them: dead" in exempt.message
    refuse(checks, {})


def test_an_answer_survives_a_worker() -> None:
    unknown = Unknown("denied")
    assert pickle.loads(pickle.dumps(unknown)) == unknown
    with pytest.raises(AttributeError):
        unknown.reason = "other"  # type: ignore[misc]


def refuse(checks: tuple[Check, ...], overrides: dict[str, str], *, age_days: float = 1) -> None:
    age = timedelta(days=age_days)
    refuse_failed_checks(checks, overrides, repository="lake", mark_id="m1", age=age, safety=SAFETY)


def test_the_sweep_is_refused_until_each_is_overridden() -> None:
    checks = evaluate(replace(FINE, marked=60, lost=2, shielded=3), SAFETY)
    with pytest.raises(SafetyError) as refused:
        refuse(checks, {})
    assert "60 of 100 objects are marked" in refused.value.message
    assert "2 referenced objects do not exist" in refused.value.message
    assert "--override share_of_objects --override live_objects_exist" in refused.value.remedy
    assert "shielded" not in refused.value.message, "a warning blocks nothing"
    with pytest.raises(SafetyError, match="2 referenced objects do not exist"):
        refuse(checks, {"share_of_objects": "a spring cleaning"})
    refuse(checks, {"share_of_objects": "a spring cleaning", "live_objects_exist": "known, restored"})
    refuse(evaluate(FINE, SAFETY), {})


def test_an_old_mark() -> None:
    refuse((), {}, age_days=30)
    with pytest.raises(SafetyError, match="the mark is 31 days old"):
        refuse((), {}, age_days=31)
    refuse((), {"mark_is_recent": "still true"}, age_days=31)
