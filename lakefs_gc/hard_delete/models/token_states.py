"""Design 4: a list of staging tokens for each address; a background job takes tokens that are over out of the lists.

Keys: ``references/<address>`` (the tokens), ``staging-deleted/<token>``, ``staging-committed/<commit id>`` (the tokens;
the document's key names an address here, its flows the commit). StageObject takes only addresses outside the
repository, which are never deleted: nothing to model. Commit and reset leave the staging areas to the job.
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
    """Put a token into an address's list, unless it is empty: then the job is about to delete the object."""
    for _ in range(_TRIES):
        tokens = yield Get(REFERENCES + address, says=f"{number}: reads the reference list of {address}")
        if tokens == ():
            return False
        wanted = tuple(sorted({*(tokens or ()), token}))
        says = f"{number}: sets the list of {address} to ({' '.join(wanted)}), if nobody else changed it"
        if (yield SetIf(REFERENCES + address, wanted, tokens, says=says)):
            return True
    return False


def upload(branch: str, path: str, address: str, content: str) -> Steps[None]:
    """Upload Object."""
    yield Put(address, content, says=f"Upload 1: writes object {address}")
    entry = Entry(address, content)
    yield from lake.write_entry(branch, path, entry, lambda token: add_reference(address, token, "Upload 2-3"))


def get_physical_address(address: str) -> Steps[None]:
    """GetPhysicalAddress."""
    yield Set(LINKS + address, "valid", says=f"GetPhysicalAddress 2: saves the token for {address}")


def link(branch: str, path: str, address: str, content: str) -> Steps[None]:
    """LinkPhysicalAddress, after the client's upload."""
    yield Put(address, content, says=f"uploads to {address}")
    if (yield Get(LINKS + address, says=f"Link 1.1: checks the token of {address}")) is None:
        return
    yield Drop(LINKS + address, says=f"Link 1.2.1: removes the token of {address}")
    entry = Entry(address, content)
    yield from lake.write_entry(branch, path, entry, lambda token: add_reference(address, token, "Link 1.2.2"))


def copy_reference(address: str, token: str) -> Steps[bool]:
    """CopyObject's loop. Reply: whether the entry may be written."""
    for _ in range(_TRIES):
        tokens = yield Get(REFERENCES + address, says=f"Copy 1.1: reads the reference list of {address}")
        if tokens is None:
            return True  # Copy 1.2: not found, so it is taken for committed
        if not tokens:
            return False  # Copy 1.1.1.1: the job is about to delete it
        wanted = tuple(sorted({*tokens, token}))
        says = f"Copy 1.1.2: sets the list of {address} to ({' '.join(wanted)}), if nobody else changed it"
        if (yield SetIf(REFERENCES + address, wanted, tokens, says=says)):
            return True
    return False


def copy(source_branch: str, source: str, branch: str, path: str) -> Steps[None]:
    """CopyObject."""
    current = yield Get(branch_key(source_branch), says=f"reads branch {source_branch}")
    entry = yield Get(staged_key(current.token, source), says=f"reads entry {source} in {current.token}")
    if isinstance(entry, Entry):
        yield from lake.write_entry(branch, path, entry, lambda token: copy_reference(entry.address, token))


def commit(branch: str, commit_id: str, token: str) -> Steps[None]:
    """Commit."""
    if (yield from lake.new_token(branch, token, seal=True)) is None:
        return
    done = yield from lake.write_commit(branch, commit_id)
    if done is not None:
        yield Set(COMMITTED + commit_id, done[0].sealed, says=f"Commit 2: adds the committed entry of {commit_id}")


def reset(branch: str, token: str | None) -> Steps[None]:
    """Reset, or with None delete, a branch."""
    for over in (yield from lake.take_staging_away(branch, token)):
        yield Set(DELETED + over, "deleted", says=f"Reset 2: adds the deleted entry of {over}")


def job() -> Steps[None]:
    """The background delete job, once through committed and deleted tokens."""
    for key, tokens in (yield Scan(COMMITTED, says="Job: scans the committed tokens")):
        commit_id = key.removeprefix(COMMITTED)
        committed = yield Get(COMMITS + commit_id, says=f"Job: reads commit {commit_id}")
        for _, entry in committed.entries:
            yield Drop(REFERENCES + entry.address, says=f"Job: removes the reference key of {entry.address}")
        for token in tokens:
            yield Set(DELETED + token, "deleted", says=f"Job: moves {token} to the deleted tokens")
        yield Drop(key, says=f"Job: removes the committed entry of {commit_id}")
    for key, _ in (yield Scan(DELETED, says="Job: scans the deleted tokens")):
        token = key.removeprefix(DELETED)
        folder = f"{STAGING}{token}/"
        rows = yield Scan(folder, says=f"Job: reads what is staged in {token}")
        for address in sorted({entry.address for _, entry in rows if entry != TOMBSTONE}):
            yield from _remove_reference(address, token)
        yield Drop(folder, says=f"Job: deletes the staging area of {token}")
        yield Drop(key, says=f"Job: removes the deleted entry of {token}")


