"""Design 1: staged data are on the object store, under ``<repo>/<branch>/<staging token>/<path>``, without entries.

A branch's staged entries are a listing of its token's folder, and a commit names the objects of that listing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakefs_gc.hard_delete.combinations import case
from lakefs_gc.hard_delete.model import Bound, Design, Kind, Open, Reading, View, kinds
from lakefs_gc.hard_delete.models import lake
from lakefs_gc.hard_delete.models.lake import BRANCHES, COMMITS, Entry, branch_key, part, part_branch_from_main
from lakefs_gc.hard_delete.steps import OBJECTS, CopyData, Get, ListObjects, Note, Put, Recap, Remove, Set, SetIf, Steps
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
    return replace(lake.view(world), staged=staged)


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
    yield Recap(f"{commit_id}: sealed", before)
    base = yield Get(COMMITS + before.commit, text=f"reads commit {before.commit}")
    listing = yield ListObjects(prefix, text=f"lists {prefix}")
    written = {address.removeprefix(prefix): Entry(address, stored.content) for address, stored in listing}
    entries = tuple(sorted((dict(base.entries) | written).items()))
    new_commit = lake.Commit(before.commit, entries)
    yield Set(COMMITS + commit_id, new_commit, text=f"writes commit {commit_id}: {lake.listed(entries)}")
    sealed = lake.Branch(before.commit, token, before.tokens)
    moved = lake.Branch(commit_id, token)
    yield SetIf(branch_key(branch), moved, sealed, text=f"moves {branch} to commit {commit_id}")


def copy(branch: str, source: str, path: str) -> Steps[None]:
    """Copy Object: a full copy, within the branch's folder."""
    current = yield Get(branch_key(branch), text=f"reads branch {branch}")
    if current is not None:
        prefix = folder(branch, current.token)
        yield CopyData(prefix + source, prefix + path, text=f"copies {prefix}{source} to {prefix}{path}")


def reset(branch: str, token: str) -> Steps[None]:
    """Give the branch a new token, and delete each object under the old one."""
    before = yield from lake.new_token(branch, token, seal=False)
    if before is not None:
        yield from _delete_objects(branch, before.tokens)


def delete_branch(branch: str, *, conditional: bool = True) -> Steps[None]:
    """Delete each object under the branch's tokens."""
    before = yield from lake.take_branch_away(branch, conditional=conditional)
    if before is not None:
        yield from _delete_objects(branch, before.tokens)


def _delete_objects(branch: str, tokens: tuple[str, ...]) -> Steps[None]:
    for token in tokens:
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


# -- combinations and scenarios

_STAGED: World = lake.lake({folder("main", "t1") + "a": Object("old data")}, {"main": ("c0", "t1", {})})
_COMMITTED: World = lake.lake(
    {folder("main", "t0") + "a": Object("old data")},
    {"main": ("c1", "t1", {})},
    {"c1": ("c0", {"a": folder("main", "t0") + "a"})},
)
_EMPTY: World = lake.lake({}, {"main": ("c0", "t1", {})})


def _reading(name: str, text: str, *, conditional: bool) -> Reading:
    parts = (
        part("upload a", lambda n: lambda: upload("main", "a", f"data {n}"), OBJECTS),
        part("copy a to b", lambda n: lambda: copy("main", "a", "b"), OBJECTS),
        part("commit", lambda n: lambda: commit("main", f"d{n}", f"u{n}"), BRANCHES, COMMITS),
        part("reset", lambda n: lambda: reset("main", f"r{n}"), BRANCHES, OBJECTS),
        part("delete branch", lambda n: lambda: delete_branch("main", conditional=conditional), BRANCHES, OBJECTS),
        part_branch_from_main(),
    )
    worlds = {"empty": _EMPTY, "a staged": _STAGED, "a committed": _COMMITTED}
    return Reading(name, text, worlds, parts, Bound(3, 3, 2), view)


KIND = _reading(
    "conditional delete", "A branch is deleted only if no commit has changed it meanwhile.", conditional=True
)
LITERAL = _reading(
    "unconditional delete", "A branch is deleted whatever has happened since it was read.", conditional=False
)

DESIGN = Design(
    1,
    "Staged data on the object store",
    "Staged objects are under `<repo>/<branch>/<staging token>/<path>`. Objects under a token that was never committed "
    "are garbage.",
    (KIND, LITERAL),
    (
        case(
            KIND,
            "a staged",
            "upload a",
            "commit",
            name="write-after-commit",
            question="A write that began before a commit completes after it.",
            expected=kinds(Kind.CHANGED),
            documented="1, blocker 1",
            moral="The path is known before the data are complete, and an object store cannot refuse the rest of a "
            "write.",
            shown_by=(("commit", "lists"), ("upload a", "completes the write")),
        ),
        case(
            KIND,
            "empty",
            "upload a",
            "commit",
            name="first-write-after-commit",
            question="As `write-after-commit`, for a path that did not exist before.",
            expected=kinds(Kind.LEAKED),
            moral="The object is written under a token that no branch has any more. The user's write is lost, and no "
            "operation reads this folder again.",
            shown_by=(("commit", "changes the staging token"), ("upload a", "completes the write")),
        ),
        case(
            LITERAL,
            "a staged",
            "commit",
            "delete branch",
            "branch",
            name="commit-delete-branch",
            question="A branch is committed, a new branch is created at this commit, and the first branch is deleted.",
            expected=kinds(Kind.COMMITTED_LOST),
            moral="The deletion read the staging token before the commit sealed it, and deletes the objects that the "
            "commit names.",
            shown_by=(
                ("delete branch", "reads branch main"),
                ("commit", "moves main"),
                ("delete branch", "hard-deletes"),
                ("branch", "creates branch"),
            ),
        ),
    ),
    picture="""\
upload ----- writes ------> repo/main/t1/a <------ names ----- commit c1
                                  ^
reset, delete branch -- delete ---+   everything below repo/main/t1/""",
    opens=(
        Open(
            "Preventing data modification after a commit (blocker 1)",
            "Not answered by the document. The model shows the damage.",
        ),
        Open("Ingested data", "Out: by base assumption 2, lakeFS does not retain objects outside the repository."),
        Open(
            "SymLink and stageObject",
            "Out: their objects are elsewhere, and a design without entries has no place to record that.",
        ),
        Open("Delete of one object", "Out: the document has no flow, and a tombstone needs an entry."),
        Open(
            "Staged data is kept",
            "True by definition: a staged entry is its object. `first-write-after-commit` loses an upload that was "
            "never staged.",
        ),
    ),
)
