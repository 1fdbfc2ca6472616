"""Moves after which something cannot be read, or is not what it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakefs_gc.engine.collect.references.active_ranges import METADATA_FOLDER, METADATA_ID
from lakefs_gc.engine.records.approval import Approval
from lakefs_gc.engine.records.check import CHECKS
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import (
    CorruptFileError,
    LakeFSGCError,
    OtherRepositoryError,
    RepositoryNotFoundError,
    SafetyError,
    ServerError,
    ServerUnavailableError,
    StorageError,
)
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.properties.moves.shared import OTHERS, new_mark, spoil, usual_overrides
from lakefs_gc_tests.properties.seeded import SeededHistory, ViolationError
from lakefs_gc_tests.support.collector import STAGES, marked
from lakefs_gc_tests.support.lake import keys_below

_OTHER_REPOSITORY = (SafetyError, OtherRepositoryError)


def other_repository(h: SeededHistory) -> list[str]:
    """Another repository imported an object of this one, and cannot be read."""
    h.share("main", h.random.randint(0, 50))
    for key in sorted(h.repository.objects() - h.reachable())[:1]:
        h.other.stage("imported", h.repository.namespace + key)
        h.other.commit()
        h._shared.add(key)
    hows = ("gone", "truncated") if h.remote else ("gone", "linked", "a file", "truncated")
    how, when = h.random.choice(hows), h.random.choice(("before", "between"))
    named = when == "before" and h.random.random() < 0.4
    h.drawn = [f"other repository: {how}, {when}" + (", named" if named else "")]
    collector = h.collector(repositories_not_read=("other",)) if named else h.collector()
    if when == "before":
        mend = _hide(h, how)
        h.finishable = not named
        with (
            h.nothing_live_is_lost(without=h._shared if named else None),
            h.may_fail(*(() if named else (OtherRepositoryError,))),
        ):
            mark = new_mark(h, collector, {OTHERS})
            if not named and OTHERS not in {check.name for check in mark.checks if check.blocks_sweep}:
                raise ViolationError("another repository could not be read, but no check failed")
            if named:
                collector.give_approval(mark, usual_overrides(mark))
                collector.sweep_approved(mark)
            else:
                with h.must_fail(SafetyError):
                    collector.give_approval(mark, usual_overrides(mark))
                # An approval that another tool wrote does not help.
                overrides = dict.fromkeys(usual_overrides(mark), "a test")
                written = Approval(mark.mark_id, mark.repository, mark.digest, "b", "another", utc_now(), overrides)
                h.repository.store.put(MarkPaths.of(mark.mark_id).approval, written.to_json())
                with h.must_fail(SafetyError):
                    collector.sweep_approved(mark)
    else:
        mark = new_mark(h, collector)
        collector.give_approval(mark, usual_overrides(mark))
        # There is something new, because ranges that were read for the mark are not read again.
        [key, *_] = sorted(marked(h.repository, mark)) or sorted(h.repository.objects())
        h.other.stage("later", h.repository.namespace + key)
        h.other.commit()
        h._shared.add(key)
        mend = _hide(h, how)
        with h.must_fail(*_OTHER_REPOSITORY):
            collector.sweep_approved(mark)
    mend()
    return h.drawn


def _hide(h: SeededHistory, how: str) -> Callable[[], object]:
    """Make the other repository unreadable. Return a function that repairs it."""
    if h.remote:
        store = h.other.store
        return spoil(store, [*keys_below(store, "" if how == "gone" else METADATA_FOLDER)], how)
    folder, aside = h.other.folder, h.lake.folder / "aside"
    metadata = folder / "_lakefs"
    if how == "gone":
        folder.rename(aside)
        return lambda: aside.rename(folder)
    if how == "truncated":
        before = {file: file.read_bytes() for file in metadata.iterdir() if METADATA_ID.fullmatch(file.name)}
        for file, content in before.items():
            file.write_bytes(content[: len(content) // 2])
        return lambda: [file.write_bytes(content) for file, content in before.items()]
    metadata.rename(aside)
    if how == "linked":
        metadata.symlink_to(aside)
    else:
        metadata.write_text("no folder")

    def mend() -> None:
        metadata.unlink()
        aside.rename(metadata)

    return mend


def metadata(h: SeededHistory) -> list[str]:
    """A range, a metarange or a slice of data is missing, truncated, changed, or behind a symbolic link."""
    how = h.random.choice(("gone", "truncated", "changed", *(() if h.remote else ("linked", "slice linked"))))
    head = dict(h.server.branch_heads("lake"))["main"]
    of_head = h.server.metarange_of("lake", head)
    store = h.repository.store
    names = sorted(key.removeprefix(METADATA_FOLDER) for key in keys_below(store, METADATA_FOLDER))
    names = [name for name in names if METADATA_ID.fullmatch(name)]
    file = h.repository.folder / METADATA_FOLDER / h.random.choice((of_head, h.random.choice(names)))
    must = how == "slice linked" or file.name == of_head
    if how == "slice linked":
        [key, *_] = sorted(key for key in h._shown("main") if key.startswith("data/"))
        file = (h.repository.folder / key).parent
    when = h.random.choice(("before", "between stages", "between"))
    h.drawn = [f"metadata: {how}, {when}"]
    collector = h.collector()
    aside = h.lake.folder / "aside"
    mend: Callable[[], object] = lambda: None  # noqa: E731

    def damage() -> None:
        nonlocal mend
        if how in ("truncated", "changed", *(("gone",) if h.remote else ())):
            mend = spoil(store, [METADATA_FOLDER + file.name], how)
            return
        file.rename(aside)
        if how != "gone":
            file.symlink_to(aside)

        def put_back() -> None:
            file.unlink(missing_ok=True)
            aside.rename(file)

        mend = put_back

    allowed = (CorruptFileError, StorageError, ServerError, SafetyError)
    live = h.reachable() & h.repository.objects()
    failed = False
    with h.may_fail(*allowed) as caught:
        if when == "before":
            damage()
            collector.materialize(*STAGES)
        elif when == "between stages":
            collector.materialize("store_listing", "uncommitted")
            damage()
            collector.materialize(*STAGES[2:])
        else:
            collector.materialize(*STAGES)
        mark = collector.mark(set(CHECKS))
        h.marked += 1
        if when == "between":
            damage()
        elif must and not (how == "slice linked" and when == "between stages"):
            raise ViolationError(f"{file.name} is {how}, and a mark was made")
        collector.give_approval(mark, usual_overrides(mark))
        collector.sweep_approved(mark)
    failed = bool(caught)
    mend()
    if lost := live - h.repository.objects():
        raise ViolationError(f"live objects deleted, failed {failed}: {sorted(lost)}")
    return h.drawn


_METHODS = (
    "repositories",
    "branch_heads",
    "tags",
    "log_page",
    "metarange_of",
    "shown_address",
    "shown_objects",
    "changes",
    "retention_rules",
    "prepare_uncommitted",
    "prepare_commits",
    "issued_address",
    "grace_period_seconds",
)


def server(h: SeededHistory) -> list[str]:
    """A call of the server fails, once or from then on, in the mark or in the sweep: forbidden, not found, down."""
    method, kind = h.random.choice(_METHODS), h.random.choice((ServerError, RepositoryNotFoundError))
    if h.random.random() < 0.3:
        kind = ServerUnavailableError
    when, count, once = h.random.choice(("mark", "sweep")), h.random.randint(0, 3), h.random.random() < 0.5
    h.drawn = [f"server: {method}, {when}"]
    real = getattr(LakeFSClient, method)
    calls = 0

    def fails(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count + 1 or (calls > count and not once):
            raise kind("not from here", status=404 if kind is RepositoryNotFoundError else 403)
        return real(*args, **kwargs)

    collector = h.collector()
    with h.nothing_live_is_lost(), h.may_fail(LakeFSGCError), pytest.MonkeyPatch.context() as patch:
        if when == "mark":
            patch.setattr(LakeFSClient, method, fails)
        collector.materialize(*STAGES)
        mark = collector.mark(set(CHECKS))
        h.marked += 1
        if when == "sweep":
            if mark.candidates:
                h.do(lambda _: h.stage_garbage("main", "since", h.random.randint(0, 50)))
                with pytest.MonkeyPatch.context() as quiet:
                    quiet.setattr(LakeFSClient, method, real)
                    live = h.reachable() & h.repository.objects()
            patch.setattr(LakeFSClient, method, fails)
        try:
            collector.give_approval(mark, usual_overrides(mark))
            collector.sweep_approved(mark)
        finally:
            if when == "sweep" and mark.candidates and (lost := live - h.repository.objects()):
                raise ViolationError(f"live since the mark, but deleted: {sorted(lost)}")
    return h.drawn


def workspace(h: SeededHistory) -> list[str]:
    """A file of the workspace is missing or truncated, between two stages or between mark and sweep."""
    stage, how = h.random.choice(STAGES), h.random.choice(("gone", "truncated", "empty"))
    when = h.random.choice(("mark", "sweep"))
    h.drawn = [f"workspace: {how}, {when}"]
    collector = h.collector()

    def damage() -> None:
        folder = h.lake.folder / "work"
        files = sorted(
            file
            for file in folder.rglob("*")
            if file.is_file() and not file.name.startswith(".") and (f"/{stage}/" in str(file) or "cache" in str(file))
        )
        if files:
            file = h.random.choice(files)
            content = file.read_bytes()
            if how == "gone":
                file.unlink()
            else:
                file.write_bytes(content[: len(content) // 2] if how == "truncated" else b"")

    with h.nothing_live_is_lost(), h.may_fail(LakeFSGCError):
        cut = STAGES.index(stage) + 1
        collector.materialize(*STAGES[:cut])
        if when == "mark":
            damage()
        collector.materialize(*STAGES[cut:])
        mark = collector.mark(set(CHECKS))
        h.marked += 1
        collector.give_approval(mark, usual_overrides(mark))
        if when == "sweep":
            damage()
        collector.sweep_approved(mark)
    h.finishable = False
    return h.drawn
