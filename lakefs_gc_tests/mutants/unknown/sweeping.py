"""Rule 12: deletes whose end is not known."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = ()
