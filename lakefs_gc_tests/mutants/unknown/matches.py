"""Rule 12: objects and references that are left out before they are compared."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        12,
        "references that were not read do not make their objects unreferenced",
        "engine/decide/matching/matched.py",
        "    dataset.files.refuse_others(whole)",
        "    pass",
        "engine/decide/matching/test_matched.py",
        "lost_rows",
    ),
    Mutant(
        12,
        "a reference stays if its object was not found",
        "engine/decide/matching/address_table.py",
        " or not found[slot]",
        "",
        "engine/decide/matching/test_address_table.py",
        "found_with_its_size",
    ),
    Mutant(
        12,
        "a reference stays if it is not in the table",
        "engine/decide/matching/address_table.py",
        "table[slot] == _FREE or differs[slot] or not found[slot]",
        "table[slot] != _FREE and (differs[slot] or not found[slot])",
        "engine/decide/matching/test_matched.py",
        "uncovers_no_live",
    ),
    Mutant(
        12,
        "a reference stays if one of two objects with its hash stays",
        "engine/decide/matching/address_table.py",
        " or differs[slot]",
        "",
        "engine/decide/matching/test_address_table.py",
        "one_hash",
    ),
    Mutant(
        12,
        "an object of which one entry states another size stays",
        "engine/decide/matching/address_table.py",
        "            table_sizes[slot] = _OF_NO_OBJECT\n",
        "            pass\n",
        "engine/decide/matching/test_address_table.py",
        "found_with_its_size",
    ),
    Mutant(
        12,
        "an entry that states a size that no object has does not count as one without a size",
        "engine/decide/matching/address_table.py",
        "np.where(np.less(sizes.to_numpy(), 0), _OF_NO_OBJECT, sizes.to_numpy())",
        "sizes.to_numpy()",
        "engine/decide/matching/test_address_table.py",
        "no_object_has",
    ),
    Mutant(
        6,
        "an object may be shown by another text than its address",
        "engine/decide/shown/lookups.py",
        ' and not pc.any(_may_be_shown_otherwise(table["address"])).as_py()',
        "",
        "engine/spark/test_local_rows.py",
        "what_branches_show",
    ),
    Mutant(
        6,
        "no rows of the driver are left out of a union",
        "engine/spark/local_rows.py",
        "    if len(known) < len(tables) or ",
        "    if not known or ",
        "engine/spark/test_local_rows.py",
        "unions",
    ),
)
