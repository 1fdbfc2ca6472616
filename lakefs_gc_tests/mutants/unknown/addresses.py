"""Addresses in folders that are not known (rule 12), and names at the root that lakeFS does not give (rule 4)."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant, never

_TEST = "engine/test_known_folders.py"
_STRANGERS = "engine/test_strangers.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        12,
        "the server's own folder of a local namespace is learnt",
        "engine/known_folders.py",
        "dict.fromkeys((*learnt, *mounted))",
        "dict.fromkeys(mounted)",
        _TEST,
        "servers_folder",
    ),
    Mutant(
        12,
        "a mount of a folder is a spelling of the namespace",
        "engine/known_folders.py",
        "dict.fromkeys((*learnt, *mounted))",
        "dict.fromkeys(learnt)",
        _TEST,
        "no_folder_explains",
    ),
    Mutant(
        12,
        "an address of a range that no folder explains ends the run",
        "engine/committed.py",
        "if explained_by is not None:",
        "if False:",
        _TEST,
        "no_folder_explains",
    ),
    Mutant(
        12,
        "a staged address that no folder explains ends the run",
        "engine/known_folders.py",
        "if not alike and not _may_be_of_a_slice(readings):",
        "if True:",
        _TEST,
        "no_folder_explains",
    ),
    never(
        12,
        "a symbolic link below a namespace ends the listing",
        "storage/local.py",
        "entry.is_symlink()",
        "storage/test_local.py",
        "fails_each_listing",
    ),
    Mutant(
        12,
        "a listing below a symbolic link is no empty one",
        "storage/local.py",
        "                self._refuse_link_above(level)\n",
        "",
        "storage/test_local.py",
        "fails_each_listing",
    ),
    never(
        12,
        "a server that does not tell its folder stops the run",
        "engine/known_folders.py",
        "not learnt",
        _TEST,
        "does_not_tell",
    ),
    never(
        4,
        "a name at the root that lakeFS does not give is no candidate",
        "engine/unmatched.py",
        "not named",
        _STRANGERS,
        "counted_and_not_marked",
    ),
    Mutant(
        4,
        "in a whole bucket no staged name makes others the repository's",
        "engine/strangers.py",
        " or is_whole_bucket(run.namespace)",
        "",
        _STRANGERS,
        "whole_bucket",
    ),
    Mutant(
        4,
        "what a neighbour refers to makes no name the repository's",
        "engine/unmatched.py",
        "named_at_root(run, listing, uncommitted, committed)",
        "named_at_root(run, listing, uncommitted, committed, foreign_references)",
        _STRANGERS,
        "neighbour",
    ),
    Mutant(
        4,
        "an xid has a digit, a word has not",
        "formats/addresses.py",
        "|(?=[a-v]*[0-9]){_XID}",
        "|{_XID}",
        "formats/test_addresses.py",
        "strangers",
    ),
    never(
        4,
        "a sweep refuses names that lakeFS does not give, whoever marked them",
        "engine/sweep.py",
        'strangers := not strangers_too and everything.manifest.facts["strangers"]',
        _STRANGERS,
        "names_them_is_not_swept",
    ),
    Mutant(
        8,
        "the share of a mark is one of what is lakeFS's",
        "engine/evidence.py",
        " - strangers[NOT_LAKEFS],",
        ",",
        _STRANGERS,
        "look_small",
    ),
)
