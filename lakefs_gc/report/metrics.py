"""Metrics for Prometheus, from the durable records beside the marks: a run that crashed counts, too.

A repository that cannot be read has ``lakefs_gc_records_readable`` 0 and no other metric: unknown is not zero. A time
stops advancing when runs fail, so alert on the age of ``lakefs_gc_last_mark_timestamp_seconds``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.error import URLError

from prometheus_client import CollectorRegistry, Gauge, push_to_gateway, write_to_textfile

from lakefs_gc.config import MetricsSettings, Settings
from lakefs_gc.engine.records.mark_history import (
    BLOCKED,
    MARKED,
    SWEEP_FAILED,
    SWEEPING,
    history_of,
    outcomes_so_far,
)
from lakefs_gc.engine.records.stored_marks import open_namespace, read_mark
from lakefs_gc.errors import LakeFSGCError, NotificationError
from lakefs_gc.lakefs.client import LakeFSClient

_JOB = "lakefs-gc"
_PUSH_TIMEOUT_SECONDS = 10
_WAITING = (MARKED, BLOCKED)
_MOST_LEDGER_FILES = 5_000
"""Two files for each request of a sweep: with 1,000 objects in a request, 2.5 million objects."""


@dataclass(frozen=True)
class RepositoryRecords:
    """The newest marks of a repository (``history_of``), or why they are unknown.

    ``reasons`` are those of the newest mark. ``swept`` are the outcomes of the newest sweep, from its ledger if it has
    not ended, or was killed. None if no mark has a sweep, or the ledger is too long to be read each time.
    """

    repository: str
    marks: tuple[dict[str, Any], ...] = ()
    reasons: Mapping[str, Mapping[str, int]] | None = None
    swept: Mapping[str, Mapping[str, int]] | None = None
    unreadable: str = ""


def read_records(repository: str, server: LakeFSClient, settings: Settings) -> RepositoryRecords:
    """Read the records of a repository. An error becomes the result: others have metrics all the same."""
    try:
        namespace = open_namespace(repository, server, settings)
        marks = tuple(history_of(namespace.store, repository, namespace.url, settings.metrics.marks))
        readable = [mark for mark in marks if mark["created_at"]]
        reasons = None
        if readable:
            reasons = read_mark(namespace.store, repository, namespace.url, readable[0]["mark_id"]).reasons
        begun = [mark for mark in readable if mark.get("outcomes") or mark["state"] in (SWEEPING, SWEEP_FAILED)]
        swept = None
        if begun:
            swept = outcomes_so_far(namespace.store, begun[0]["mark_id"], begun[0].get("outcomes"), _MOST_LEDGER_FILES)
    except LakeFSGCError as error:
        return RepositoryRecords(repository, unreadable=error.message)
    return RepositoryRecords(repository, marks, reasons, swept)


def metrics_of(records: Iterable[RepositoryRecords]) -> CollectorRegistry:
    """Return the metrics of repositories."""
    registry = CollectorRegistry()

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"lakefs_gc_{name}", text, ("repository", *labels), registry=registry)

    readable = gauge("records_readable", "1 if the records of the repository could be read, otherwise 0")
    unreadable_marks = gauge("unreadable_marks", "Marks whose records cannot be read")
    last_mark = gauge("last_mark_timestamp_seconds", "When the newest mark was made")
    last_swept = gauge("last_swept_mark_timestamp_seconds", "When the newest mark was made whose sweep is complete")
    marked = gauge("marked_objects", "Objects of the newest mark", "reason")
    marked_bytes = gauge("marked_bytes", "Bytes of the newest mark", "reason")
    failed = gauge("failed_check", "1 for each failed check of the newest mark", "check")
    waiting = gauge("oldest_unapproved_mark_timestamp_seconds", "When the oldest mark was made that waits for approval")
    swept = gauge("swept_objects", "Objects of the newest sweep", "outcome")
    swept_bytes = gauge("swept_bytes", "Bytes of the newest sweep", "outcome")
    state = gauge("mark_state", "1 for the state of the newest mark", "state")
    for each in records:
        name = each.repository
        readable.labels(name).set(not each.unreadable)
        if each.unreadable:
            continue
        marks = [mark for mark in each.marks if mark["created_at"]]
        unreadable_marks.labels(name).set(len(each.marks) - len(marks))
        if not marks:
            continue
        last_mark.labels(name).set(_seconds(marks[0]))
        state.labels(name, marks[0]["state"]).set(1)
        for reason, amount in (each.reasons or {}).items():
            marked.labels(name, reason).set(amount["objects"])
            marked_bytes.labels(name, reason).set(amount["size_bytes"])
        for check in marks[0]["failed_checks"]:
            failed.labels(name, check).set(1)
        if unapproved := [mark for mark in marks if mark["state"] in _WAITING]:
            waiting.labels(name).set(_seconds(unapproved[-1]))
        complete = [mark for mark in marks if mark["state"] == "swept"]
        if complete:
            last_swept.labels(name).set(_seconds(complete[0]))
        for outcome, amount in (each.swept or {}).items():
            swept.labels(name, outcome).set(amount["objects"])
            swept_bytes.labels(name, outcome).set(amount.get("size_bytes", 0))
    return registry


def _seconds(mark: dict[str, Any]) -> float:
    return datetime.fromisoformat(mark["created_at"]).timestamp()


def deliver(registry: CollectorRegistry, settings: MetricsSettings) -> None:
    """Write the file and send the metrics, as the settings say. Raise ``NotificationError``."""
    if settings.textfile:
        try:
            write_to_textfile(settings.textfile, registry)  # under another name, then renamed
        except OSError as error:
            raise NotificationError(
                f"The metrics cannot be written to {settings.textfile}: {error.strerror}",
                remedy=f"Create {Path(settings.textfile).parent}, and let this user write there (metrics.textfile)",
            ) from error
    if settings.pushgateway_url:
        try:
            push_to_gateway(settings.pushgateway_url, job=_JOB, registry=registry, timeout=_PUSH_TIMEOUT_SECONDS)
        except (URLError, OSError) as error:
            raise NotificationError(
                f"The Pushgateway at {settings.pushgateway_url} did not take the metrics: {error}",
                remedy="Check metrics.pushgateway_url, and that the gateway runs",
            ) from error
