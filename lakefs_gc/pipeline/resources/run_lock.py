"""Rule 10: one run per repository at a time, also for runs that carry no tag (the UI's Materialize button)."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from dagster import AssetExecutionContext, DagsterRunStatus, RunRecord, RunsFilter

from lakefs_gc.engine.run import repository_of
from lakefs_gc.errors import RunInProgressError

_PARTITION_TAG = "dagster/partition"
_PROCESS_TAG = "lakefs_gc/process"
_PROCESS = re.compile(r"(?P<host>.+?):(?P<pid>\d+)(:(?P<start>\d*):(?P<place>\d+:[0-9a-f-]+))?")
_START_AFTER_NAME = 19  # the 22nd field, counted from the one that follows the name


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
                remedy="wait until it ends, or terminate it in the UI; then start this one again.  Where its container "
                "or machine was killed, it does not end by itself: terminate it with `Force termination immediately`, "
                f"or say `dagster run delete {run.run_id}`",
            )


def _was_first(record: RunRecord, own: RunRecord) -> bool:
    """Whether a run was started before this one.  A run may wait in a queue while another, stored later, is started."""
    if record.start_time is None or own.start_time is None or record.start_time == own.start_time:
        return record.storage_id < own.storage_id
    return record.start_time < own.start_time


def process_tags() -> Mapping[str, str]:
    """The tag of a run in this process, by which a later run can tell that it was killed.

    It is ``host:pid``, and where there is a ``/proc`` ``host:pid:start:namespace:boot``: containers may share a host
    name, and their first process is 1 in each of them.
    """
    tag = f"{socket.gethostname()}:{os.getpid()}"
    if _place():
        tag = f"{tag}:{_start_of('self')}:{_place()}"
    return {_PROCESS_TAG: tag}


def _process_is_gone(tags: Mapping[str, str]) -> bool:
    """Whether a run belongs to a process of this machine that is no more: nobody watches runs of a command line."""
    told = _PROCESS.fullmatch(tags.get(_PROCESS_TAG, ""))
    if told is None or told["host"] != socket.gethostname():
        return False
    if told["place"] and told["place"] != _place():
        return False  # numbers of another container's processes, or of another boot's: they say nothing here
    try:
        os.kill(int(told["pid"]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # somebody else's, and alive
    start = _start_of(told["pid"]) if told["start"] else ""
    return start not in ("", told["start"])  # another process has the number now


def _place() -> str:
    """Where a process number means something: the PID namespace and the boot; empty where there is no ``/proc``."""
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return f"{namespace}:{boot}"


def _start_of(process: str) -> str:
    """When a process was started, in ticks since the boot; empty where it cannot be seen."""
    try:
        if Path("/proc/self").readlink().name != str(os.getpid()):
            return ""  # a namespace that was entered without a /proc of its own: this one has other numbers
        stat = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[_START_AFTER_NAME]  # the name may hold blanks and parentheses
