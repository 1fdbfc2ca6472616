"""The parts of a benchmark: cases with figures, measurement of processor time and memory, fresh processes.

A benchmark is a module of this package with a ``BENCHMARK``. ``__main__`` lists their names. Its ``measure`` yields a
``Case`` for each row of the table. Figures have their unit in the name: ``keys_per_s``, ``peak_mib``, ``requests``.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

Result = TypeVar("Result")
Figure = float | int | str

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_POLL_SECONDS = 0.25
_POLL_SHARE = 0.01
"""Of one core. To sum up the memory of gigabytes takes the kernel tens of milliseconds."""


@dataclass(frozen=True)
class Case:
    """One row: its name, its figures, and whether it is the baseline of the others.

    ``ratio`` replaces the ratio of the compared figures, e.g. with the median of several ratios.
    """

    name: str
    figures: Mapping[str, Figure]
    baseline: bool = False
    ratio: float | None = None


@dataclass(frozen=True)
class Options:
    """The options of the command line: ``--set name=value``."""

    values: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str, default: float) -> float:
        return float(self.values.get(name, default))

    def count(self, name: str, default: int) -> int:
        return int(float(self.values.get(name, default)))

    def counts(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return several numbers, written ``1e5,1e6``."""
        return tuple(int(float(part)) for part in self.values[name].split(",")) if name in self.values else default

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)


@dataclass(frozen=True)
class Benchmark:
    """A benchmark. ``compare``: the figure of the ratios and the plot. ``settings``: the options of ``--set``."""

    title: str
    compare: str
    measure: Callable[[Options], Iterator[Case]]
    higher_is_better: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Usage:
    """The resources that a piece of work used.

    ``cpu_seconds`` and ``peak_mib`` are by kind of process: ``driver`` (this one), ``jvm``, ``workers`` (Spark's Python
    workers), ``other``. Memory is the sum of the proportional set sizes of all processes of a kind, so pages that
    forked workers share count once.
    """

    wall_seconds: float = 0.0
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    peak_mib: dict[str, float] = field(default_factory=dict)

    @property
    def client_cpu_seconds(self) -> float:
        """Return the processor time of driver, JVM and workers."""
        return sum(seconds for kind, seconds in self.cpu_seconds.items() if kind != "other")

    def figures(self) -> dict[str, Figure]:
        """Return the usage as figures of a case."""
        memory = {f"{kind}_peak_mib": round(mib) for kind, mib in sorted(self.peak_mib.items()) if kind != "other"}
        return {
            "wall_s": round(self.wall_seconds, 2),
            "client_cpu_s": round(self.client_cpu_seconds, 2),
            **memory,
        }


@contextmanager
def watched() -> Iterator[Usage]:
    """Measure this process and its descendants during the block. The ``Usage`` is complete afterwards."""
    usage = Usage()
    watch = _Watch(usage)
    before = watch.look()
    stop = threading.Event()

    own_seconds = 0.0

    def poll() -> None:
        nonlocal own_seconds
        duration = 0.0
        while not stop.wait(max(_POLL_SECONDS, duration / _POLL_SHARE)):
            began_at = time.perf_counter()
            watch.look()
            duration = time.perf_counter() - began_at
        own_seconds = time.thread_time()

    thread = threading.Thread(target=poll, name="watch", daemon=True)
    began = time.perf_counter()
    thread.start()
    try:
        yield usage
    finally:
        usage.wall_seconds = time.perf_counter() - began
        stop.set()
        thread.join()
        after = watch.look()
        usage.cpu_seconds = {kind: seconds - before.get(kind, 0.0) for kind, seconds in after.items()}
        usage.cpu_seconds["driver"] -= own_seconds  # the measurement itself


class _Watch:
    """Adds up processor time, including that of processes that have ended, and keeps the memory peaks."""

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        self.cpu_seconds: dict[int, tuple[str, float]] = {}

    def look(self) -> dict[str, float]:
        """Return the processor seconds by kind until now."""
        mib: dict[str, float] = {}
        for pid in _with_descendants(os.getpid()):
            with suppress(OSError, ValueError, IndexError):  # the process may have ended meanwhile
                kind = _kind(pid)
                self.cpu_seconds[pid] = kind, cpu_seconds_of(pid)
                mib[kind] = mib.get(kind, 0.0) + _memory_mib(pid)
        for kind, now in mib.items():
            self.usage.peak_mib[kind] = max(now, self.usage.peak_mib.get(kind, 0.0))
        total: dict[str, float] = {}
        for kind, seconds in self.cpu_seconds.values():
            total[kind] = total.get(kind, 0.0) + seconds
        return total


def _with_descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                parent = int(_stat_fields(int(folder.name))[1])
                children.setdefault(parent, []).append(int(folder.name))
    descendants, pending = [], [root]
    while pending:
        pid = pending.pop()
        descendants.append(pid)
        pending += children.get(pid, [])
    return descendants


def _stat_fields(pid: int) -> list[str]:
    """Return the fields of ``/proc/<pid>/stat`` after the name, which may contain any character: state, parent, ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_seconds_of(pid: int) -> float:
    """Return the processor time of a process until now."""
    fields = _stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def _kind(pid: int) -> str:
    if pid == os.getpid():
        return "driver"
    command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    if command[0].endswith(b"java"):
        return "jvm"
    return "workers" if any(b"pyspark" in part for part in command) else "other"


def _memory_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def in_fresh_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """Run ``function(*arguments)`` in a separate process, without the memory peaks and caches of other cases."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
