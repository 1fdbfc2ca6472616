"""The mutants: the removed check or step, its rule in ``docs/safety.md``, and the test that must fail without it."""

from __future__ import annotations

from lakefs_gc_tests.mutants import rules_1_to_5, rules_6_to_11
from lakefs_gc_tests.mutants.unknown import (
    addresses,
    answers,
    approvals,
    backing_up,
    backups,
    connections,
    erasures,
    evidence,
    google,
    inventories,
    lists,
    matches,
    metadata,
    moves,
    names,
    other_stores,
    proofs,
    spellings,
    sweeping,
    times,
    workspace,
)

MUTANTS = (
    *rules_1_to_5.MUTANTS,
    *rules_6_to_11.MUTANTS,
    *addresses.MUTANTS,
    *metadata.MUTANTS,
    *evidence.MUTANTS,
    *approvals.MUTANTS,
    *connections.MUTANTS,
    *other_stores.MUTANTS,
    *proofs.MUTANTS,
    *moves.MUTANTS,
    *names.MUTANTS,
    *spellings.MUTANTS,
    *sweeping.MUTANTS,
    *times.MUTANTS,
    *google.MUTANTS,
    *inventories.MUTANTS,
    *lists.MUTANTS,
    *matches.MUTANTS,
    *answers.MUTANTS,
    *erasures.MUTANTS,
    *backups.MUTANTS,
    *backing_up.MUTANTS,
    *workspace.MUTANTS,
)
