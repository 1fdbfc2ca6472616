"""Rule 12: deletes whose end is not known."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant, never

MUTANTS: tuple[Mutant, ...] = (
    never(
        12,
        "what a killed sweep deleted is not counted as kept",
        "engine/deletion.py",
        "info is None and is_kept and (ours or planned.verdict == ledger.RESURRECTED)",
        "engine/test_deletion.py",
        "kept_and_is_gone",
    ),
)
