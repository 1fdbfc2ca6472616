"""Design 2: the metadata of each object count the entries that refer to it. Removing the last entry deletes the object.

The flows are those of the document. The store's conditional writes change the counter: a copy of the object onto itself
with a condition on its ETag or on its time stamp on AWS, ``set blob metadata`` with If-Match on Azure, ``patch object``
with ifMetagenerationMatch on Google. The conditions of Azure and Google notice the same changes, so one reading stands
for both. The document does not define for which entry a delete may decrement the counter. In the careful reading it is
an entry that was in the branch's staging token before and after the tombstone was written. In the literal reading it is
any entry that the branch shows.
"""

from __future__ import annotations

from lakefs_gc.hard_delete.combinations import case
from lakefs_gc.hard_delete.model import Bound, Design, Kind, Open, Reading, clock, kinds
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
from lakefs_gc.hard_delete.steps import OBJECTS, CopyData, Drop, Get, Head, Put, Remove, Scan, SetCounter, Steps
from lakefs_gc.hard_delete.world import AZURE, S3, S3_BY_TIME, Object, Provider

_TRIES = 3


def count(provider: Provider, address: str, by: int, number: str) -> Steps[int | None]:
    """Change an object's counter. Reply: the new count, or None if the object is missing or counts as deleted."""
    for _ in range(_TRIES):
        seen = yield Head(address, text=f"{number}: reads the metadata of {address}")
        if seen is None or seen.counter is None or seen.counter <= 0:
            return None
        counted: int = seen.counter + by
        text = f"{number}: writes counter {counted} to {address}"
        if (yield SetCounter(provider, address, counted, seen, text=text)):
            return counted
    return None


def upload(branch: str, path: str, address: str, content: str) -> Steps[None]:
    """Upload Object."""
    yield Put(address, content, counter=1, text=f"Upload 1-2: writes object {address} with counter 1")
    yield from lake.write_entry(branch, path, Entry(address, content))


def stage(provider: Provider, branch: str, path: str, address: str, content: str) -> Steps[None]:
    """Stage Object, for an address in the repository's namespace."""
    if (yield from count(provider, address, +1, "Stage 1.1")) is None:
        return
    if not (yield from lake.write_entry(branch, path, Entry(address, content))):
        yield from release(provider, address, "Stage 1.2")


def copy(branch: str, source: str, path: str, address: str) -> Steps[None]:
    """Copy Object: a full copy to a new object, as base assumption 1 requires."""
    current = yield Get(branch_key(branch), text=f"reads branch {branch}")
    if current is None:
        return
    entry = yield Get(staged_key(current.token, source), text=f"reads entry {source} in {current.token}")
    if isinstance(entry, Entry):
        text = f"copies object {entry.address} to {address} with counter 1"
        copied = yield CopyData(entry.address, address, counter=1, text=text)
        if copied is not None:
            yield from lake.write_entry(branch, path, Entry(address, copied.content))


def link(provider: Provider, branch: str, path: str, address: str, content: str) -> Steps[None]:
    """LinkPhysicalAddress: the client wrote the object, with a counter of zero, to an address from lakeFS."""
    seen = yield Head(address, text=f"Link 1: reads the metadata of {address}")
    if seen is None:
        return
    if not (
        yield SetCounter(provider, address, seen.counter + 1, seen, text=f"Link 2: increments the counter of {address}")
    ):
        return
    yield from lake.write_entry(branch, path, Entry(address, content))


def upload_and_link(provider: Provider, branch: str, path: str, address: str, content: str) -> Steps[None]:
    """Upload to an address from lakeFS, and link it."""
    yield Put(address, content, counter=0, text=f"uploads to {address}, with counter 0")
    yield from link(provider, branch, path, address, content)


def release(provider: Provider, address: str, number: str) -> Steps[None]:
    """Decrement an object's counter, and delete the object at zero."""
    if (yield from count(provider, address, -1, number)) == 0:
        yield Remove(address, text=f"{number}: hard-deletes {address}")


