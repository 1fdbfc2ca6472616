"""Design 4: a list of staging tokens for each address. A background job removes ended tokens from the lists.

Keys: ``references/<address>`` (the tokens), ``staging-deleted/<token>``, ``staging-committed/<commit id>`` (the tokens;
the document's key contains an address, but its flows use the commit). StageObject accepts only addresses outside the
repository, which are never deleted, so it is not modelled. The job, not commit or reset, deletes the staging areas.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from lakefs_gc.hard_delete.combinations import case
from lakefs_gc.hard_delete.model import Bound, Design, Kind, Open, Operation, Reading, kinds
from lakefs_gc.hard_delete.models import lake
from lakefs_gc.hard_delete.models.lake import (
    BRANCHES,
    COMMITS,
    STAGING,
    TOMBSTONE,
    Entry,
    branch_key,
    part,
    part_branch_from_main,
    staged_key,
)
from lakefs_gc.hard_delete.steps import OBJECTS, Drop, Get, Put, Recap, Remove, Scan, Set, SetIf, Steps

REFERENCES = "references/"
DELETED = "staging-deleted/"
COMMITTED = "staging-committed/"
LINKS = "links/"
_TRIES = 3


def add_reference(address: str, token: str, number: str) -> Steps[bool]:
    """Add a token to an address's list. Fail if the list is empty, because the job is about to delete the object."""
    for _ in range(_TRIES):
        tokens = yield Get(REFERENCES + address, text=f"{number}: reads the reference list of {address}")
        if tokens == ():
            return False
        wanted = tuple(sorted({*(tokens or ()), token}))
        text = f"{number}: sets the list of {address} to ({' '.join(wanted)}), if it did not change"
        if (yield SetIf(REFERENCES + address, wanted, tokens, text=text)):
            return True
    return False


def upload(branch: str, path: str, address: str, content: str) -> Steps[None]:
    """Upload Object."""
    yield Put(address, content, text=f"Upload 1: writes object {address}")
    yield from lake.write_entry(branch, path, Entry(address, content), _referring(address, "Upload 2-3"))


def _referring(address: str, number: str) -> Callable[[str], Steps[bool]]:
    """Return the step of each attempt of a write: add the reference. Only the number of attempts is remembered."""
    attempts = itertools.count(1)

    def refer(token: str) -> Steps[bool]:
        attempt = next(attempts)
        done = yield from add_reference(address, token, number)
        yield Recap((address, attempt), (token, done))
        return done

    return refer


def upload_and_link(branch: str, path: str, address: str, content: str) -> Steps[None]:
    """GetPhysicalAddress, an upload to the address, and LinkPhysicalAddress, which uses up its token."""
    yield Set(LINKS + address, "valid", text=f"GetPhysicalAddress 2: saves the token for {address}")
    yield Put(address, content, text=f"uploads to {address}")
    yield Drop(LINKS + address, text=f"Link 1.2.1: checks and removes the token of {address}")
    yield from lake.write_entry(branch, path, Entry(address, content), _referring(address, "Link 1.2.2"))


def copy_reference(address: str, token: str) -> Steps[bool]:
    """CopyObject's loop. Reply: whether the entry may be written."""
    for _ in range(_TRIES):
        tokens = yield Get(REFERENCES + address, text=f"Copy 1.1: reads the reference list of {address}")
        if tokens is None:
            return True  # Copy 1.2: not found, so the object is assumed to be committed
        if not tokens:
            return False  # Copy 1.1.1.1: the job is about to delete it
        wanted = tuple(sorted({*tokens, token}))
        text = f"Copy 1.1.2: sets the list of {address} to ({' '.join(wanted)}), if it did not change"
        if (yield SetIf(REFERENCES + address, wanted, tokens, text=text)):
            return True
    return False


def copy(source_branch: str, source: str, branch: str, path: str) -> Steps[None]:
    """CopyObject."""
    current = yield Get(branch_key(source_branch), text=f"reads branch {source_branch}")
    if current is None:
        return
    entry = yield Get(staged_key(current.token, source), text=f"reads entry {source} in {current.token}")
    if isinstance(entry, Entry):
        yield from lake.write_entry(branch, path, entry, lambda token: copy_reference(entry.address, token))


