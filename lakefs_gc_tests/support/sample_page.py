"""A mark with facts, for tests of the page that shows it. Its strings are hostile."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from lakefs_gc.engine.records.check import CHECKS, WARNING_CHECKS, Answer, Check, Severity
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_facts import (
    Amount,
    EarlierNumbers,
    Funnel,
    LoweredSetting,
    MarkedPaths,
    MarkFacts,
    PathGroup,
)
from lakefs_gc.engine.records.mark_parts import PrefixTotal
from lakefs_gc_tests.support.sample_mark import MARK, NOW

HOSTILE = "<script>alert('x')</script>|*[a](javascript:b)&amp;"
FUNNEL = Funnel(
    listed=Amount(177, 17_700),
    live=Amount(60, 6_000),
    newer=Amount(56, 5_600),
    kept=Amount(4, 400),
    not_lakefs=Amount(2, 200),
    other_part=Amount(),
    marked=Amount(55, 5_500),
    kept_because={"shielded": Amount(4, 400)},
)


def passed_checks() -> tuple[Check, ...]:
    def severity(name: str) -> Severity:
        return Severity.WARN if name in WARNING_CHECKS else Severity.ERROR

    return tuple(Check(name, Answer.SAFE, text, severity(name)) for name, text in CHECKS.items())


def with_failed(mark: Mark, name: str, severity: Severity = Severity.ERROR) -> Mark:
    """Return a mark with one more failed check."""
    failed = Check(name, Answer.UNSAFE, f"found {HOSTILE}", severity)
    return replace(mark, checks=tuple(failed if check.name == name else check for check in mark.checks))


SAMPLE = replace(
    MARK,
    candidates=55,
    candidate_bytes=5_500,
    counts={"store_listing": 177, "committed": 370, "uncommitted": 3},
    reasons={
        "expired": {"objects": 50, "size_bytes": 5_000},
        "never_committed": {"objects": 5, "size_bytes": 500},
    },
    checks=passed_checks(),
    rules={"default_days": 30, "branches": {"main": 14, HOSTILE: 3}},
    run=MARK.run
    | {
        "not_lakefs": 2,
        "not_lakefs_bytes": 200,
        "deleted_bytes": "freed at once: the store keeps no versions",
        "protections": {"tags": ["v*"], "branches": [], "days": 0, "last_commits": 2, "path_prefixes": ["audit/"]},
    },
)
FACTS = MarkFacts(
    mark_id=SAMPLE.mark_id,
    digest=SAMPLE.digest,
    started_at=NOW - timedelta(minutes=4),
    min_age_seconds=86_400,
    funnel=FUNNEL,
    listed_by_age={"under a day": 9_000, "30 to 90 days": 8_700},
    marked_by_age={"under a day": 0, "30 to 90 days": 5_500},
    never_committed_by_age={"under a day": 0, "30 to 90 days": 500},
    run_seconds=240,
    earlier=EarlierNumbers("m0", NOW - timedelta(days=7), Amount(40, 4_000), 170),
    lowered=(LoweredSetting("safety.max_marked_share", "0.9", "0.5"),),
    backup_url="",
    ready_at=NOW + timedelta(minutes=20),
    objects_per_request=1000,
    largest_prefixes=(PrefixTotal("data/abc/", 55, 5_500),),
    sample=(
        {
            "address": "data/gone/one",
            "size": 100,
            "last_modified": str(NOW - timedelta(days=61)),
            "reason": "expired",
            "path": f"exports/{HOSTILE}/part-0.parquet",
            "commit_id": "ab" * 32,
            "branch": "main",
            "rule": "main: 14 days",
            "expired_on": "2026-05-20",
        },
        {
            "address": f"data/{HOSTILE}",
            "size": 100,
            "last_modified": str(NOW - timedelta(days=9)),
            "reason": "never_committed",
        },
        {"address": "data/of-lakefs-client"},
    ),
    paths=MarkedPaths(
        groups=(
            PathGroup(
                folder=f"exports/{HOSTILE}/",
                objects=50,
                size_bytes=5_000,
                example=f"exports/{HOSTILE}/part-0.parquet",
                commit_id="ab" * 32,
                committer=HOSTILE,
                committed_at=NOW - timedelta(days=60),
                branch="main",
                rule="main: 14 days",
                expired_on="2026-05-20",
            ),
        ),
        with_path=Amount(50, 5_000),
        unknown="",
    ),
)
OVERVIEW = FACTS.overview
