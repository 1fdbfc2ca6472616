"""Marks of lakeFS's own Spark client, in the current layout and in those of its earlier programs."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from lakefs_gc.engine.records.mark import Mark, MarkPart
from lakefs_gc.engine.records.mark_parts import part_keys
from lakefs_gc.errors import MarkError
from lakefs_gc.formats.durable_record import digest_of
from lakefs_gc.formats.report import (
    ReportPaths,
    Summary,
    read_deleted_addresses,
)
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.units import EPOCH


def read_client_mark(
    store: ObjectStore, repository: str, namespace: str, layout: ReportPaths, mark_id: str
) -> Mark | None:
    """A mark that lakeFS's own client left in ``layout``; None when there is none."""
    keys = part_keys(store, layout)
    summary: Summary | None = None
    if layout.summary and store.stat_many([layout.summary]):
        summary = read_summary(store, layout.summary, mark_id)
    elif layout.summary or not keys:
        return None
    parts = []
    for key, content in store.read_many(keys, concurrency=1):
        objects = len(read_deleted_addresses(content, key))
        parts.append(MarkPart(key, objects, 0, hashlib.sha256(content).hexdigest()))
    parts.sort(key=lambda part: part.key)
    candidates = sum(part.objects for part in parts)
    if summary is not None and summary.num_deleted_objects != candidates:
        raise MarkError(
            f"mark {mark_id} should have {summary.num_deleted_objects} objects, but its files hold {candidates}",
            remedy="it is damaged; mark again",
        )
    if summary is None and not store.stat_many([layout.deleted + "_SUCCESS"]):
        raise MarkError(f"mark {mark_id} was not finished: it has no _SUCCESS file", remedy="mark again")
    made_at = max(info.last_modified for info in store.stat_many(keys).values()) if keys else EPOCH
    mark = Mark(
        mark_id=mark_id,
        repository=repository,
        namespace=namespace,
        folder=layout.folder,
        made_by="lakeFS Spark client",
        created_at=made_at,
        # Without a summary nothing says the cutoff; what was there when the mark was written is the best that is known.
        cutoff=summary.cutoff_time if summary is not None else made_at,
        parts=tuple(parts),
        candidates=candidates,
        candidate_bytes=None,
        counts={},
        reasons={},
        checks=(),
        rules=None,
        run={},
        inputs={},
        versions={},
    )
    return replace(mark, digest=_digest(mark))


def _digest(mark: Mark) -> str:
    """Return the digest that such marks always had, with the fields of schema version 3: approvals name it."""
    fields = mark.content()
    fields["format_version"], fields["brakes"] = 3, fields.pop("checks")
    del fields["schema_version"]
    return digest_of(fields)


def read_summary(store: ObjectStore, key: str, mark_id: str) -> Summary:
    summary = Summary.from_json(store.read(key), key)
    if not summary.success:
        raise MarkError(f"the run of mark {mark_id} failed", remedy="mark again; a failed mark is never swept")
    return summary
