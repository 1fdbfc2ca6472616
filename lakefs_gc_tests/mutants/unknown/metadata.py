"""Rule 12: metadata files that cannot be found."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant, never

MUTANTS: tuple[Mutant, ...] = (
    never(
        12,
        "without rules, each commit of a ref has its metarange in the store",
        "engine/active_ranges.py",
        "must_exist",
        "engine/test_active_ranges.py",
        "has_its_metarange",
    ),
    Mutant(
        12,
        "without rules, a metarange that is named is read, whether it is listed or not",
        "engine/active_ranges.py",
        '"full_outer"',
        '"left"',
        "engine/test_second_look.py",
        "lost_since",
    ),
    Mutant(
        12,
        "without rules, commits beyond the limit are unknown",
        "engine/active_ranges.py",
        "0 if graph.complete else None",
        "0",
        "engine/test_active_ranges.py",
        "beyond_the_limit",
    ),
    never(
        12,
        "beyond the limit of commits, each head still has its metarange in the store",
        "engine/active_ranges.py",
        "not graph.complete",
        "engine/test_active_ranges.py",
        "beyond_the_limit",
    ),
    never(
        12,
        "a log that lacks an ancestor is refused",
        "engine/commit_graph.py",
        "self.complete and lost",
        "engine/test_active_ranges.py",
        "lacks_an_ancestor",
    ),
    Mutant(
        12,
        "a range that a metarange names and no list has is read",
        "engine/committed.py",
        "in _not_listed(named, listed, run):",
        "in ():",
        "engine/test_committed.py",
        "while_the_files",
    ),
    never(
        12,
        "a range that a metarange names and the store lacks is refused",
        "engine/committed.py",
        "missing",
        "engine/test_committed.py",
        "ever_committed",
    ),
    never(
        12,
        "a sweep whose commits are beyond the limit needs an override",
        "engine/second_look.py",
        'ranges.manifest.facts["missed_by_rules"] is None and not self._accepted.commits_unchecked',
        "engine/test_second_look.py",
        "grew",
    ),
)