def commit(branch: str, commit_id: str, token: str) -> Steps[None]:
    """Commit."""
    if (yield from lake.new_token(branch, token, seal=True)) is None:
        return
    yield Recap(f"{commit_id}: sealed", None)
    done = yield from lake.write_commit(branch, commit_id)
    yield Recap(f"{commit_id}: committed", done)
    if done is not None:
        yield Set(COMMITTED + commit_id, done[0].sealed, text=f"Commit 2: adds the committed entry of {commit_id}")


def reset(branch: str, token: str | None) -> Steps[None]:
    """Reset a branch, or delete it if ``token`` is None."""
    for dropped in (yield from lake.take_staging_away(branch, token)):
        yield Set(DELETED + dropped, "deleted", text=f"Reset 2: adds the deleted entry of {dropped}")


def job() -> Steps[None]:
    """One pass of the background delete job over committed and deleted tokens."""
    ended = yield Scan(COMMITTED, text="Job: scans the committed tokens")
    for number, (key, tokens) in enumerate(ended):
        yield Recap("committed", ended[number:])
        commit_id = key.removeprefix(COMMITTED)
        committed = yield Get(COMMITS + commit_id, text=f"Job: reads commit {commit_id}")
        for _, entry in committed.entries:
            yield Drop(REFERENCES + entry.address, text=f"Job: removes the reference key of {entry.address}")
        for token in tokens:
            yield Set(DELETED + token, "deleted", text=f"Job: moves {token} to the deleted tokens")
        yield Drop(key, text=f"Job: removes the committed entry of {commit_id}")
    yield Recap("committed", ())
    ended = yield Scan(DELETED, text="Job: scans the deleted tokens")
    for number, (key, _) in enumerate(ended):
        yield Recap("deleted", ended[number:])
        token = key.removeprefix(DELETED)
        folder = f"{STAGING}{token}/"
        rows = yield Scan(folder, text=f"Job: reads what is staged in {token}")
        addresses = sorted({entry.address for _, entry in rows if entry != TOMBSTONE})
        for index, address in enumerate(addresses):
            yield Recap("address", (ended[number:], tuple(addresses[index:])))
            yield from _remove_reference(address, token)
        yield Recap("address", (ended[number:], ()))
        yield Drop(folder, text=f"Job: deletes the staging area of {token}")
        yield Drop(key, text=f"Job: removes the deleted entry of {token}")


def _remove_reference(address: str, token: str) -> Steps[None]:
    for _ in range(_TRIES):
        tokens = yield Get(REFERENCES + address, text=f"Job: reads the reference list of {address}")
        if tokens is None or token not in tokens:
            return
        left = tuple(other for other in tokens if other != token)
        if not (
            yield SetIf(REFERENCES + address, left, tokens, text=f"Job: removes {token} from the list of {address}")
        ):
            continue
        if not left:
            yield Remove(address, text=f"Job: the list is empty: hard-deletes {address}")
            yield Drop(REFERENCES + address, text=f"Job: removes the reference key of {address}")
        return


# -- combinations and scenarios

_STAGED_AT_A = {"main": ("c0", "t1", {"a": "A"}), "dev": ("c0", "d1", {})}
_WRITTEN = (OBJECTS, STAGING, REFERENCES, DELETED, COMMITTED, LINKS)
_PARTS = (
    part("upload a", lambda n: lambda: upload("main", "a", f"N{n}", f"data {n}"), *_WRITTEN),
    part("link a", lambda n: lambda: upload_and_link("main", "a", f"L{n}", f"data {n}"), *_WRITTEN),
    part("copy a to b", lambda n: lambda: copy("main", "a", "main", "b"), *_WRITTEN),
    part("copy a to dev", lambda n: lambda: copy("main", "a", "dev", "b"), *_WRITTEN),
    part("delete a", lambda n: lambda: lake.delete_path("main", "a"), *_WRITTEN),
    part("commit", lambda n: lambda: commit("main", f"e{n}", f"u{n}"), *_WRITTEN, BRANCHES, COMMITS),
    part("reset", lambda n: lambda: reset("main", f"r{n}"), *_WRITTEN, BRANCHES),
    part("delete branch", lambda n: lambda: reset("main", None), *_WRITTEN, BRANCHES),
    part_branch_from_main(),
)
READING = Reading(
    "",
    "",
    {
        "empty": lake.lake({}, {"main": ("c0", "t1", {}), "dev": ("c0", "d1", {})}),
        "a staged": lake.lake({"A": "data"}, _STAGED_AT_A, more={REFERENCES + "A": ("t1",)}),
    },
    _PARTS,
    Bound(3, 3, 2),
    lake.view,
    (job, job),
    (Operation("job", job, _WRITTEN),),
)

