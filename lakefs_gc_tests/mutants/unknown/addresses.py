"""Rule 12: an address that no known folder explains."""

from __future__ import annotations

from lakefs_gc_tests.mutants.mutant import Mutant, never

_TEST = "engine/test_known_folders.py"

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
)
