"""The manifest of a mark without candidates, for tests that only read and compare records."""

from __future__ import annotations

from datetime import UTC, datetime

from lakefs_gc.engine.records.mark import Mark

NOW = datetime(2026, 7, 1, 12, 0, 0, 5, UTC)
MARK = Mark(
    mark_id="m1",
    repository="lake",
    namespace="local://lake/",
    folder="_lakefs/retention/gc/unified/m1/",
    made_by="lakefs-gc",
    created_at=NOW,
    cutoff=NOW,
    digest="sha256:abc",
    parts=(),
    candidates=0,
    candidate_bytes=0,
    counts={},
    reasons={},
    checks=(),
    rules=None,
    run={
        "run_key": "lake/m1",
        "server": {"endpoint_url": "http://lakefs", "repository_created_at": "2026-01-01T00:00:00+00:00"},
        "unreadable": [],
        "not_asked": [],
        "named_at_root": "",
        "sweep_policy": "manual",
        "sweep_delay_hours": 0.0,
        "needs_backup": False,
        "longest_commit_minutes": 0.0,
    },
    inputs={},
    versions={},
)
