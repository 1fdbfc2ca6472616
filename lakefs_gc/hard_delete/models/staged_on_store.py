"""Design 1: staged data are on the object store, under ``<repo>/<branch>/<staging token>/<path>``, without entries.

A branch's staged entries are a listing of its token's folder, and a commit names the objects of that listing.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakefs_gc.hard_delete.model import Design, Kind, Operation, Scenario, View, kinds
from lakefs_gc.hard_delete.models import lake
from lakefs_gc.hard_delete.models.lake import BRANCHES, COMMITS, Entry, branch_key
from lakefs_gc.hard_delete.steps import OBJECTS, Drop, Get, ListObjects, Note, Put, Remove, Set, SetIf, Steps
from lakefs_gc.hard_delete.world import Object, World


def folder(branch: str, token: str) -> str:
    """Return the prefix of the staged objects of a branch."""
    return f"repo/{branch}/{token}/"


def view(world: World) -> View:
    """Return what users see. The staged entries are the objects in the folders of the branches' tokens."""
    staged: dict[str, str] = {}
    for key, branch in world.kv.scan(BRANCHES):
        name = key.removeprefix(BRANCHES)
        for token in branch.tokens:
            prefix = folder(name, token)
            addresses = (address for address, _ in world.objects.scan(prefix))
            staged |= {f"{name}/{address.removeprefix(prefix)}": address for address in addresses}
    return View(staged, lake.view(world).committed)


def upload(branch: str, path: str, content: str) -> Steps[None]:
    """Write to the branch's folder. The object exists, or is replaced, when the write completes."""
    current = yield Get(branch_key(branch), text=f"reads branch {branch}")
    if current is None:
        return
    address = folder(branch, current.token) + path
    yield Note(text=f"starts to write {address}")
    yield Put(address, content, text=f"completes the write of {address}: {content}")


def commit(branch: str, commit_id: str, token: str) -> Steps[None]:
    """Commit the listed objects of the sealed folder."""
    before = yield from lake.new_token(branch, token, seal=True)
    if before is None:
        return
    prefix = folder(branch, before.token)
    base = yield Get(COMMITS + before.commit, text=f"reads commit {before.commit}")
    listing = yield ListObjects(prefix, text=f"lists {prefix}")
    written = {address.removeprefix(prefix): Entry(address, stored.content) for address, stored in listing}
    entries = tuple(sorted((dict(base.entries) | written).items()))
    new_commit = lake.Commit(before.commit, entries)
    yield Set(COMMITS + commit_id, new_commit, text=f"writes commit {commit_id}: {lake.listed(entries)}")
    sealed = lake.Branch(before.commit, token, before.tokens)
    moved = lake.Branch(commit_id, token)
    yield SetIf(branch_key(branch), moved, sealed, text=f"moves {branch} to commit {commit_id}")


def delete_branch(branch: str) -> Steps[None]:
    """Delete each object under the branch's tokens."""
    before = yield Get(branch_key(branch), text=f"reads branch {branch}")
    if before is None:
        return
    yield Drop(branch_key(branch), text=f"deletes branch {branch}")
    for token in before.tokens:
        prefix = folder(branch, token)
        for address, _ in (yield ListObjects(prefix, text=f"lists {prefix}")):
            yield Remove(address, text=f"hard-deletes {address}")


# -- the cost of listing


@dataclass(frozen=True)
class ListingCost:
    """One measurement of the document: listing ``objects`` staged objects took ``seconds``.

    ``cpu_seconds`` of that were spent in the client itself.
    """

    how: str
    objects: int
    seconds: float
    cpu_seconds: float
    page: int = 1000

    @property
    def requests(self) -> int:
        """Return the number of pages. They are consecutive, because each begins where the previous one ended."""
        return requests(self.objects, self.page)

    @property
    def ms_per_request(self) -> float:
        return 1000 * self.seconds / self.requests

    @property
    def waiting_ms_per_request(self) -> float:
        """Return the time per request without the client's own computing, which no better client can avoid."""
        return 1000 * (self.seconds - self.cpu_seconds) / self.requests

    def seconds_for(self, objects: int) -> float:
        """Return the seconds of the same listing of another number of objects."""
        return requests(objects, self.page) * self.ms_per_request / 1000


def requests(objects: int, page: int) -> int:
    """Return the number of requests of a listing; an empty listing also needs one."""
    return max(1, -(-objects // page))


# `lakectl fs ls` took 6.42 s user, 0.78 s system, 16.089 s in all; `aws s3 ls` 56.82 s, 2.34 s, 1:19.79.
KEY_VALUE_STORE = ListingCost("lakeFS lists its key-value store", 240_000, 16.089, 6.42 + 0.78)
OBJECT_STORE = ListingCost("the object store lists the folder", 240_000, 79.79, 56.82 + 2.34)


def _world() -> World:
    staged = Object("old data")
    return lake.lake({folder("main", "t1") + "a": staged}, {"main": ("c0", "t1", {})})


def _upload() -> Operation:
    return Operation("upload a", lambda: upload("main", "a", "new data"), (OBJECTS,))


def _commit() -> Operation:
    return Operation("commit", lambda: commit("main", "c1", "t2"), (BRANCHES, COMMITS))


DESIGN = Design(
    1,
    "Staged data on the object store",
    "Staged objects are under `<repo>/<branch>/<staging token>/<path>`. Objects under a token that was never committed "
    "are garbage.",
    (
        Scenario(
            "write-after-commit",
            "A write that began before a commit completes after it.",
            _world(),
            (_upload(), _commit()),
            view,
            expected=kinds(Kind.CHANGED),
            documented="1, blocker 1",
            moral="The path is known before the data are complete, and an object store cannot refuse the rest of a "
            "write.",
        ),
        Scenario(
            "first-write-after-commit",
            "As `write-after-commit`, for a path that did not exist before.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (_upload(), _commit()),
            view,
            expected=kinds(Kind.LEAKED),
            moral="The object is written under a token that no branch has any more. The user's write is lost, and no "
            "operation reads this folder again.",
        ),
        Scenario(
            "write-after-delete",
            "A write that began before its branch was deleted completes after it.",
            _world(),
            (_upload(), Operation("delete branch", lambda: delete_branch("main"), (BRANCHES, OBJECTS))),
            view,
            expected=kinds(Kind.LEAKED),
            moral="The folder was listed before the object was in it.",
        ),
        Scenario(
            "crash",
            "The deletion of a branch crashes.",
            _world(),
            (Operation("delete branch", lambda: delete_branch("main"), (BRANCHES, OBJECTS)),),
            view,
            crashes=1,
            expected=kinds(Kind.LEAKED),
            moral="No record contains the token any more.",
        ),
    ),
)
