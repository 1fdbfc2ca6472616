"""The marks of a namespace with their states, from the files beside each mark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from lakefs_gc.engine.records.approval import Approval
from lakefs_gc.engine.records.check import failed_checks
from lakefs_gc.engine.records.ledger import count_outcomes, is_intent
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.restore_log import notes, read_restore_end
from lakefs_gc.engine.records.stored_marks import is_complete, mark_folders, read_mark
from lakefs_gc.engine.records.sweep_summary import not_followed, read_sweep_summary
from lakefs_gc.engine.scope import PARTS, Scope, is_swept
from lakefs_gc.errors import CorruptFileError, MarkError, OldListError
from lakefs_gc.storage.base import ObjectStore, written_at
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.units import EPOCH, human_bytes

_MARKS_AT_ONCE = 16
"""Each takes four to seven requests, one after the other."""


def history_of(store: ObjectStore, repository: str, namespace: str, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the newest marks of a namespace, as ``history``. The state of a mark before a newer one is superseded."""
    marks: list[dict[str, Any]] = []
    folders = mark_folders(store)
    first = 0
    while first < len(folders) and (limit is None or len(marks) < limit):
        at_once = _MARKS_AT_ONCE if limit is None else min(_MARKS_AT_ONCE, limit - len(marks))
        some = folders[first : first + at_once]
        first += at_once
        read = dict(map_unordered(lambda mark_id: _read(store, repository, namespace, mark_id), some, len(some)))
        marks += (facts for mark_id in some if (facts := read[mark_id]) is not None)
    marks = marks if limit is None else marks[:limit]
    newer = False
    for facts in marks:
        if newer and facts["state"] in (MARKED, BLOCKED):
            facts["state"] = SUPERSEDED
        newer = newer or facts["created_at"] != ""
    return marks


def _read(store: ObjectStore, repository: str, namespace: str, mark_id: str) -> dict[str, Any] | None:
    """Return a mark as a row of ``history_of``, or None for one that is not complete."""
    if not is_complete(store, mark_id):
        return None
    try:
        mark = read_mark(store, repository, namespace, mark_id)
        facts = state_of(store, mark)
    except (MarkError, CorruptFileError, OldListError) as error:
        return {"mark_id": mark_id, "state": f"unreadable: {error.message}"} | dict.fromkeys(_UNKNOWN, "")
    return {
        "mark_id": mark_id,
        "created_at": mark.created_at.isoformat(timespec="seconds"),
        "cutoff": mark.cutoff.isoformat(timespec="seconds"),
        "made_by": mark.made_by,
        "candidates": mark.candidates,
        "candidate_bytes": mark.candidate_bytes,
        "size": "" if mark.candidate_bytes is None else human_bytes(mark.candidate_bytes),
        "digest": mark.digest,
        "only": mark.only.value,
        "failed_checks": [check.name for check in failed_checks(mark.checks)],
    } | facts


MARKED, EMPTY, BLOCKED, SUPERSEDED = "marked", "empty", "blocked", "superseded"
SWEEPING, SWEEP_FAILED = "sweeping", "sweep failed"
_SILENT_FOR = timedelta(minutes=30)
"""Without a record for so long, a sweep has ended: longer than the longest second look and a slow bulk delete."""
_UNKNOWN = (
    *("created_at", "cutoff", "made_by", "candidates", "candidate_bytes", "size", "digest", "only"),
    *("failed_checks", "approver", "deleted_bytes", "deleted_size"),
)


def state_of(store: ObjectStore, mark: Mark) -> dict[str, Any]:
    """Return the state of a mark, its ``approver``, and the ``outcomes`` and deleted bytes of its sweep.

    A state is empty, marked, blocked, superseded, approved, sweeping, sweep failed (it ended without a result),
    incomplete (deletes failed), swept, restored, or partly restored (with the numbers). If only a part is approved or
    swept, the state says so, and the fields ``approved`` and ``swept`` name the parts.
    """
    facts = _state(store, mark)
    outcomes = facts.get("outcomes", {})
    deleted_bytes = outcomes.get("deleted", {}).get("size_bytes")
    size = "" if deleted_bytes is None else human_bytes(deleted_bytes)
    return {"approver": "", **facts, "deleted_bytes": deleted_bytes, "deleted_size": size}


def _state(store: ObjectStore, mark: Mark) -> dict[str, Any]:
    paths = MarkPaths.of(mark.mark_id)
    summaries = {only: paths.sweep_summary_of(only) for only in Scope}
    approvals = {only: paths.approval_of(only) for only in Scope}
    folders, files = store.list_level(paths.folder)
    times = written_at(files)
    swept_at = {only: times[key] for only, key in summaries.items() if key in times}
    swept = {only: read_sweep_summary(store, summaries[only]).outcomes for only in not_followed(swept_at)}
    approved = [only for only, key in approvals.items() if key in times]
    done: dict[str, Any] = {"approver": _approver(store, [approvals[only] for only in approved])}
    if swept:
        done["outcomes"] = _total([swept[Scope.all]] if Scope.all in swept else swept.values())
    begun = notes(store, mark.mark_id) if paths.restores in folders else {}
    decided = [at for key, at in times.items() if key in (*summaries.values(), *approvals.values())]
    if begun and all(max(begun.values()) >= at for at in decided):
        newest = max(begun, key=lambda key: (begun[key], key))  # names have the times of several machines
        total = read_restore_end(store, newest)
        if total is None:
            return {**done, "state": "restored, number of objects unknown"}
        # A sweep of the whole mark counts what sweeps of parts deleted before.
        counted = [swept[Scope.all]] if Scope.all in swept else swept.values()
        deleted = sum(outcomes["deleted"]["objects"] for outcomes in counted) if swept else mark.candidates
        if swept and _begun_after(store, paths, max(swept_at.values())):
            deleted = mark.candidates  # a sweep that was killed has deleted more than the summaries say
        is_whole = total.objects >= deleted
        state = "restored" if is_whole else f"partly restored ({total.objects} of {deleted})"
        return {
            **done,
            "state": state,
            "restored": total.objects,
            "restored_bytes": total.size_bytes,
            "deleted": deleted,
        }
    failed = any(outcomes["failed"]["objects"] for outcomes in swept.values())
    if any(only.is_part for only in (*swept, *approved)):
        parts = {"swept": [only.value for only in swept], "approved": [only.value for only in approved]}
        restored_at = max(begun.values(), default=EPOCH)
        restored = [only for only in swept if restored_at >= swept_at[only]]
        return {**done, "state": _state_of_parts(mark, swept, restored, approved, failed), **parts}
    if swept:
        return {**done, "state": "incomplete" if failed else "swept"}
    return {**done, "state": _state_before_result(store, mark, is_approved=bool(approved))}


def _begun_after(store: ObjectStore, paths: MarkPaths, ended_at: datetime) -> bool:
    """Return whether a sweep has begun deletes after the last one that ended."""
    files = (written_at(batch) for batch in store.list(paths.ledger))
    return any(at > ended_at and is_intent(key) for times in files for key, at in times.items())


def _state_before_result(store: ObjectStore, mark: Mark, *, is_approved: bool) -> str:
    """Return the state of a mark without the result of a sweep."""
    if is_approved:
        # A sweep that is killed leaves records and no summary.
        records = [max(written_at(batch).values()) for batch in store.list(MarkPaths.of(mark.mark_id).ledger)]
        if not records:
            return "approved"
        return SWEEP_FAILED if store.now() - max(records) > _SILENT_FOR else SWEEPING
    if not mark.candidates:
        return EMPTY
    return BLOCKED if any(check.blocks_sweep for check in mark.checks) else MARKED


def outcomes_so_far(
    store: ObjectStore, mark_id: str, outcomes: Mapping[str, Mapping[str, int]] | None, most_files: int
) -> Mapping[str, Mapping[str, int]] | None:
    """Return the outcomes of all sweeps of a mark, also of one that was killed and of one that is in progress.

    ``outcomes`` are those of the summaries (``state_of``). They hold unless a sweep has written records since. Then the
    records count, with ``intent`` for objects whose delete began and whose result is unknown. None if no sweep has
    begun, or if the ledger has more than ``most_files`` files, which take too long to read.
    """
    paths = MarkPaths.of(mark_id)
    _, files = store.list_level(paths.folder)
    times = written_at(files)
    summarized_at = max((times[key] for only in Scope if (key := paths.sweep_summary_of(only)) in times), default=EPOCH)
    records = {key: at for batch in store.list(paths.ledger) for key, at in written_at(batch).items()}
    if max(records.values(), default=EPOCH) <= summarized_at:
        return outcomes
    return count_outcomes(store, list(records)) if len(records) <= most_files else None


def _approver(store: ObjectStore, approvals: Collection[str]) -> str:
    """Return who gave the approvals. An approval that is not valid any more is shown, too."""
    names = []
    for key in approvals:
        try:
            names.append(Approval.from_json(store.read(key), key).approved_by)
        except CorruptFileError:
            names.append("unreadable")
    return ", ".join(dict.fromkeys(names))


def _total(sweeps: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """Return the sums of the outcomes of several sweeps."""
    total: dict[str, dict[str, int]] = {}
    for outcomes in sweeps:
        for name, counted in outcomes.items():
            before = total.get(name, {})
            total[name] = {key: before.get(key, 0) + counted.get(key, 0) for key in ("objects", "size_bytes")}
    return total


def _state_of_parts(
    mark: Mark,
    swept: Collection[Scope],
    restored: Collection[Scope],
    approved: Collection[Scope],
    failed: bool,
) -> str:
    """Return the state of a mark of which a part was approved or swept. A part without objects needs no sweep.

    ``restored``: the sweeps that a restore followed, so their objects may exist again.
    """
    empty = [only for only in PARTS if mark.reasons.get(only, {}).get("objects") == 0]
    done = [*swept, *empty] if swept else []
    if is_swept(Scope.all, done) and not restored:
        return "incomplete" if failed else "swept"
    waiting = [only for only in approved if not is_swept(only, done)]
    still = [only for only in swept if only not in restored]
    states = [f"{'incomplete' if failed else 'swept'}: only {_names(still)}"] if still else []
    if restored:
        states.append(f"restore after the sweep: {'' if Scope.all in restored else 'only '}{_names(restored)}")
    if waiting:
        states.append("approved" if Scope.all in waiting else f"approved: only {_names(waiting)}")
    return "; ".join(states)


def _names(scopes: Collection[Scope]) -> str:
    return ", ".join(only.value.replace("_", " ") for only in scopes)