def _remove_reference(address: str, token: str) -> Steps[None]:
    for _ in range(_TRIES):
        tokens = yield Get(REFERENCES + address, says=f"Job: reads the reference list of {address}")
        if tokens is None or token not in tokens:
            return
        left = tuple(other for other in tokens if other != token)
        if not (yield SetIf(REFERENCES + address, left, tokens, says=f"Job: takes {token} off the list of {address}")):
            continue
        if not left:
            yield Remove(address, says=f"Job: that was the last one: hard-deletes {address}")
            yield Drop(REFERENCES + address, says=f"Job: removes the reference key of {address}")
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
    "Each address has a list of the staging tokens that refer to it; a job takes committed and deleted tokens out, and "
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
            lake.look,
            _SETTLED,
            expected=kinds(Kind.LEAKED),
            documented="4, Handling key override on same staging token",
            moral="The job learns what a token referred to from its staging area, and the entry that was overwritten "
            "is not there any more.",
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
            lake.look,
            _SETTLED,
            expected=kinds(Kind.LEAKED),
            moral="A tombstone is an override too.",
        ),
        Scenario(
            "copy-reset",
            "A path is copied to another branch while its own is reset, and the job runs.",
            _STAGED,
            (_copy("dev"), _reset(), _job()),
            lake.look,
            _SETTLED,
            expected=kinds(Kind.STAGED_LOST),
            moral="CopyObject takes a missing key for a committed object. It may as well be one that the job has done "
            "with.",
        ),
        Scenario(
            "copy-then-reset",
            "A path is copied to another branch, and its own is reset after that, while the job runs.",
            _STAGED,
            (
                _operation(
                    "client",
                    one_after_the_other(lambda: copy("main", "a", "dev", "b"), lambda: reset("main", "t2")),
                    BRANCHES,
                ),
                _job(),
            ),
            lake.look,
            _SETTLED,
        ),
        Scenario(
            "copy-commit",
            "A path is copied to another branch while its own is committed, and the job runs.",
            _STAGED,
            (_copy("dev"), _commit(), _job()),
            lake.look,
            _SETTLED,
        ),
        Scenario(
            "upload-commit",
            "An object is uploaded while the branch is committed, and the job runs.",
            _EMPTY,
            (_operation("upload a", lambda: upload("main", "a", "A", "data")), _commit(), _job()),
            lake.look,
            _SETTLED,
            expected=kinds(Kind.STAGED_LOST),
            moral="lakeFS repeats a write when a commit has changed the token meanwhile. The job finds the first "
            "try in the old token, where nobody committed it, and the second try cannot tell a list that the job has "
            "removed from one that was never there.",
        ),
        Scenario(
            "upload-reset",
            "An object is uploaded while the branch is reset, and the job runs.",
            _EMPTY,
            (_operation("upload a", lambda: upload("main", "a", "A", "data")), _reset(), _job()),
            lake.look,
            _SETTLED,
            expected=kinds(Kind.STAGED_LOST),
            moral="The same with a reset.",
        ),
        Scenario(
            "link",
            "An address is asked for, uploaded to and linked while the branch is reset, and the job runs.",
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
            lake.look,
            _SETTLED,
            expected=kinds(Kind.STAGED_LOST),
            moral="A link is a write like any other.",
        ),
        Scenario(
            "upload-delete-branch",
            "A branch is deleted while an object is uploaded to it.",
            _EMPTY,
            (
                _operation("upload a", lambda: upload("main", "a", "A", "data")),
                _operation("delete branch", lambda: reset("main", None), BRANCHES),
            ),
            lake.look,
            _SETTLED,
            expected=kinds(Kind.LEAKED),
            moral="What is not in the token's staging area when the job reads it is in no list that the job reads.",
        ),
        Scenario(
            "crash",
            "A reset stops in the middle.",
            _STAGED,
            (_reset(),),
            lake.look,
            _SETTLED,
            crashes=1,
            expected=kinds(Kind.LEAKED),
            moral="The branch has forgotten the token, and the job has not been told.",
        ),
    ),
)
