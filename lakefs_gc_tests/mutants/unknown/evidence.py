"""Rule 12: what a check could not look at."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant, never

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        12,
        "what is unknown has not passed",
        "engine/brakes.py",
        "return self.answer is Answer.SAFE",
        "return self.answer is not Answer.UNSAFE",
        "engine/test_brakes.py",
    ),
    never(
        12,
        "a check of other repositories that is off is unknown",
        "engine/evidence.py",
        'facts["switched_off"]',
        "engine/test_foreign_references.py",
        "switched_off",
    ),
    never(
        12,
        "a sweep refuses another repository that is unknown and not accepted",
        "engine/foreign_references.py",
        "accepted is not None and not accepted.others_unread",
        "engine/test_foreign_references.py",
        "switched_off",
    ),
    never(
        12,
        "a mark that was rewritten is looked at whole",
        "engine/second_look.py",
        "not work_place.has_made(run_key, mark.mark_id, mark.digest)",
        "engine/test_second_look.py",
        "rewritten",
    ),
    never(
        12,
        "a mark that has lost its manifest is refused",
        "engine/marks.py",
        "made_by_us(store, mark_id)",
        "engine/test_marks.py",
        "lost_manifest",
    ),
    never(
        12,
        "a mark is swept with its own server",
        "engine/marks.py",
        "mark.is_ours",
        "engine/test_marks.py",
        "own_server",
    ),
    never(
        12,
        "a mark of the client is checked when it is swept",
        "assets/sweep.py",
        "not found.mark.is_ours",
        "assets/test_sweep_preconditions.py",
        "checked_when",
    ),
    Mutant(
        12,
        "bytes count for the share, however few the objects",
        "engine/brakes.py",
        " or seen.marked_bytes > safety.share_counts_from_bytes",
        "",
        "engine/test_brakes.py",
    ),
    never(
        12,
        "a repository that has lost a range is unknown",
        "engine/foreign_references.py",
        'found.manifest.facts["lost"]',
        "engine/test_foreign_references.py",
        "lost_a_range",
    ),
    Mutant(
        12,
        "a range of the same name in another repository is no proof",
        "engine/foreign_references.py",
        "                named.pop(file, None)",
        "                named = {key: name for key, name in named.items() if key[1] != file[1]}",
        "engine/test_foreign_references.py",
        "lost_a_range",
    ),
    Mutant(
        12,
        "a range that no list has is read",
        "engine/foreign_references.py",
        "        for key, data in store.read_many(sorted(there), concurrency=_READS_AT_ONCE):",
        "        for key, data in ():",
        "engine/test_foreign_references.py",
        "written_while",
    ),
)
