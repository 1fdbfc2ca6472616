"""The page of a mark as values for programs: ``show --json`` and the notification about the mark have the same ones."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lakefs_gc.report.page import MarkPage


def page_facts(page: MarkPage) -> dict[str, Any]:
    """Return what the page shows beside the manifest of the mark, as JSON: sizes in bytes, times in ISO 8601."""
    return {
        "next": {
            "state": page.next.state.value,
            "text": page.next.headline,
            "detail": page.next.detail,
            "commands": list(page.next.commands),
        },
        "ready_at": page.ready_at.isoformat() if page.ready_at else None,
        "why_empty": page.why_empty,
        "funnel": [
            {
                "name": step.name,
                "objects": step.amount.objects,
                "size_bytes": step.amount.size_bytes,
                "part_of_previous": step.is_detail,
            }
            for step in page.funnel
        ],
        "bytes_by_age": {
            row.name: {
                "listed": row.listed_bytes,
                "marked": row.marked_bytes,
                "never_committed": row.never_committed_bytes,
            }
            for row in page.ages
        },
        "compared_with": page.compared_with,
        "comparison": [{"name": each.name, "before": each.before, "now": each.now} for each in page.comparison],
        "folders": [
            asdict(group) | {"committed_at": group.committed_at.isoformat() if group.committed_at else None}
            for group in page.groups
        ],
        "folders_note": page.groups_note,
        "sample": list(page.sample),
        "largest_prefixes": [asdict(prefix) for prefix in page.prefixes],
        "in_force": [asdict(fact) for fact in page.in_force],
        "lowered_settings": [asdict(setting) for setting in page.lowered],
        "timing": [asdict(fact) for fact in page.timing],
        "what_else_changes": list(page.consequences),
    }
