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
    """Return the mark of lakeFS's own client in ``layout``, or None. Raise ``MarkError`` if it is damaged."""
    keys = part_keys(store, layout)
    summary: Summary | None = None
    if layout.summary and store.stat_many([layout.summary]):
        summary = check_summary(store.read(layout.summary), layout.summary, mark_id)
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
            f"The summary of mark {mark_id} counts {summary.num_deleted_objects:,} objects, but its files have "
            f"{candidates:,}: the mark is damaged",
            remedy="Mark again",
        )
    if summary is None and not store.stat_many([layout.deleted + "_SUCCESS"]):
        # The client's own Spark job writes that file into the folder of all marks, which proves nothing about this one.
        raise MarkError(
            f"Whether mark {mark_id} of lakeFS's Spark client before 0.10 is complete is unknown: it has no _SUCCESS "
            "file",
            remedy=f"Mark again with `lakefs-gc mark {repository}`",
        )
    made_at = max(info.last_modified for info in store.stat_many(keys).values()) if keys else EPOCH
    mark = Mark(
        mark_id=mark_id,
        repository=repository,
        namespace=namespace,
        folder=layout.folder,
        made_by="lakeFS Spark client",
        created_at=made_at,
        # A mark without a summary has no cutoff: the time when it was written is the closest bound, and also where the
        # clock of the client's driver is ahead.
        cutoff=min(summary.cutoff_time, made_at) if summary is not None and parts else made_at,
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
    """Return the digest over the fields of schema version 3, which approvals of such marks name."""
    fields = mark.content()
    fields["format_version"], fields["brakes"] = 3, fields.pop("checks")
    del fields["schema_version"]
    return digest_of(fields)


def check_summary(content: bytes, key: str, mark_id: str) -> Summary:
    """Return the summary of a mark. Raise ``MarkError`` if its run failed."""
    summary = Summary.from_json(content, key)
    if not summary.success:
        raise MarkError(f"The run of mark {mark_id} failed, and a failed mark is never swept", remedy="Mark again")
    return summary
