"""Rule 10: one run per repository at a time, also for runs that carry no tag (the UI's Materialize button)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from dagster import AssetExecutionContext, DagsterRunStatus, RunRecord, RunsFilter

from lakefs_gc.engine.run import repository_of
from lakefs_gc.errors import RunInProgressError

_PARTITION_TAG = "dagster/partition"
_PROCESS_TAG = "lakefs_gc/process"


def refuse_second_run(context: AssetExecutionContext) -> None:
    """Raise ``RunInProgressError`` when another run of the same repository is under way in this Dagster instance.

    Of two the one goes on that was started first, by the clocks of their machines; while one of them has not told when
    it started, the one that was stored first.
    """
    repository = repository_of(context.partition_key)
    own = context.instance.get_run_record_by_id(context.run.run_id)
    under_way = context.instance.get_run_records(
        RunsFilter(statuses=[DagsterRunStatus.STARTED, DagsterRunStatus.STARTING, DagsterRunStatus.CANCELING])
    )
    for record in under_way:
        run = record.dagster_run
        partition = run.tags.get(_PARTITION_TAG, "")
        if run.run_id == context.run.run_id or not partition.startswith(f"{repository}/"):
            continue
        if _process_is_gone(run.tags):
            context.instance.report_run_failed(run, "the process of the run was killed")
            continue
        if own is None or _was_first(record, own):
            raise RunInProgressError(
                f"run {run.run_id} of {repository} is under way (partition {partition})",
                remedy="wait until it ends, or terminate it in the UI; then start this one again",
            )


def _was_first(record: RunRecord, own: RunRecord) -> bool:
    """Whether a run was started before this one.  A run may wait in a queue while another, stored later, is started."""
    if record.start_time is None or own.start_time is None or record.start_time == own.start_time:
        return record.storage_id < own.storage_id
    return record.start_time < own.start_time


def process_tags() -> Mapping[str, str]:
    """The tag of a run in this process, by which a later run can tell that it was killed."""
    return {_PROCESS_TAG: f"{socket.gethostname()}:{os.getpid()}"}


def _process_is_gone(tags: Mapping[str, str]) -> bool:
    """Whether a run belongs to a process of this machine that is no more: nobody watches runs of a command line."""
    host, _, number = tags.get(_PROCESS_TAG, "").rpartition(":")
    if host != socket.gethostname() or not number.isdigit():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # somebody else's, and alive
    return False
