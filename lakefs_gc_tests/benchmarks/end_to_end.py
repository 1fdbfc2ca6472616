"""A whole mark of a large repository, from the first request to its report, with all parts of a run.

Objects are in a simulated S3 store, and commits, branches and staged entries on the embedded server. Both run in
separate processes on the same machine, with separate figures for their processor time. The figures of a stage are wall
seconds. ``uncommitted_s`` includes ``server_s``, in which the server prepares the list. ``server_mib`` is the
server's peak memory. ``lists`` and ``list_mib`` are the number and the size of the files of the list.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dagster import AssetKey, DagsterInstance

from lakefs_gc.config import ServerCredentials, Settings
from lakefs_gc.pipeline.session import GCSession
from lakefs_gc_tests.benchmarks.generated_repository import REPOSITORY, sandbox_process, write_repository
from lakefs_gc_tests.benchmarks.generator import Shape
from lakefs_gc_tests.benchmarks.harness import (
    Benchmark,
    Case,
    Figure,
    Options,
    cpu_seconds_of,
    in_fresh_process,
    watched,
)

_GARBAGE_SHARE, _STAGED_SHARE = 0.05, 0.05
_ENTRIES_PER_RANGE = 2_000
_SLOTS = 100


def shape_of(objects: int, commits: int, staged_share: float = _STAGED_SHARE) -> Shape:
    """Return a shape: 5 % of the objects are garbage, ``staged_share`` are staged, and the rest is committed."""
    ranges = max(1, round(objects * (1 - _GARBAGE_SHARE - staged_share)) // _ENTRIES_PER_RANGE)
    staged = int(objects * staged_share)
    stale = objects - ranges * _ENTRIES_PER_RANGE - staged
    return Shape(ranges * _ENTRIES_PER_RANGE, ranges, min(_SLOTS, ranges), commits, staged=staged, stale=stale)


def marked(work: Path, credentials: ServerCredentials, sandbox_pid: int, memory: str) -> dict[str, Figure]:
    """Mark in this new process. The times of the stages are those of Dagster's events."""
    os.environ.update(
        LAKECTL_SERVER_ENDPOINT_URL=credentials.endpoint_url,
        LAKECTL_CREDENTIALS_ACCESS_KEY_ID=credentials.access_key_id,
        LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=credentials.secret_access_key,
    )
    settings = Settings(work_url=work.as_uri(), spark={"spark.driver.memory": memory})
    server_before = cpu_seconds_of(sandbox_pid)
    with DagsterInstance.ephemeral() as instance:  # an existing instance is not used
        session = GCSession(settings, instance)
        with watched() as usage:
            facts = session.mark(f"{REPOSITORY}/1")
        [run] = instance.get_runs()
        stages = _seconds_by_stage(instance, run.run_id)
        event = instance.get_latest_materialization_event(AssetKey("uncommitted"))
        staged = event.asset_materialization if event else None
        server_seconds = float(staged.metadata["server_seconds"].value) if staged else 0.0  # type: ignore[arg-type]
    return {
        "listed": facts["store_listing_rows"],
        "marked": facts["dagster/row_count"],
        **usage.figures(),
        **stages,
        "server_s": server_seconds,
        "server_cpu_s": round(cpu_seconds_of(sandbox_pid) - server_before, 1),
        "server_mib": _peak_mib_of(sandbox_pid),
    }


def _peak_mib_of(pid: int) -> int:
    """Return the peak resident memory of a process, from its ``/proc/PID/status``."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1024


def _seconds_by_stage(instance: DagsterInstance, run_id: str) -> dict[str, Figure]:
    began: dict[str, float] = {}
    seconds: dict[str, Figure] = {}
    for entry in instance.all_logs(run_id):
        event = entry.dagster_event
        if event and event.step_key and event.is_step_start:
            began[event.step_key] = entry.timestamp
        elif event and event.step_key and event.is_step_success:
            seconds[f"{event.step_key}_s"] = round(entry.timestamp - began[event.step_key], 1)
    return seconds


def measure(options: Options) -> Iterator[Case]:
    commits, number_of_branches = options.count("commits", 1_000), options.count("branches", 100)
    latency_ms, memory = options.number("latency_ms", 30), options.text("memory", "2g")
    for number, objects in enumerate(options.counts("objects", (250_000, 500_000, 1_000_000))):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            shape = shape_of(objects, commits, options.number("staged_share", _STAGED_SHARE))
            repository = write_repository(folder, shape, number_of_branches)
            os.sync()  # otherwise the first files of the mark wait until the generated files are on disk
            with (
                repository.store(latency_ms) as simulated,
                simulated.environment(),
                sandbox_process(repository.state) as (credentials, pid),
            ):
                before = simulated.stats()
                figures = in_fresh_process(marked, folder / "work", credentials, pid, memory)
                after = simulated.stats()
                files = repository.namespace.folder.rglob("uncommitted/*/uncommitted/*")
                lists = [file.stat().st_size for file in files]
        figures |= {"staged": shape.staged, "lists": len(lists), "list_mib": round(sum(lists) / 2**20, 1)}
        simulator = {"simulator_cpu_s": round(after.cpu_seconds - before.cpu_seconds, 1)}
        requests = {"requests": sum(after.requests.values()) - sum(before.requests.values())}
        per_million: dict[str, Figure] = {"wall_s_per_million": round(float(figures["wall_s"]) / objects * 1e6, 2)}
        yield Case(f"{objects:,} objects", {**figures, **per_million, **simulator, **requests}, baseline=number == 0)


BENCHMARK = Benchmark(
    "A whole mark: simulated S3, embedded server",
    compare="wall_s_per_million",
    higher_is_better=False,
    measure=measure,
    settings={
        "objects": "sizes, separated by commas",
        "commits": "how many commits there are",
        "branches": "how many branches there are",
        "staged_share": "the share of the objects that are staged; default: 0.05",
        "latency_ms": "of each answer of the store",
        "memory": "spark.driver.memory",
    },
)
