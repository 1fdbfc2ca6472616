"""Rule 10: one run per repository at a time, including runs without a tag (the UI's Materialize button)."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Collection, Mapping
from pathlib import Path

from dagster import AssetExecutionContext, DagsterInstance, DagsterRun, DagsterRunStatus, RunRecord, RunsFilter

from lakefs_gc.engine.run import repository_of
from lakefs_gc.errors import ConfigurationError, RunInProgressError
from lakefs_gc.pipeline.run_records import planned

_PARTITION_TAG = "dagster/partition"
_RANGE_TAGS = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")
_PARTITION_TAGS = (_PARTITION_TAG, *_RANGE_TAGS)
_PROCESS_TAG = "lakefs_gc/process"
_PROCESS = re.compile(r"(?P<run>[^@]+)@(?P<host>.+?):(?P<pid>\d+)(:(?P<start>\d*):(?P<boot>\d+:[0-9a-f-]+))?")
_READING = "forecast"  # the asset that writes no mark and deletes nothing
_START_AFTER_NAME = 19  # the 22nd field, counted from the one that follows the name


def refuse_second_run(context: AssetExecutionContext) -> None:
    """Raise ``RunInProgressError`` if another run of the same repository is in progress in this Dagster instance.

    Of two runs, the one that started first continues, by the clocks of their machines. While the start time of one is
    unknown, the one that was stored first continues. A run that makes only a forecast does not count.

    Raise ``ConfigurationError`` for a run of a range of partitions, even of one: ``dagster.yaml`` does not limit it.
    """
    if any(tag in context.run.tags for tag in _RANGE_TAGS):
        raise ConfigurationError(
            "This run is of a range of partitions, but a run of lakefs-gc has exactly one",
            remedy="start a run for each partition",
        )
    repository = repository_of(context.partition_key)
    own = context.instance.get_run_record_by_id(context.run.run_id)
    in_progress = context.instance.get_run_records(
        RunsFilter(statuses=[DagsterRunStatus.STARTED, DagsterRunStatus.STARTING, DagsterRunStatus.CANCELING])
    )
    for record in in_progress:
        run = record.dagster_run
        partitions = {tag for name in _PARTITION_TAGS if (tag := run.tags.get(name, ""))}
        if run.run_id == context.run.run_id or not _is_of(repository, partitions):
            continue
        if _only_reads(context.instance, run.run_id):
            continue
        if _process_is_gone(run):
            context.instance.report_run_failed(run, "the process of the run was killed")
            continue
        if own is None or _was_first(record, own):
            raise RunInProgressError(
                f"run {run.run_id} of {repository} is in progress (partition {', '.join(sorted(partitions))})",
                remedy="wait until it ends, or terminate it in the UI, then start this run again. If its container or "
                "machine was killed, it does not end by itself: terminate it with `Force termination immediately`, "
                f"or run `dagster run delete {run.run_id}`",
            )


def _is_of(repository: str, partitions: Collection[str]) -> bool:
    return any(partition.startswith(f"{repository}/") for partition in partitions)


def _only_reads(instance: DagsterInstance, run_id: str) -> bool:
    """Return whether a run is recorded to materialize forecasts and nothing else. Its tags do not count: anyone may
    add them. False without such records."""
    keys = planned(instance, run_id)
    return bool(keys) and all(key.path[-1] == _READING for key in keys)


def _was_first(record: RunRecord, own: RunRecord) -> bool:
    """Return whether a run started before this one. A queued run may start after one that was stored later."""
    if record.start_time is None or own.start_time is None or record.start_time == own.start_time:
        return record.storage_id < own.storage_id
    return record.start_time < own.start_time


def process_tags(run_id: str) -> Mapping[str, str]:
    """Return the tag of a run in this process. A later run uses it to detect that this process was killed.

    It is ``run@host:pid``, and with a ``/proc`` ``run@host:pid:start:namespace:boot``: containers may share a host
    name, and process 1 exists in each of them. A run that is executed again has the tags of the former one, which had
    another process.
    """
    tag = f"{run_id}@{socket.gethostname()}:{os.getpid()}"
    if scope := _pid_scope():
        tag = f"{tag}:{_start_of('self')}:{scope}"
    return {_PROCESS_TAG: tag}


def _process_is_gone(run: DagsterRun) -> bool:
    """Return whether the run's process on this machine has ended. Dagster does not monitor runs of a command line."""
    process = _PROCESS.fullmatch(run.tags.get(_PROCESS_TAG, ""))
    if process is None or process["run"] != run.run_id or process["host"] != socket.gethostname():
        return False
    if process["boot"] and process["boot"] != _pid_scope():
        return False  # the process number is of another container or another boot, so it means nothing here
    try:
        os.kill(int(process["pid"]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # another user's process, and alive
    start = _start_of(process["pid"]) if process["start"] else ""
    return start not in ("", process["start"])  # another process has the number now


def _pid_scope() -> str:
    """Return the PID namespace and the boot in which a process number is unique. Empty without a ``/proc``."""
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return f"{namespace}:{boot}"


def _start_of(process: str) -> str:
    """Return when a process started, in ticks since the boot. Empty if it cannot be read."""
    try:
        if Path("/proc/self").readlink().name != str(os.getpid()):
            return ""  # a PID namespace without its own /proc: the numbers in /proc are of another namespace
        stat = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[_START_AFTER_NAME]  # the name may contain blanks and parentheses
