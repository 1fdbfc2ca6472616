"""Reads marks for ``show`` and ``history``. Needs no Dagster."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from lakefs_gc.config import Settings, load_server_credentials
from lakefs_gc.engine.records.check import failed_checks
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.mark_parts import Overview, overview
from lakefs_gc.engine.records.restore_log import notes, read_restore_end
from lakefs_gc.engine.records.stored_marks import Marked, list_marks, open_mark, open_namespace
from lakefs_gc.engine.scope import PARTS, Scope, is_swept
from lakefs_gc.errors import CorruptFileError, MarkError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.units import EPOCH, human_bytes


def mark_facts(mark: Mark) -> dict[str, Any]:
    """Return a mark as JSON for scripts."""
    return {
        "mark_id": mark.mark_id,
        "repository": mark.repository,
        "location": mark.location,
        "digest": mark.digest,
        "listed": mark.counts.get("store_listing"),
        "committed": mark.counts.get("committed"),
        "uncommitted": mark.counts.get("uncommitted"),
        "only": mark.only.value,
        "candidates": mark.candidates,
        "candidate_bytes": mark.candidate_bytes,
        "deleted_bytes": mark.run.get("deleted_bytes", "unknown"),
        "not_lakefs": mark.run.get("not_lakefs"),
        "not_lakefs_bytes": mark.run.get("not_lakefs_bytes"),
        "named_at_root": mark.named_at_root,
        "cutoff": mark.cutoff.isoformat(),
        "failed_checks": [
            {"name": check.name, "severity": check.severity.value, "message": check.message}
            for check in failed_checks(mark.checks)
        ],
        # The former key, for one release.
        "brakes": [
            {"name": check.name, "message": check.message, "blocks": check.blocks_sweep}
            for check in failed_checks(mark.checks)
        ],
    }


def show(settings: Settings, repository: str, mark_id: str) -> tuple[Mark, Overview]:
    """Return a mark, and an overview of its objects."""
    marked = find_mark(settings, repository, mark_id)
    return marked.mark, overview(marked.store, marked.mark)


def show_facts(mark: Mark, contents: Overview) -> dict[str, Any]:
    """Return a mark and its overview as JSON for scripts."""
    prefixes = [
        {"prefix": p.prefix, "objects": p.objects, "size_bytes": p.size_bytes} for p in contents.largest_prefixes
    ]
    return {**mark_facts(mark), "reasons": mark.reasons, "largest_prefixes": prefixes, "sample": list(contents.sample)}


def history(settings: Settings, repository: str) -> list[dict[str, Any]]:
    """Return the marks of a repository, newest first, with their states.

    A state is marked, approved, swept, incomplete, restored, partly restored (with the numbers), or unreadable. If only
    a part is approved or swept, the state says so, and the fields ``approved`` and ``swept`` name the parts.
    """
    server = LakeFSClient(load_server_credentials(), settings.lakefs)
    marks: list[dict[str, Any]] = []
    store = open_namespace(repository, server, settings).store
    for mark_id in list_marks(store):
        try:
            mark = open_mark(repository, mark_id, server, settings).mark
        except (MarkError, CorruptFileError) as error:
            marks.append({"mark_id": mark_id, "state": f"unreadable: {error.message}"} | dict.fromkeys(_UNKNOWN, ""))
            continue
        marks.append(
            {
                "mark_id": mark_id,
                "created_at": mark.created_at.isoformat(timespec="seconds"),
                "made_by": mark.made_by,
                "candidates": mark.candidates,
                "candidate_bytes": mark.candidate_bytes,
                "size": "" if mark.candidate_bytes is None else human_bytes(mark.candidate_bytes),
                "digest": mark.digest,
                "only": mark.only.value,
            }
            | state_of(store, mark)
        )
    return marks


_UNKNOWN = ("created_at", "made_by", "candidates", "candidate_bytes", "size", "digest", "only")


def state_of(store: ObjectStore, mark: Mark) -> dict[str, Any]:
    """Return the state of a mark, with the numbers of its restore if it was restored after its sweep."""
    paths = MarkPaths.of(mark.mark_id)
    summaries = {only: paths.sweep_summary_of(only) for only in Scope}
    approvals = {only: paths.approval_of(only) for only in Scope}
    existing = store.stat_many([*summaries.values(), *approvals.values()])
    swept_at = {only: existing[key].last_modified for only, key in summaries.items() if key in existing}
    swept = {only: read_json(store, summaries[only])["outcomes"] for only in _latest(swept_at)}
    begun = notes(store, mark.mark_id)
    if begun and all(max(begun.values()) >= info.last_modified for info in existing.values()):
        total = read_restore_end(store, max(begun))
        if total is None:
            return {"state": "restored, number of objects unknown"}
        # A sweep of the whole mark counts what sweeps of parts deleted before.
        counted = [swept[Scope.all]] if Scope.all in swept else swept.values()
        deleted = sum(outcomes["deleted"]["objects"] for outcomes in counted) if swept else mark.candidates
        is_whole = total.objects >= deleted
        state = "restored" if is_whole else f"partly restored ({total.objects} of {deleted})"
        return {"state": state, "restored": total.objects, "restored_bytes": total.size_bytes, "deleted": deleted}
    failed = any(outcomes["failed"]["objects"] for outcomes in swept.values())
    approved = [only for only, key in approvals.items() if key in existing]
    if any(only.is_part for only in (*swept, *approved)):
        parts = {"swept": [only.value for only in swept], "approved": [only.value for only in approved]}
        restored_at = max(begun.values(), default=EPOCH)
        restored = [only for only in swept if restored_at >= swept_at[only]]
        return {"state": _state_of_parts(mark, swept, restored, approved, failed), **parts}
    if swept:
        return {"state": "incomplete" if failed else "swept"}
    return {"state": "approved" if approved else "marked"}


def _latest(swept_at: Mapping[Scope, datetime]) -> list[Scope]:
    """Return the sweeps that no later sweep of the same objects follows."""

    def is_followed(only: Scope) -> bool:
        return is_swept(only, [other for other, at in swept_at.items() if other != only and at > swept_at[only]])

    return [only for only in swept_at if not is_followed(only)]


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


def find_mark(settings: Settings, repository: str, mark_id: str) -> Marked:
    """Return the mark ``mark_id`` of a repository, with its store."""
    return open_mark(repository, mark_id, LakeFSClient(load_server_credentials(), settings.lakefs), settings)


def read_json(store: ObjectStore, key: str) -> dict[str, Any]:
    """Read a file of a namespace that contains one JSON object."""
    content: dict[str, Any] = json.loads(store.read(key))
    return content
