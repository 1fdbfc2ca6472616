"""Live objects that a store lists under other names than those by which lakeFS reads them (rules 8 and 12)."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant, never

_TEST = "engine/decide/test_listed_otherwise.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        12,
        "a relative address with backslashes may be listed with slashes",
        "formats/addresses.py",
        'outside = pc.or_(outside, pc.match_substring(addresses, "\\\\"))',
        "",
        "formats/test_address_readings.py",
        "relative_address",
    ),
    Mutant(
        12,
        "a staged address with backslashes may be listed with slashes",
        "engine/collect/references/uncommitted.py",
        r'r"[%?\\]|(?:\A|/)',
        r'r"[%?]|(?:\A|/)',
        _TEST,
        "converts_backslashes",
    ),
    Mutant(
        12,
        "a full address with backslashes may be listed with slashes",
        "formats/address_readings.py",
        r'r"[%?\\]|[^:/]/',
        r'r"[%?]|[^:/]/',
        "formats/test_address_readings.py",
        "backslashes",
    ),
    never(
        8,
        "marked objects that may be live under another name block",
        "engine/decide/marking/checks.py",
        "otherwise.objects",
        _TEST,
        "needs_a_person",
    ),
    Mutant(
        12,
        "with too many live objects that are not listed, other names are unknown",
        "engine/decide/missing.py",
        "    if counted > _MOST_UNLISTED:\n        return None\n",
        "    counted = min(counted, _MOST_UNLISTED)\n    rows = rows.limit(counted)\n",
        _TEST,
        "needs_a_person",
    ),
    Mutant(
        12,
        "live objects that are not listed are compared from the cutoff on",
        "engine/decide/missing.py",
        "info.last_modified < listed_before)",
        "info.last_modified < listed_before - LONGEST_UPLOAD)",
        _TEST,
        "needs_a_person",
    ),
    Mutant(
        8,
        "live objects where the listing does not look keep no mark from being swept",
        "engine/decide/missing.py",
        "may_list and _CANDIDATE.search(folded) is not None",
        "may_list",
        _TEST,
        "does_not_look",
    ),
    Mutant(
        8,
        "live objects that are listed with slashes keep no mark from being swept",
        "engine/decide/missing.py",
        'with_slashes(row["address"], store.url) == row["address"]',
        "True",
        _TEST,
        "converts_backslashes",
    ),
    Mutant(
        12,
        "an optimized listing takes over no listing that lacks live objects",
        "engine/collect/listing/earlier_listing.py",
        'missing_facts.get("unlisted", 1) or missing_facts.get("unlisted_objects") != []',
        "False",
        _TEST,
        "no_listing_is_taken_over",
    ),
    Mutant(
        12,
        "an optimized listing lists new slices whole",
        "engine/decide/missing.py",
        "taken_over_before = datetime.fromisoformat(facts[TAKEN_OVER_BEFORE])",
        "return EPOCH, EPOCH",
        _TEST,
        "new_under_another_name",
    ),
    Mutant(
        12,
        "what an address may also mean is lost if it has another size",
        "engine/decide/missing.py",
        '{read_otherwise[row["address"]]} >= {*row["sizes"]}',
        "True",
        _TEST,
        "may_also_mean",
    ),
)
