"""Design 4: a list of staging tokens for each address. A background job removes ended tokens from the lists.

Keys: ``references/<address>`` (the tokens), ``staging-deleted/<token>``, ``staging-committed/<commit id>`` (the tokens;
the document's key contains an address, but its flows use the commit). StageObject accepts only addresses outside the
repository, which are never deleted, so it is not modelled. The job, not commit or reset, deletes the staging areas.
"""

from __future__ import annotations

from lakefs_gc.hard_delete.model import Design, Kind, Operation, Scenario, kinds, one_after_the_other
from lakefs_gc.hard_delete.models import lake
from lakefs_gc.hard_delete.models.lake import (
    BRANCHES,
    COMMITS,
    STAGING,
    TOMBSTONE,
    Entry,
    branch_key,
    staged_key,
)
from lakefs_gc.hard_delete.steps import OBJECTS, Drop, Get, Program, Put, Remove, Scan, Set, SetIf, Steps
from lakefs_gc.hard_delete.world import World

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
    entry = Entry(address, content)
    yield from lake.write_entry(branch, path, entry, lambda token: add_reference(address, token, "Upload 2-3"))


def get_physical_address(address: str) -> Steps[None]:
    """GetPhysicalAddress."""
    yield Set(LINKS + address, "valid", text=f"GetPhysicalAddress 2: saves the token for {address}")


def link(branch: str, path: str, address: str, content: str) -> Steps[None]:
    """LinkPhysicalAddress, after the client's upload."""
    yield Put(address, content, text=f"uploads to {address}")
    if (yield Get(LINKS + address, text=f"Link 1.1: checks the token of {address}")) is None:
        return
    yield Drop(LINKS + address, text=f"Link 1.2.1: removes the token of {address}")
    entry = Entry(address, content)
    yield from lake.write_entry(branch, path, entry, lambda token: add_reference(address, token, "Link 1.2.2"))


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
    entry = yield Get(staged_key(current.token, source), text=f"reads entry {source} in {current.token}")
    if isinstance(entry, Entry):
        yield from lake.write_entry(branch, path, entry, lambda token: copy_reference(entry.address, token))


def commit(branch: str, commit_id: str, token: str) -> Steps[None]:
    """Commit."""
    if (yield from lake.new_token(branch, token, seal=True)) is None:
        return
    done = yield from lake.write_commit(branch, commit_id)
    if done is not None:
        yield Set(COMMITTED + commit_id, done[0].sealed, text=f"Commit 2: adds the committed entry of {commit_id}")


def reset(branch: str, token: str | None) -> Steps[None]:
    """Reset a branch, or delete it if ``token`` is None."""
    for dropped in (yield from lake.take_staging_away(branch, token)):
        yield Set(DELETED + dropped, "deleted", text=f"Reset 2: adds the deleted entry of {dropped}")


def job() -> Steps[None]:
    """One pass of the background delete job over committed and deleted tokens."""
    for key, tokens in (yield Scan(COMMITTED, text="Job: scans the committed tokens")):
        commit_id = key.removeprefix(COMMITTED)
        committed = yield Get(COMMITS + commit_id, text=f"Job: reads commit {commit_id}")
        for _, entry in committed.entries:
            yield Drop(REFERENCES + entry.address, text=f"Job: removes the reference key of {entry.address}")
        for token in tokens:
            yield Set(DELETED + token, "deleted", text=f"Job: moves {token} to the deleted tokens")
        yield Drop(key, text=f"Job: removes the committed entry of {commit_id}")
    for key, _ in (yield Scan(DELETED, text="Job: scans the deleted tokens")):
        token = key.removeprefix(DELETED)
        folder = f"{STAGING}{token}/"
        rows = yield Scan(folder, text=f"Job: reads what is staged in {token}")
        for address in sorted({entry.address for _, entry in rows if entry != TOMBSTONE}):
            yield from _remove_reference(address, token)
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


# -- scenarios

_WRITES = (OBJECTS, STAGING, REFERENCES, DELETED, COMMITTED)


def _operation(name: str, program: Program, *more: str) -> Operation:
    return Operation(name, program, (*_WRITES, *more))


def _reset() -> Operation:
    return _operation("reset", lambda: reset("main", "t2"), BRANCHES)


def _commit() -> Operation:
    return _operation("commit", lambda: commit("main", "c1", "t2"), BRANCHES, COMMITS)


def _copy(branch: str) -> Operation:
    return _operation("copy a to b", lambda: copy("main", "a", branch, "b"))


def _job() -> Operation:
    return _operation("job", job)


_SETTLED: tuple[Program, ...] = (job, job)
_STAGED = lake.lake(
    {"A": "data"},
    {"main": ("c0", "t1", {"a": "A"}), "dev": ("c0", "d1", {})},
    more={REFERENCES + "A": ("t1",)},
)
_EMPTY: World = lake.lake({}, {"main": ("c0", "t1", {})})

