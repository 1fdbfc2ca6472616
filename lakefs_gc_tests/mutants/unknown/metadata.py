"""Rule 12: metadata files that cannot be found."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = ()
