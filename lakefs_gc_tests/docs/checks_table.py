"""Generate the table of checks from the checks themselves."""

from __future__ import annotations

from lakefs_gc.engine.records.check import CHECKS, SWEEP_CHECKS, WARNING_CHECKS
from lakefs_gc_tests.docs.markdown import table


def check_names() -> list[str]:
    """Return the names of all checks of a mark and of a sweep."""
    return [*CHECKS, *SWEEP_CHECKS]


def checks_table() -> str:
    """Return what each check says when it passes, and what a failure of it does."""
    rows = [
        (f"[`{name}`](#{name})", passes, "warning" if name in WARNING_CHECKS else "error")
        for name, passes in {**CHECKS, **SWEEP_CHECKS}.items()
    ]
    return table(("check", "passes when", "severity of a failure"), rows)
