"""Rule 12 in a backup location: what is there is needed, or of another program, unless something shows the opposite."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant, never

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        12,
        "the backup stays if the listing of its mark lacks an approval",
        "engine/undo/pruning.py",
        "namespace.stat_many(steps)",
        "namespace.stat_many(steps[:1])",
        "engine/undo/test_pruning.py",
        "without_what_the_store_shows",
    ),
    never(
        12,
        "the backup stays if the listing of its mark lacks what the store shows",
        "engine/undo/pruning.py",
        "lacking := sorted(shown.keys() - found.files.keys())",
        "engine/undo/test_pruning.py",
        "without_what_the_store_shows",
    ),
)