def delete(provider: Provider, branch: str, path: str) -> Steps[None]:
    """Delete Object."""
    entry = yield from lake.unstage(branch, path)
    if entry is not None:
        yield from release(provider, entry.address, "Delete 1-2")


def delete_shown(provider: Provider, branch: str, path: str) -> Steps[None]:
    """Delete Object, read literally: decrement the counter of the object that the branch shows, also if committed."""
    current = yield Get(branch_key(branch), text=f"reads branch {branch}")
    if current is None:
        return
    entry = yield Get(staged_key(current.token, path), text=f"reads entry {path} in {current.token}")
    if entry is None:
        commit = yield Get(COMMITS + current.commit, text=f"reads commit {current.commit}")
        entry = dict(commit.entries).get(path)
    if isinstance(entry, Entry):
        yield from lake.delete_path(branch, path)
        yield from release(provider, entry.address, "Delete 1-2")


def reset(provider: Provider, branch: str, token: str | None) -> Steps[None]:
    """Reset a branch, or delete it if ``token`` is None: the asynchronous drop decrements the staged entries."""
    for dropped in (yield from lake.take_staging_away(branch, token)):
        folder = f"{STAGING}{dropped}/"
        for _, entry in (yield Scan(folder, text=f"drop: reads what is staged in {dropped}")):
            if entry != TOMBSTONE:
                yield from release(provider, entry.address, "drop")
        yield Drop(folder, text=f"drops staging token {dropped}")


# -- combinations and scenarios

_COUNTED = {"A": Object("data", counter=1)}
_WORLDS = {
    "empty": lake.lake({}, {"main": ("c0", "t1", {})}),
    "a staged": lake.lake(_COUNTED, {"main": ("c0", "t1", {"a": "A"})}),
    "a committed": lake.lake(_COUNTED, {"main": ("c1", "t1", {})}, {"c1": ("c0", {"a": "A"})}),
}


def _reading(name: str, text: str, provider: Provider, *, literal: bool = False, seconds: int = 0) -> Reading:
    remove = delete_shown if literal else delete
    written = (OBJECTS, STAGING)
    parts = (
        part("upload a", lambda n: lambda: upload("main", "a", f"N{n}", f"data {n}"), *written),
        part("link a", lambda n: lambda: upload_and_link(provider, "main", "a", f"L{n}", f"data {n}"), *written),
        part("stage b as A", lambda n: lambda: stage(provider, "main", "b", "A", "data"), *written),
        part("copy a to b", lambda n: lambda: copy("main", "a", "b", f"C{n}"), *written),
        part("delete a", lambda n: lambda: remove(provider, "main", "a"), *written),
        part("delete b", lambda n: lambda: remove(provider, "main", "b"), *written),
        part("commit", lambda n: lambda: lake.commit("main", f"d{n}", f"u{n}"), BRANCHES, COMMITS, STAGING),
        part("reset", lambda n: lambda: reset(provider, "main", f"r{n}"), *written, BRANCHES),
        part("delete branch", lambda n: lambda: reset(provider, "main", None), *written, BRANCHES),
        part_branch_from_main(),
    )
    background = (clock(seconds),) if seconds else ()
    return Reading(name, text, _WORLDS, parts, Bound(3, 3, 2), lake.view, background=background)


AWS = _reading("AWS, ETag", "A write of the counter has a condition on the ETag.", S3)
AWS_BY_TIME = _reading(
    "AWS, time stamp", "A write of the counter has a condition on the time stamp.", S3_BY_TIME, seconds=1
)
AZURE_GOOGLE = _reading("Azure, Google", "A write of the counter has a condition on the metadata's version.", AZURE)
LITERAL = _reading(
    "Azure, literal delete", "A delete also decrements the counter of a committed object.", AZURE, literal=True
)

DESIGN = Design(
    2,
    "Reference counter in object metadata",
    "Each object has a counter of the entries that refer to it. The operation that sets it to zero deletes the object.",
    (AWS, AWS_BY_TIME, AZURE_GOOGLE, LITERAL),
    (
        case(
            AWS,
            "a staged",
            "stage b as A",
            "delete a",
            name="lost-update-aws",
            question="One entry for an object is staged while another entry for it is deleted, on AWS.",
            expected=kinds(Kind.STAGED_LOST),
            documented="2, blocker 1",
            moral="S3's ETag does not change with the metadata. One of two updates is lost, and the counter reaches "
            "zero too early.",
            shown_by=(
                ("stage b as A", "Stage 1.1: writes counter 2"),
                ("delete a", "Delete 1-2: writes counter 0"),
            ),
        ),
        case(
            AWS_BY_TIME,
            "a staged",
            "stage b as A",
            "delete a",
            name="lost-update-aws-by-time",
            question="As `lost-update-aws`, with a condition on the time stamp.",
            expected=kinds(Kind.STAGED_LOST),
            documented="2, AWS",
            moral="A time stamp counts seconds. Two updates within one second are not noticed.",
            shown_by=(
                ("stage b as A", "Stage 1.1: writes counter 2"),
                ("delete a", "Delete 1-2: writes counter 0"),
            ),
        ),
        case(
            AZURE_GOOGLE,
            "a staged",
            "stage b as A",
            "delete a",
            name="lost-update-azure",
            question="As `lost-update-aws`, on Azure or Google.",
            documented="2, Atomic reference counter",
            moral="The condition detects the change, so an update that is based on an old counter is repeated.",
        ),
        case(
            AZURE_GOOGLE,
            "empty",
            "upload a",
            "delete a",
            "commit",
            name="upload-delete-commit",
            question="A path is uploaded and deleted while the branch is committed, on Azure or Google.",
            expected=kinds(Kind.COMMITTED_LOST, Kind.STAGED_LOST, Kind.LEAKED),
            moral="lakeFS repeats a write if a commit changed the token meanwhile, so two entries exist for one count.",
            shown_by=(
                ("upload a", "stages a = N1 in t1"),
                ("upload a", "stages a = N1 in u3"),
                ("delete a", "Delete 1-2: hard-deletes N1"),
            ),
        ),
        case(
            AZURE_GOOGLE,
            "empty",
            "upload a",
            "reset",
            name="upload-reset",
            question="A branch is reset while an object is uploaded to it, on Azure or Google.",
            expected=kinds(Kind.STAGED_LOST),
            moral="An atomic counter is not enough. The reset drops the entry and decrements the counter. The upload "
            "sees that the token changed, and stages the entry again.",
            shown_by=(("upload a", "stages a = N1 in r2"), ("reset", "drop: writes counter 0")),
        ),
        case(
            AZURE_GOOGLE,
            "a staged",
            "upload a",
            name="overwrite",
            question="A staged path is uploaded again.",
            expected=kinds(Kind.LEAKED),
            moral="No flow of the document decrements the counter when an entry is overwritten.",
            shown_by=(("upload a", "stages a = N1 in t1"),),
        ),
        case(
            LITERAL,
            "a committed",
            "delete a",
            name="literal-delete",
            question="A committed path is deleted.",
            expected=kinds(Kind.COMMITTED_LOST),
            moral="The document does not except committed objects. An earlier commit still contains the object.",
            shown_by=(("delete a", "Delete 1-2: hard-deletes A"),),
        ),
    ),
    picture="""\
entry a in t1 ---+
                 +--> object A, counter 2     upload: 1   stage, link: +1
entry b in t1 ---+                            delete, reset, delete branch: -1
                                              at 0: the same operation deletes A""",
    opens=(
        Open("Conditional metadata on AWS (blocker 1)", "Modelled with each of the two conditions that AWS has."),
        Open("Which entries a delete counts", "Modelled in a careful and in a literal reading."),
        Open("The extra metadata read", "Modelled as a step of its own. Its cost is out: the model has no durations."),
        Open("Stage Object of an address outside the repository", "Out: base assumption 2."),
        Open("Prefix and object revert", "Out: the document has no flow. Each entry would be counted as by a reset."),
    ),
)
