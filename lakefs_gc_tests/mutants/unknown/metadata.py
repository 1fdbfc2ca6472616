"""Rule 12: metadata files that are missing."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant, never

MUTANTS: tuple[Mutant, ...] = (
    never(
        12,
        "executors list the metadata of another repository that the driver sees",
        "engine/collect/references/active_ranges.py",
        'seen and not pc.any(pc.equal(files.column("address"), METADATA_FOLDER + seen), min_count=0).as_py()',
        "engine/collect/references/test_foreign_references.py",
        "executors_do_not_see",
    ),
    never(
        12,
        "without rules, each commit of a ref has its metarange in the store",
        "engine/collect/references/active_ranges.py",
        "must_exist",
        "engine/collect/references/test_active_ranges.py",
        "has_its_metarange",
    ),
    Mutant(
        12,
        "without rules, a metarange of a commit is read even if it is not listed",
        "engine/collect/references/active_ranges.py",
        '"full_outer"',
        '"left"',
        "engine/sweep/test_second_look.py",
        "lost_since",
    ),
    Mutant(
        12,
        "without rules, commits beyond the limit are unknown",
        "engine/collect/references/active_ranges.py",
        "0 if graph.complete else None",
        "0",
        "engine/collect/references/test_active_ranges.py",
        "beyond_the_limit",
    ),
    never(
        12,
        "beyond the limit of commits, each head still has its metarange in the store",
        "engine/collect/references/active_ranges.py",
        "not graph.complete",
        "engine/collect/references/test_active_ranges.py",
        "beyond_the_limit",
    ),
    never(
        12,
        "a log that lacks an ancestor is rejected",
        "engine/collect/references/commit_graph.py",
        "self.complete and missing",
        "engine/collect/references/test_active_ranges.py",
        "omits_an_ancestor",
    ),
    Mutant(
        12,
        "a range of a metarange that is in no list is read",
        "engine/collect/references/committed.py",
        "in _not_listed(named, listed, run):",
        "in ():",
        "engine/collect/references/test_committed.py",
        "while_the_files",
    ),
    never(
        12,
        "a range of a metarange that the store lacks is rejected",
        "engine/collect/references/committed.py",
        "missing",
        "engine/collect/references/test_committed.py",
        "ever_committed",
    ),
    never(
        12,
        "a sweep with more commits than the limit needs an override",
        "engine/sweep/second_look.py",
        'ranges.manifest.facts["missed_by_rules"] is None and not self._accepted.commits_unchecked',
        "engine/sweep/test_second_look.py",
        "grew",
    ),
)
