"""Listing and sweeping in Azure's and Google's store, compared with their official SDKs, one page or key at a time.

The stores are simulated, with a latency (see ``simulated_protocols``), and take processor time of the same machine.
The SDKs do what a script does that lists a container and deletes each key. Ours lists by ranges: in threads of one
process, as each task of a run does, and as the stage of a run in Spark, which writes Parquet. Ours sweeps as a run
does: with a record of each intent and outcome, a look whether each object is unchanged, and Spark.

Towards an emulator, and so here, ours does not cut ranges of Google's store and looks each key up by itself: emulators
do not list in order (``GCSStore.lists_by_page``). With Google's store itself it does less.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from lakefs_gc.storage.listing.key_ranges import KeyRange
from lakefs_gc.storage.listing.range_listing import ListingLimits, RangeLister
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.benchmarks.harness import Benchmark, Case, Figure, Options, Usage, in_fresh_process, watched
from lakefs_gc_tests.benchmarks.listing import listed_in_spark
from lakefs_gc_tests.benchmarks.sdk_clients import NAMES, client_of
from lakefs_gc_tests.benchmarks.simulated_keys import KeyShape, SimulatedKeys
from lakefs_gc_tests.benchmarks.simulated_store import SimulatedStore
from lakefs_gc_tests.benchmarks.sweep import swept

_OBJECTS_PER_SLICE = 20_000
_FOLDER = "namespace/"


def _figures(keys: int, usage: Usage, simulated: SimulatedStore) -> dict[str, Figure]:
    return {
        "keys_per_s": round(keys / usage.wall_seconds, 1),
        "keys": keys,
        "wall_s": round(usage.wall_seconds, 2),
        "client_cpu_s": round(usage.client_cpu_seconds, 2),
        "requests": sum(simulated.stats().requests.values()),
    }


def _shape(objects: int) -> KeyShape:
    return KeyShape(slices=max(1, objects // _OBJECTS_PER_SLICE), objects_per_slice=min(objects, _OBJECTS_PER_SLICE))


def listed_by_sdk(protocol: str, objects: int, latency_ms: float) -> dict[str, Figure]:
    with (
        SimulatedStore(_shape(objects), latency_ms=latency_ms, protocol=protocol) as simulated,
        simulated.environment(),
    ):
        client = client_of(protocol)
        with watched() as usage:
            keys = client.count(f"{_FOLDER}data/")
        return _figures(keys, usage, simulated)


def listed_by_us(protocol: str, objects: int, latency_ms: float) -> dict[str, Figure]:
    with (
        SimulatedStore(_shape(objects), latency_ms=latency_ms, protocol=protocol) as simulated,
        simulated.environment(),
    ):
        store = open_store(simulated.location)
        with watched() as usage:
            ranges = [KeyRange(name) for name in store.list_level("data/")[0]]
            keys = sum(batch.num_rows for batch in RangeLister(store, ranges, ListingLimits()).batches())
        return _figures(keys, usage, simulated)


def listed_by_stage(protocol: str, objects: int, latency_ms: float) -> dict[str, Figure]:
    with (
        SimulatedStore(_shape(objects), latency_ms=latency_ms, protocol=protocol) as simulated,
        simulated.environment(),
    ):
        keys, usage = listed_in_spark(simulated.location)
        return _figures(keys, usage, simulated)


def swept_by_sdk(protocol: str, objects: int, latency_ms: float) -> dict[str, Figure]:
    with (
        SimulatedStore(_shape(objects), latency_ms=latency_ms, protocol=protocol) as simulated,
        simulated.environment(),
    ):
        keys, client = SimulatedKeys(_shape(objects), _FOLDER), client_of(protocol)
        with watched() as usage:
            deleted = client.delete(keys.key(number).decode() for number in range(objects))
        return _figures(deleted, usage, simulated)


def swept_by_us(protocol: str, objects: int, latency_ms: float) -> dict[str, Figure]:
    figures = swept(objects, latency_ms, 0, 16, protocol)
    same = {name: figures[name] for name in ("wall_s", "client_cpu_s")}
    return {"keys_per_s": figures["deleted_per_s"], "keys": figures["deleted"], **same}


def measure(options: Options) -> Iterator[Case]:
    latency_ms = options.number("latency_ms", 30)
    by_sdk, by_us = options.count("objects_of_sdk", 100_000), options.count("objects", 400_000)
    wanted = options.text("cases").split(",")
    deletes_of_sdk, deletes = options.count("deletes_of_sdk", 300), options.count("deletes", 50_000)
    for protocol, name in NAMES.items():
        vendor = name.partition(":")[0]
        cases = {
            f"{name} lists": partial(listed_by_sdk, protocol, by_sdk, latency_ms),
            f"{vendor}: ours lists": partial(listed_by_us, protocol, by_us, latency_ms),
            f"{vendor}: ours lists in Spark": partial(listed_by_stage, protocol, by_us, latency_ms),
            f"{name} deletes": partial(swept_by_sdk, protocol, deletes_of_sdk, latency_ms),
            f"{vendor}: ours sweeps": partial(swept_by_us, protocol, deletes, latency_ms),
        }
        for case, function in cases.items():
            if not any(part in case for part in wanted):
                continue
            yield Case(case, in_fresh_process(function), baseline=case.startswith(name))


BENCHMARK = Benchmark(
    "Azure's and Google's store, simulated, compared with the official SDKs",
    compare="keys_per_s",
    measure=measure,
    settings={
        "objects": "how many ours lists",
        "objects_of_sdk": "how many an SDK lists",
        "deletes": "how many ours sweeps",
        "deletes_of_sdk": "how many an SDK deletes",
        "latency_ms": "of each answer of the store",
        "cases": "parts of the names of cases to run, separated by commas",
    },
)
