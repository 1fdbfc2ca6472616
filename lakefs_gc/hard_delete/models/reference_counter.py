"""Design 2: each object's metadata count the entries that refer to it; the last one to go deletes the object.

The flows are the document's; the store's own means change the counter: a copy of the object onto itself with a
condition on its ETag on AWS, ``set blob metadata`` with If-Match on Azure, ``patch object`` with ifMetagenerationMatch
on Google. Where the document is silent (which entry a delete may count down) the careful reading is taken: only one
that was in the branch's staging token before and after the tombstone was written.
"""

from __future__ import annotations

from lakefs_gc.hard_delete.model import Design, Kind, Operation, Scenario, kinds
from lakefs_gc.hard_delete.models import lake
from lakefs_gc.hard_delete.models.lake import BRANCHES, COMMITS, STAGING, TOMBSTONE, Entry
from lakefs_gc.hard_delete.steps import OBJECTS, Drop, Head, Program, Put, Remove, Scan, SetCounter, Steps
from lakefs_gc.hard_delete.world import AZURE, GCS, S3, Object, Provider, World

_TRIES = 3


def count(provider: Provider, address: str, by: int, number: str) -> Steps[int | None]:
    """Change an object's counter. Reply: the new count; None for an object that is gone, or counts as deleted."""
    for _ in range(_TRIES):
        seen = yield Head(address, says=f"{number}: reads the metadata of {address}")
        if seen is None or seen.counter is None or seen.counter <= 0:
            return None
        counted: int = seen.counter + by
        says = f"{number}: writes counter {counted} to {address}"
        if (yield SetCounter(provider, address, counted, seen, says=says)):
            return counted
    return None


def upload(branch: str, path: str, address: str, content: str) -> Steps[None]:
    """Upload Object."""
    yield Put(address, content, counter=1, says=f"Upload 1-2: writes object {address} with counter 1")
    yield from lake.write_entry(branch, path, Entry(address, content))


def stage(provider: Provider, branch: str, path: str, address: str, content: str) -> Steps[None]:
    """Stage Object, for an address in the repository's namespace."""
    if (yield from count(provider, address, +1, "Stage 1.1")) is None:
        return
    if not (yield from lake.write_entry(branch, path, Entry(address, content))):
        yield from release(provider, address, "Stage 1.2")


def link(provider: Provider, branch: str, path: str, address: str, content: str) -> Steps[None]:
    """LinkPhysicalAddress: the client wrote the object, with a counter of nought, to an address that it was given."""
    seen = yield Head(address, says=f"Link 1: reads the metadata of {address}")
    if seen is None:
        return
    if not (yield SetCounter(provider, address, seen.counter + 1, seen, says=f"Link 2: counts {address} up")):
        return
    yield from lake.write_entry(branch, path, Entry(address, content))


def release(provider: Provider, address: str, number: str) -> Steps[None]:
    """Count an object down, and delete it when nothing refers to it any more."""
    if (yield from count(provider, address, -1, number)) == 0:
        yield Remove(address, says=f"{number}: hard-deletes {address}")


def delete(provider: Provider, branch: str, path: str) -> Steps[None]:
    """Delete Object."""
    entry = yield from lake.unstage(branch, path)
    if entry is not None:
        yield from release(provider, entry.address, "Delete 1-2")


def reset(provider: Provider, branch: str, token: str | None) -> Steps[None]:
    """Reset, or with None delete, a branch: the asynchronous drop counts down what was staged."""
    for dropped in (yield from lake.take_staging_away(branch, token)):
        folder = f"{STAGING}{dropped}/"
        for _, entry in (yield Scan(folder, says=f"drop: reads what is staged in {dropped}")):
            if entry != TOMBSTONE:
                yield from release(provider, entry.address, "drop")
        yield Drop(folder, says=f"drops staging token {dropped}")


# -- scenarios


def _shared(counter: int, staged: dict[str, str]) -> World:
    return lake.lake({"A": Object("data", counter=counter)}, {"main": ("c0", "t1", staged)})


def _operation(name: str, program: Program, *more: str) -> Operation:
    return Operation(name, program, (OBJECTS, STAGING, *more))


