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
    Mutant(
        12,
        "the backup stays if a sweep began after its mark was looked at",
        "engine/undo/pruning.py",
        "        is_still_expired = is_expired()",
        "        is_still_expired = True",
        "engine/undo/test_pruning.py",
        "begins_while_its_backup_is_pruned",
    ),
    Mutant(
        12,
        "the backup stays while a sweep waits or looks",
        "engine/undo/pruning.py",
        "(paths.ledger, paths.claims)",
        "paths.ledger",
        "engine/undo/test_pruning.py",
        "has_not_looked_yet",
    ),
    Mutant(
        12,
        "copies that got lost during the look end the sweep before its deletes",
        "engine/sweep/sweep.py",
        "            self._check_backup()",
        "            pass",
        "pipeline/assets/test_backup.py",
        "while_a_sweep_waits",
    ),
    Mutant(
        12,
        "an upload is one of a backup only if the id of its mark, or a record, shows it",
        "engine/undo/pruning.py",
        " and (paths.has_run_id or paths in recorded)",
        "",
        "engine/undo/test_unfinished.py",
        "other_programs",
    ),
    Mutant(
        12,
        "only uploads of copies are uploads of a backup",
        "engine/records/backup_manifest.py",
        "(?:objects/.+|",
        "(?:.+|",
        "engine/undo/test_unfinished.py",
        "other_programs",
    ),
    never(
        12,
        "a folder with a file like the record of a backup is not a backup",
        "engine/undo/pruning.py",
        "not listed.namespace",
        "engine/undo/test_unfinished.py",
        "never_removed",
    ),
)