DESIGN = Design(
    4,
    "Staging token states",
    "Each address has a list of the staging tokens that reference it. A job removes committed and deleted tokens, and "
    "deletes the object when the list is empty.",
    (READING,),
    (
        case(
            READING,
            "empty",
            "upload a",
            "commit",
            "reset",
            name="upload-commit-reset",
            question="An object is uploaded while its branch is committed, and then the branch is reset.",
            expected=kinds(Kind.COMMITTED_LOST, Kind.STAGED_LOST, Kind.LEAKED),
            moral="The upload's second attempt cannot distinguish an address whose key the job dropped from a new one, "
            "and makes a new list. The job dropped the key because it deleted the object, as here, or because the "
            "object is committed. In the second case the new list makes it delete the object later.",
            shown_by=(
                ("job", "Job: removes the reference key of N1"),
                ("upload a", "Upload 2-3: sets the list of N1 to (r3)"),
                ("commit", "writes commit e2: a = N1"),
            ),
        ),
        case(
            READING,
            "a staged",
            "copy a to dev",
            "reset",
            name="copy-reset",
            question="A path is copied to another branch while its own branch is reset, and the job runs.",
            expected=kinds(Kind.STAGED_LOST),
            moral="CopyObject assumes that an object without a key is committed. The job may also have removed the "
            "key, because it deleted the object.",
            shown_by=(
                ("job", "Job: the list is empty: hard-deletes A"),
                ("copy a to dev", "Copy 1.1: reads the reference list of A"),
            ),
        ),
        case(
            READING,
            "empty",
            "upload a",
            "reset",
            name="upload-reset",
            question="An object is uploaded while the branch is reset, and the job runs.",
            expected=kinds(Kind.STAGED_LOST),
            moral="lakeFS repeats a write if the token changed meanwhile. The job reads the entry of the first attempt "
            "in the old token, and deletes the object.",
            shown_by=(("job", "Job: the list is empty: hard-deletes N1"), ("upload a", "stages a = N1 in r2")),
        ),
        case(
            READING,
            "a staged",
            "upload a",
            name="override",
            question="A staged path is uploaded again.",
            expected=kinds(Kind.LEAKED),
            documented="4, Handling key override on same staging token",
            moral="The list of the overwritten object keeps the token. The job reads a token's references from its "
            "staging area, which no longer contains the overwritten entry, so the object stays when the token ends.",
            shown_by=(("upload a", "stages a = N1 in t1"),),
        ),
        case(
            READING,
            "a staged",
            "reset",
            crashes="reset",
            name="crash",
            question="A reset crashes.",
            expected=kinds(Kind.LEAKED),
            moral="The branch no longer has the token, and the job has no record of it.",
            shown_by=(("reset", "changes the staging token"), ("reset", "crashes")),
        ),
    ),
    picture="""\
entry a in t1 ----> object A <---- references/A = (t1 d1)
                                        ^
commit, reset --> t1 has ended --> job -+  removes t1 from the lists of what t1 still contains
                                           an empty list: deletes the object""",
    opens=(
        Open("Handling key override on same staging token (TBD)", "Modelled as it stands: `override` leaks."),
        Open(
            "The key of the committed tokens",
            "The document's key has an address, and its flows use the commit. The model uses the commit.",
        ),
        Open("Stage Object", "Out: the document allows only addresses outside the repository (base assumption 2)."),
        Open("Full copies (base assumption 1)", "Not used: the document's CopyObject adds a reference."),
    ),
)
