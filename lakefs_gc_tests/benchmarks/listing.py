"""How many keys a second are listed from a simulated S3 store, against one sequential lister.

The lister of one process (``storage.fan_out``) is measured by itself: what a core of client work does, and what
listing at once gains at a latency.  On few cores the simulator shares them: its own processor time is a figure, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakefs_gc.storage.fan_out import list_concurrently
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.benchmarks.harness import Benchmark, Case, Figure, Options, Usage, in_fresh_process, watched
from lakefs_gc_tests.benchmarks.simulated_keys import KeyShape
from lakefs_gc_tests.benchmarks.simulated_store import SimulatedStore, StoreStats

_OBJECTS_PER_SLICE = 20_000
"""lakeFS begins a new slice after so many."""


def figures(keys: int, usage: Usage, before: StoreStats, after: StoreStats) -> dict[str, Figure]:
    """The figures of a listing."""
    requests = {name: count - before.requests.get(name, 0) for name, count in after.requests.items()}
    cpu_seconds = usage.client_cpu_seconds
    return {
        "keys": keys,
        "keys_per_s": round(keys / usage.wall_seconds),
        "keys_per_s_of_cpu": round(keys / cpu_seconds),
        "cpu_s_per_million": round(cpu_seconds / keys * 1e6, 2),
        "requests": requests.get("ListObjectsV2", 0),
        "slow_downs": requests.get("SlowDown", 0),
        "most_at_once": after.most_at_once,
        **usage.figures(),
        "simulator_cpu_s": round(after.cpu_seconds - before.cpu_seconds, 2),
    }


def by_threads(shape: KeyShape, latency_ms: float, concurrency: int) -> dict[str, Figure]:
    """List in this process."""
    with SimulatedStore(shape, latency_ms=latency_ms) as simulated, simulated.environment():
        store = open_store(simulated.location)
        slices = store.list_level("data/")[0]
        before = simulated.stats()
        with watched() as usage:
            keys = sum(batch.num_rows for batch in list_concurrently(store, slices, concurrency))
        return figures(keys, usage, before, simulated.stats())


def measure(options: Options) -> Iterator[Case]:
    latency_ms = options.number("latency_ms", 30)
    objects = options.count("objects", 1_000_000)
    few = KeyShape(slices=10, objects_per_slice=_OBJECTS_PER_SLICE)
    many = KeyShape(slices=max(1, objects // _OBJECTS_PER_SLICE), objects_per_slice=_OBJECTS_PER_SLICE)
    yield Case("one lister", in_fresh_process(by_threads, few, latency_ms, 1), baseline=True)
    yield Case("16 slices at once", in_fresh_process(by_threads, many, latency_ms, 16))
    yield Case("one lister, no latency", in_fresh_process(by_threads, many, 0, 1))


BENCHMARK = Benchmark(
    "Listing a simulated S3 store",
    compare="keys_per_s",
    measure=measure,
    settings={"objects": "how many are listed", "latency_ms": "of each answer of the store"},
)
