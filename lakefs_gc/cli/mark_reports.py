"""What the commands read of marks, apart from showing it: nothing here needs Dagster."""

from __future__ import annotations

import json
from typing import Any

from lakefs_gc.config import Settings, load_server_credentials
from lakefs_gc.engine.records.check import failed_checks
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.mark_parts import Overview, overview
from lakefs_gc.engine.records.restore_log import notes, read_restore_end
from lakefs_gc.engine.records.stored_marks import Marked, list_marks, open_mark, open_namespace
from lakefs_gc.errors import CorruptFileError, MarkError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.units import human_bytes


def mark_facts(made: Mark) -> dict[str, Any]:
    """A mark as the JSON that scripts rely on."""
    return {
        "mark_id": made.mark_id,
        "repository": made.repository,
        "location": made.location,
        "digest": made.digest,
        "listed": made.counts.get("store_listing"),
        "committed": made.counts.get("committed"),
        "uncommitted": made.counts.get("uncommitted"),
        "candidates": made.candidates,
        "candidate_bytes": made.candidate_bytes,
        "deleted_bytes": made.run.get("deleted_bytes", "unknown"),
        "not_lakefs": made.run.get("not_lakefs"),
        "not_lakefs_bytes": made.run.get("not_lakefs_bytes"),
        "named_at_root": made.named_at_root,
        "cutoff": made.cutoff.isoformat(),
        "failed_checks": [
            {"name": check.name, "severity": check.severity.value, "message": check.message}
            for check in failed_checks(made.checks)
        ],
        # The former key, for one release.
        "brakes": [
            {"name": check.name, "message": check.message, "blocks": check.blocks_sweep}
            for check in failed_checks(made.checks)
        ],
    }


def show(settings: Settings, repository: str, mark_id: str) -> tuple[Mark, Overview]:
    """A mark, and what is in it."""
    found = find_mark(settings, repository, mark_id)
    return found.mark, overview(found.store, found.mark)


def show_facts(found: Mark, seen: Overview) -> dict[str, Any]:
    """``show`` as JSON."""
    prefixes = [{"prefix": p.prefix, "objects": p.objects, "size_bytes": p.size_bytes} for p in seen.largest_prefixes]
    return {**mark_facts(found), "reasons": found.reasons, "largest_prefixes": prefixes, "sample": list(seen.sample)}


def history(settings: Settings, repository: str) -> list[dict[str, Any]]:
    """The marks of a repository, newest first, with their state.

    That is marked, approved, swept, incomplete, restored or partly restored (since, with the numbers), or unreadable.
    """
    server = LakeFSClient(load_server_credentials())
    found: list[dict[str, Any]] = []
    store = open_namespace(repository, server, settings).store
    for mark_id in list_marks(store):
        try:
            made = open_mark(repository, mark_id, server, settings).mark
        except (MarkError, CorruptFileError) as error:
            found.append({"mark_id": mark_id, "state": f"unreadable: {error.message}"} | dict.fromkeys(_UNKNOWN, ""))
            continue
        found.append(
            {
                "mark_id": mark_id,
                "created_at": made.created_at.isoformat(timespec="seconds"),
                "made_by": made.made_by,
                "candidates": made.candidates,
                "candidate_bytes": made.candidate_bytes,
                "size": "" if made.candidate_bytes is None else human_bytes(made.candidate_bytes),
                "digest": made.digest,
            }
            | _state(store, made)
        )
    return found


_UNKNOWN = ("created_at", "made_by", "candidates", "candidate_bytes", "size", "digest")


def _state(store: ObjectStore, mark: Mark) -> dict[str, Any]:
    """What became of a mark, and of a mark that was restored since, how much of it is back."""
    paths = MarkPaths.of(mark.mark_id)
    there = store.stat_many([paths.sweep_summary, paths.approval])
    outcomes = read_json(store, paths.sweep_summary)["outcomes"] if paths.sweep_summary in there else None
    begun = notes(store, mark.mark_id)
    if begun and all(max(begun.values()) >= info.last_modified for info in there.values()):
        back = read_restore_end(store, max(begun))
        if back is None:
            return {"state": "restored, how much is not known"}
        deleted = outcomes["deleted"]["objects"] if outcomes else mark.candidates
        is_whole = back.objects >= deleted
        said = "restored" if is_whole else f"partly restored ({back.objects} of {deleted})"
        return {"state": said, "restored": back.objects, "restored_bytes": back.size_bytes, "deleted": deleted}
    if outcomes:
        return {"state": "incomplete" if outcomes["failed"]["objects"] else "swept"}
    return {"state": "approved" if paths.approval in there else "marked"}


def find_mark(settings: Settings, repository: str, mark_id: str) -> Marked:
    """The mark ``mark_id`` of a repository, with its store."""
    return open_mark(repository, mark_id, LakeFSClient(load_server_credentials()), settings)


def read_json(store: ObjectStore, key: str) -> dict[str, Any]:
    """A file of a namespace that is one JSON object."""
    content: dict[str, Any] = json.loads(store.read(key))
    return content