DESIGN = Design(
    4,
    "Staging token states",
    "Each address has a list of the staging tokens that reference it. A job removes committed and deleted tokens, and "
    "deletes the object when the list is empty.",
    (
        Scenario(
            "override",
            "A path is uploaded twice to the same staging token; then the branch is reset.",
            _EMPTY,
            (
                _operation(
                    "client",
                    one_after_the_other(
                        lambda: upload("main", "a", "A1", "first"),
                        lambda: upload("main", "a", "A2", "second"),
                        lambda: reset("main", "t2"),
                    ),
                    BRANCHES,
                ),
            ),
            lake.view,
            _SETTLED,
            expected=kinds(Kind.LEAKED),
            documented="4, Handling key override on same staging token",
            moral="The job reads a token's references from its staging area, which no longer contains the overwritten "
            "entry.",
        ),
        Scenario(
            "delete",
            "A path is deleted before the branch is committed.",
            _STAGED,
            (
                _operation(
                    "client",
                    one_after_the_other(lambda: lake.delete_path("main", "a"), lambda: commit("main", "c1", "t2")),
                    BRANCHES,
                    COMMITS,
                ),
            ),
            lake.view,
            _SETTLED,
            expected=kinds(Kind.LEAKED),
            moral="A tombstone also overwrites an entry.",
        ),
        Scenario(
            "copy-reset",
            "A path is copied to another branch while its own branch is reset, and the job runs.",
            _STAGED,
            (_copy("dev"), _reset(), _job()),
            lake.view,
            _SETTLED,
            expected=kinds(Kind.STAGED_LOST),
            moral="CopyObject assumes that an object without a key is committed. The job may also have removed the "
            "key, because it deleted the object.",
        ),
        Scenario(
            "copy-then-reset",
            "A path is copied to another branch, and then its own branch is reset, while the job runs.",
            _STAGED,
            (
                _operation(
                    "client",
                    one_after_the_other(lambda: copy("main", "a", "dev", "b"), lambda: reset("main", "t2")),
                    BRANCHES,
                ),
                _job(),
            ),
            lake.view,
            _SETTLED,
        ),
        Scenario(
            "copy-commit",
            "A path is copied to another branch while its own branch is committed, and the job runs.",
            _STAGED,
            (_copy("dev"), _commit(), _job()),
            lake.view,
            _SETTLED,
        ),
        Scenario(
            "upload-commit",
            "An object is uploaded while the branch is committed, and the job runs.",
            _EMPTY,
            (_operation("upload a", lambda: upload("main", "a", "A", "data")), _commit(), _job()),
            lake.view,
            _SETTLED,
            expected=kinds(Kind.STAGED_LOST),
            moral="lakeFS repeats a write if a commit changed the token meanwhile. The job reads the uncommitted entry "
            "of the first attempt in the old token, and removes the list. The second attempt cannot distinguish a "
            "removed list from a list that never existed.",
        ),
        Scenario(
            "upload-reset",
            "An object is uploaded while the branch is reset, and the job runs.",
            _EMPTY,
            (_operation("upload a", lambda: upload("main", "a", "A", "data")), _reset(), _job()),
            lake.view,
            _SETTLED,
            expected=kinds(Kind.STAGED_LOST),
            moral="The same happens with a reset.",
        ),
        Scenario(
            "link",
            "A client gets an address, uploads to it and links it while the branch is reset, and the job runs.",
            _EMPTY,
            (
                _operation(
                    "client",
                    one_after_the_other(lambda: get_physical_address("A"), lambda: link("main", "a", "A", "data")),
                    LINKS,
                ),
                _reset(),
                _job(),
            ),
            lake.view,
            _SETTLED,
            expected=kinds(Kind.STAGED_LOST),
            moral="A link is repeated like any other write.",
        ),
        Scenario(
            "upload-delete-branch",
            "A branch is deleted while an object is uploaded to it.",
            _EMPTY,
            (
                _operation("upload a", lambda: upload("main", "a", "A", "data")),
                _operation("delete branch", lambda: reset("main", None), BRANCHES),
            ),
            lake.view,
            _SETTLED,
            expected=kinds(Kind.LEAKED),
            moral="An entry that is not yet in the token's staging area when the job reads it is in none of the lists "
            "that the job reads.",
        ),
        Scenario(
            "crash",
            "A reset crashes.",
            _STAGED,
            (_reset(),),
            lake.view,
            _SETTLED,
            crashes=1,
            expected=kinds(Kind.LEAKED),
            moral="The branch no longer has the token, and the job has no record of it.",
        ),
    ),
)
