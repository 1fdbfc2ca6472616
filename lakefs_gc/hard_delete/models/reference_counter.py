"""Design 2: the metadata of each object count the entries that refer to it. Removing the last entry deletes the object.

The flows are those of the document. The store's conditional writes change the counter: a copy of the object onto itself
with a condition on its ETag on AWS, ``set blob metadata`` with If-Match on Azure, ``patch object`` with
ifMetagenerationMatch on Google. The document does not define for which entry a delete may decrement the counter. The
model takes the careful reading: only for an entry that was in the branch's staging token before and after the tombstone
was written.
"""

from __future__ import annotations

from lakefs_gc.hard_delete.model import Design, Kind, Operation, Scenario, kinds
from lakefs_gc.hard_delete.models import lake
from lakefs_gc.hard_delete.models.lake import BRANCHES, COMMITS, STAGING, TOMBSTONE, Entry
from lakefs_gc.hard_delete.steps import OBJECTS, Drop, Head, Program, Put, Remove, Scan, SetCounter, Steps
from lakefs_gc.hard_delete.world import AZURE, GCS, S3, Object, Provider, World

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


def release(provider: Provider, address: str, number: str) -> Steps[None]:
    """Decrement an object's counter, and delete the object at zero."""
    if (yield from count(provider, address, -1, number)) == 0:
        yield Remove(address, text=f"{number}: hard-deletes {address}")


def delete(provider: Provider, branch: str, path: str) -> Steps[None]:
    """Delete Object."""
    entry = yield from lake.unstage(branch, path)
    if entry is not None:
        yield from release(provider, entry.address, "Delete 1-2")


def reset(provider: Provider, branch: str, token: str | None) -> Steps[None]:
    """Reset a branch, or delete it if ``token`` is None: the asynchronous drop decrements the staged entries."""
    for dropped in (yield from lake.take_staging_away(branch, token)):
        folder = f"{STAGING}{dropped}/"
        for _, entry in (yield Scan(folder, text=f"drop: reads what is staged in {dropped}")):
            if entry != TOMBSTONE:
                yield from release(provider, entry.address, "drop")
        yield Drop(folder, text=f"drops staging token {dropped}")


# -- scenarios


def _shared(counter: int, staged: dict[str, str]) -> World:
    return lake.lake({"A": Object("data", counter=counter)}, {"main": ("c0", "t1", staged)})


def _operation(name: str, program: Program, *more: str) -> Operation:
    return Operation(name, program, (OBJECTS, STAGING, *more))


def _lost_update(provider: Provider) -> Scenario:
    return Scenario(
        f"lost-update-{provider.name.lower()}",
        f"One entry for an object is staged while another entry for it is deleted, on {provider.name}.",
        _shared(1, {"a": "A"}),
        (
            _operation("stage b", lambda: stage(provider, "main", "b", "A", "data")),
            _operation("delete a", lambda: delete(provider, "main", "a")),
        ),
        lake.view,
        expected=kinds() if provider.notices_metadata else kinds(Kind.STAGED_LOST),
        documented="2, blocker 1" if provider is S3 else "2, Atomic reference counter",
        moral="The condition detects the change, so an update that is based on an old counter is repeated."
        if provider.notices_metadata
        else "S3's ETag does not change with the metadata. One of two updates is lost, and the counter reaches zero "
        "too early.",
    )


def _two_links(provider: Provider) -> Scenario:
    return Scenario(
        f"two-stages-{provider.name.lower()}",
        f"Two more entries for one object are staged at the same time, and the first is deleted, on {provider.name}.",
        _shared(1, {"a": "A"}),
        (
            _operation("stage b", lambda: stage(provider, "main", "b", "A", "data")),
            _operation("stage c", lambda: stage(provider, "main", "c", "A", "data")),
            _operation("delete a", lambda: delete(provider, "main", "a")),
        ),
        lake.view,
        expected=kinds() if provider.notices_metadata else kinds(Kind.STAGED_LOST),
        moral="Three writers do not change the result.",
    )


DESIGN = Design(
    2,
    "Reference counter in object metadata",
    "Each object has a counter of the entries that refer to it. The operation that sets it to zero deletes the object.",
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
            lake.view,
            expected=kinds(Kind.COMMITTED_LOST, Kind.STAGED_LOST, Kind.LEAKED),
            moral="lakeFS repeats a write if a commit changed the token meanwhile, so two entries exist for one count.",
        ),
        Scenario(
            "upload-reset",
            "A branch is reset while an object is uploaded to it, on Azure.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (
                _operation("upload a", lambda: upload("main", "a", "A", "data")),
                _operation("reset", lambda: reset(AZURE, "main", "t2"), BRANCHES),
            ),
            lake.view,
            expected=kinds(Kind.STAGED_LOST),
            moral="An atomic counter is not enough. The reset drops the entry and decrements the counter. The upload "
            "then sees that the token changed, and stages the entry again.",
        ),
        Scenario(
            "upload-delete-branch",
            "A branch is deleted while an object is uploaded to it, on Azure.",
            lake.lake({}, {"main": ("c0", "t1", {})}),
            (
                _operation("upload a", lambda: upload("main", "a", "A", "data")),
                _operation("delete branch", lambda: reset(AZURE, "main", None), BRANCHES),
            ),
            lake.view,
            expected=kinds(Kind.LEAKED),
            moral="The object exists, with counter 1, before the upload sees that its branch was deleted.",
        ),
        Scenario(
            "overwrite",
            "A path is uploaded twice, on Azure.",
            _shared(1, {"a": "A"}),
            (_operation("upload a", lambda: upload("main", "a", "B", "new data")),),
            lake.view,
            expected=kinds(Kind.LEAKED),
            moral="No flow of the document decrements the counter when an entry is overwritten.",
        ),
        Scenario(
            "crash",
            "A delete crashes, on Azure.",
            _shared(1, {"a": "A"}),
            (_operation("delete a", lambda: delete(AZURE, "main", "a")),),
            lake.view,
            crashes=1,
            expected=kinds(Kind.LEAKED),
            moral="Nothing decrements the counter later, because the design has no background job.",
        ),
    ),
)
