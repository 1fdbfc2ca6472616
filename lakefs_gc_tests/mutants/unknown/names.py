"""Names that lakeFS did not generate: at the root, and in a namespace that is a whole bucket (rules 4 and 8)."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant, never

_TEST = "engine/collect/listing/test_foreign_names.py"
_CHECKS_TEST = "engine/decide/marking/test_checks.py"

MUTANTS: tuple[Mutant, ...] = (
    never(
        4,
        "a name at the root that lakeFS did not generate is not a candidate",
        "engine/decide/matching/unmatched.py",
        "not named",
        _TEST,
        "counted_and_not_marked",
    ),
    Mutant(
        4,
        "in a whole bucket, a staged name does not make other names candidates",
        "engine/collect/listing/foreign_names.py",
        " or is_in_whole_bucket(run)",
        "",
        _TEST,
        "whole_bucket",
    ),
    Mutant(
        4,
        "a reference of another repository does not make names candidates",
        "engine/decide/matching/unmatched.py",
        "named_at_root(run, listing, uncommitted, committed)",
        "named_at_root(run, listing, uncommitted, committed, foreign_references)",
        _TEST,
        "of_another_repository",
    ),
    never(
        4,
        "a sweep rejects names that lakeFS did not generate, in any mark",
        "engine/sweep/sweep.py",
        'unrecognized := not unrecognized_too and everything.manifest.facts["unrecognized"]',
        _TEST,
        "with_unrecognized_names_is_not_swept",
    ),
    Mutant(
        8,
        "the marked share counts only objects of lakeFS",
        "engine/decide/marking/evidence.py",
        " - not_lakefs[NOT_LAKEFS],",
        ",",
        _TEST,
        "lower_the_shares",
    ),
    Mutant(
        4,
        "a name without a digit is not an xid",
        "formats/candidate_addresses.py",
        "|(?=[a-v]*[0-9]){_XID}",
        "|{_XID}",
        "formats/test_candidate_addresses.py",
        "unrecognized",
    ),
    Mutant(
        8,
        "marked objects in data/ of a whole bucket with other names than lakeFS generates need an override",
        "engine/collect/listing/foreign_names.py",
        "if not is_in_whole_bucket(run):\n        return {}",
        "if is_in_whole_bucket(run):\n        return {}",
        _TEST,
        "whole_bucket",
    ),
    Mutant(
        8,
        "the check of names looks at the marked objects of a whole bucket",
        "engine/decide/marking/evidence.py",
        "if not is_in_whole_bucket(run):",
        "if True:",
        _TEST,
        "whole_bucket",
    ),
    Mutant(
        8,
        "names that lakeFS did not generate block",
        "engine/decide/marking/checks.py",
        "if names.objects:",
        "if False:",
        _CHECKS_TEST,
        "each_check",
    ),
    Mutant(
        8,
        "the end of a name that lakeFS generates is its end",
        "formats/candidate_addresses.py",
        r"(?:{_ISSUED_IN_DATA})(?![\s\S]))",
        r"(?:{_ISSUED_IN_DATA}))",
        _TEST,
        "chosen_names",
    ),
)