def _lost_update(provider: Provider) -> Scenario:
    return Scenario(
        f"lost-update-{provider.name.lower()}",
        f"One entry for an object is staged while another one is deleted, on {provider.name}.",
        _shared(1, {"a": "A"}),
        (
            _operation("stage b", lambda: stage(provider, "main", "b", "A", "data")),
            _operation("delete a", lambda: delete(provider, "main", "a")),
        ),
        lake.look,
        expected=kinds() if provider.notices_metadata else kinds(Kind.STAGED_LOST),
        documented="2, blocker 1" if provider is S3 else "2, Atomic reference counter",
        moral="The condition holds, so an update that was based on an old counter is done again."
        if provider.notices_metadata
        else "S3's ETag does not change with the metadata: one of two updates is lost, and the count reaches nought "
        "too early.",
    )


def _two_links(provider: Provider) -> Scenario:
    return Scenario(
        f"two-stages-{provider.name.lower()}",
        f"Two more entries for one object are staged at once, and the first is deleted, on {provider.name}.",
        _shared(1, {"a": "A"}),
        (
            _operation("stage b", lambda: stage(provider, "main", "b", "A", "data")),
            _operation("stage c", lambda: stage(provider, "main", "c", "A", "data")),
            _operation("delete a", lambda: delete(provider, "main", "a")),
        ),
        lake.look,
        expected=kinds() if provider.notices_metadata else kinds(Kind.STAGED_LOST),
        moral="Three writers do not change the answer.",
    )


DESIGN = Design(
    2,
    "Reference counter in object metadata",
    "Each object carries the number of entries that refer to it; who counts it down to nought deletes it.",
    (
        *(_lost_update(provider) for provider in (S3, AZURE, GCS)),
        *(_two_links(provider) for provider in (S3, AZURE, GCS)),
        Scenario(
            "link-commit-delete",
            "An object is linked and the path deleted while the branch is committed, on Azure.",
            lake.lake({"A": Object("data", counter=0)}, {"main": ("c0", "t1", {})}),
            (
                _operation("link a", lambda: link(AZURE, "main", "a", "A", "data")),
                _operation("delete a", lambda: delete(AZURE, "main", "a")),
                Operation("commit", lambda: lake.commit("main", "c1", "t2"), (BRANCHES, COMMITS, STAGING)),
            ),
            lake.look,
            expected=kinds(Kind.COMMITTED_LOST, Kind.STAGED_LOST, Kind.LEAKED),
            moral="lakeFS repeats a write when a commit has changed the token meanwhile: that makes two entries out of "
            "one count.",
        ),
        Scenario(
            "upload-reset",
            "A branch is reset while an object is uploaded to it, on Azure.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (
                _operation("upload a", lambda: upload("main", "a", "A", "data")),
                _operation("reset", lambda: reset(AZURE, "main", "t2"), BRANCHES),
            ),
            lake.look,
            expected=kinds(Kind.STAGED_LOST),
            moral="An atomic counter is not enough: the reset drops the entry and counts it down, and the upload, "
            "which sees that the token was changed, stages it once more.",
        ),
        Scenario(
            "upload-delete-branch",
            "A branch is deleted while an object is uploaded to it, on Azure.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (
                _operation("upload a", lambda: upload("main", "a", "A", "data")),
                _operation("delete branch", lambda: reset(AZURE, "main", None), BRANCHES),
            ),
            lake.look,
            expected=kinds(Kind.LEAKED),
            moral="The object is there, with counter 1, before anybody sees that its branch has gone.",
        ),
        Scenario(
            "overwrite",
            "A path is uploaded twice, on Azure.",
            _shared(1, {"a": "A"}),
            (_operation("upload a", lambda: upload("main", "a", "B", "new data")),),
            lake.look,
            expected=kinds(Kind.LEAKED),
            moral="No flow of the document counts down the object of an entry that is overwritten.",
        ),
        Scenario(
            "crash",
            "A delete stops in the middle, on Azure.",
            _shared(1, {"a": "A"}),
            (_operation("delete a", lambda: delete(AZURE, "main", "a")),),
            lake.look,
            crashes=1,
            expected=kinds(Kind.LEAKED),
            moral="Nothing ever counts the object down again: there is no background job.",
        ),
    ),
)
