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
    run={},
    inputs={},
    versions={},
)
