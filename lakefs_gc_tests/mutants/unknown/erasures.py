"""Rule 12 in ``prove-erased``: what may remain, and nobody looked at, is no proof."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        12,
        "the objects that a list shows are looked at, also if their paths cannot be looked up",
        "engine/explain/erasure.py",
        "return shown_at(sources, places, listed)",
        "return shown_at(sources, places)",
        "engine/explain/test_erasure_on_branches.py",
        "not_utf8",
    ),
    Mutant(
        12,
        "a list that shows several paths as one does not show all objects",
        "engine/explain/erasure.py",
        "any(REPLACEMENT_CHARACTER in path for path in shown)",
        "False",
        "engine/explain/test_erasure_on_branches.py",
        "not_utf8",
    ),
)
