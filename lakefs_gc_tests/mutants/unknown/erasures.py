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
    Mutant(
        12,
        "backups are looked for where a mark recorded a location",
        "engine/explain/erasure.py",
        "backup_urls=recorded.backup_urls",
        "backup_urls=()",
        "engine/explain/test_former_backups.py",
        "mark_recorded",
    ),
    Mutant(
        12,
        "a former backup location that cannot be read is unknown",
        "engine/explain/remaining_copies.py",
        'return Copies(copies, (f"{what}{location.url}: {error.message}",))',
        "return Copies(copies)",
        "engine/explain/test_former_backups.py",
        "mark_recorded",
    ),
    Mutant(
        12,
        "that no backup exists says nothing about what is in a backup location",
        "engine/explain/erasure.py",
        "if each != NO_LOCATION and each not in former]",
        "if False]",
        "engine/explain/test_former_backups.py",
        "mark_recorded",
    ),
    Mutant(
        12,
        "versions of a removed backup are looked at",
        "engine/explain/remaining_copies.py",
        "versions = find_versions(store, removed)",
        "versions = find_versions(store, ())",
        "engine/explain/test_former_backups.py",
        "removed_backup",
    ),
    Mutant(
        12,
        "metadata files that are written while a proof is made are read",
        "engine/explain/erasure.py",
        "for sighting in history.new_objects_at(paths)}",
        "for sighting in ()}",
        "engine/explain/test_erasure_on_branches.py",
        "meanwhile",
    ),
    Mutant(
        12,
        "branches that are created while a proof is made are asked",
        "engine/explain/erasure.py",
        "dict(sources.server.branch_heads(sources.repository)), paths, unread)",
        "history.heads, paths, unread)",
        "engine/explain/test_erasure_on_branches.py",
        "new_branch",
    ),
)
