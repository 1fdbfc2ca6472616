"""How many processes run the tests."""

from __future__ import annotations

import os
from pathlib import Path

_PROCESS_BYTES = 5 * 1024**3
"""Python, Spark with its 2 GiB heap, and the stores of one process took up to 4 GB."""
_LEAST = 2
_LIMIT_OF_CONTAINER = Path("/sys/fs/cgroup/memory.max")


def processes(cores: int, memory_bytes: int) -> int:
    """Return how many processes run the tests on this machine.

    More than there are cores, because each waits for Java and for other processes: two use two cores for 65 %. But no
    more than fit in memory.
    """
    return max(_LEAST, min(cores * 3 // 2, memory_bytes // _PROCESS_BYTES))


def processes_here() -> int:
    """Return how many processes run the tests here."""
    return processes(os.cpu_count() or 1, _memory_bytes())


def _memory_bytes() -> int:
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = _LIMIT_OF_CONTAINER.read_text().strip()
    except OSError:  # no container, or no Linux
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine
