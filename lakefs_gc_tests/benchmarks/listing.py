"""The number of keys per second that are listed from a simulated S3 store, compared with one sequential lister.

The first cases measure one process with threads (``storage.range_listing``): the client work of one core, and the gain
of concurrent listing with a latency, in many slices or in one. The others measure the stage in Spark: workers that
write Parquet themselves, and the same rows written by the JVM. The simulator shares the cores, so its processor time is
a separate figure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from lakefs_gc.engine.collect.listing.listing_rounds import list_in_rounds
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compute import StartedSpark
from lakefs_gc.engine.spark.parts import PartsFolder
from lakefs_gc.engine.spark.session import start_spark
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.storage.fan_out import list_concurrently
from lakefs_gc.storage.listing.key_ranges import KeyRange
from lakefs_gc.storage.listing.range_listing import ListingLimits, RangeLister
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.benchmarks.harness import Benchmark, Case, Figure, Options, Usage, in_fresh_process, watched
from lakefs_gc_tests.benchmarks.simulated_keys import KeyShape
from lakefs_gc_tests.benchmarks.simulated_store import SimulatedStore, StoreStats

_OBJECTS_PER_SLICE = 20_000
"""lakeFS begins a new slice after this number of objects."""
_AT_ONCE = 16
_LIMITS = ListingLimits(pages_per_range=100)


def figures(keys: int, usage: Usage, before: StoreStats, after: StoreStats) -> dict[str, Figure]:
    """Return the figures of a listing."""
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


def sequentially(shape: KeyShape, latency_ms: float) -> dict[str, Figure]:
    """List one page after the other in this process."""
    with SimulatedStore(shape, latency_ms=latency_ms) as simulated, simulated.environment():
        store = open_store(simulated.location)
        slices = store.list_level("data/")[0]
        before = simulated.stats()
        with watched() as usage:
            keys = sum(batch.num_rows for name in slices for batch in store.list(name))
        return figures(keys, usage, before, simulated.stats())


def by_threads(shape: KeyShape, latency_ms: float, requests_per_second: float = 0.0) -> dict[str, Figure]:
    """List by ranges in this process."""
    simulated = SimulatedStore(shape, latency_ms=latency_ms, requests_per_second=requests_per_second)
    with simulated, simulated.environment():
        store = open_store(simulated.location)
        ranges = [KeyRange(name) for name in store.list_level("data/")[0]]
        before = simulated.stats()
        with watched() as usage:
            keys = sum(batch.num_rows for batch in RangeLister(store, ranges, ListingLimits()).batches())
        return figures(keys, usage, before, simulated.stats())


def by_spark(shape: KeyShape, latency_ms: float, *, through_jvm: bool) -> dict[str, Figure]:
    with SimulatedStore(shape, latency_ms=latency_ms) as simulated, simulated.environment():
        before = simulated.stats()
        keys, usage = listed_in_spark(simulated.location, through_jvm=through_jvm)
        return figures(keys, usage, before, simulated.stats())


def listed_in_spark(store: StoreLocation, *, through_jvm: bool = False) -> tuple[int, Usage]:
    """Run the stage in a Spark that runs already, from the first request to the last file. Return the number of keys.

    ``through_jvm``: in its earlier form.
    """
    cores = os.cpu_count() or 1
    spark = start_spark({"spark.master": f"local[{cores}]"})
    spark.range(cores, numPartitions=cores).mapInArrow(lambda batches: batches, "id long").count()  # warm
    with TemporaryDirectory() as folder, watched() as usage:
        if through_jvm:
            keys = _through_jvm(spark, store, folder, cores)
        else:
            place = PartsFolder(StoreLocation(f"file://{folder}"), "data/")
            keys = sum(row["rows"] for row in list_in_rounds(StartedSpark(spark, cores), store, place, _LIMITS))
    spark.stop()
    return keys, usage


def _through_jvm(spark: SparkSession, store: StoreLocation, folder: str, cores: int) -> int:
    """Run the earlier form of the stage: one thread for each slice, and the JVM writes the rows as Parquet."""
    slices = spark.createDataFrame([(name,) for name in open_store(store).list_level("data/")[0]], "prefix string")
    listed = slices.repartition(cores * 4).mapInArrow(_list_slices(store), schemas.STORE_LISTING)
    listed.write.parquet(f"{folder}/data")
    return spark.read.parquet(f"{folder}/data").count()


@worker
def _list_slices(batches: Batches, store: StoreLocation) -> Batches:
    slices = (name for batch in batches for name in batch.column("prefix").to_pylist())
    yield from list_concurrently(worker_store(store), slices, _AT_ONCE)


def measure(options: Options) -> Iterator[Case]:
    latency_ms = options.number("latency_ms", 30)
    objects = options.count("objects", 1_000_000)
    few = KeyShape(slices=10, objects_per_slice=_OBJECTS_PER_SLICE)
    many = KeyShape(slices=max(1, objects // _OBJECTS_PER_SLICE), objects_per_slice=_OBJECTS_PER_SLICE)
    one = KeyShape(in_one_slice=objects)
    flat = KeyShape(at_root=objects)
    wanted = options.text("cases").split(",")
    cases = {
        "one lister": partial(sequentially, few, latency_ms),
        "threads, many slices": partial(by_threads, many, latency_ms),
        "threads, one slice": partial(by_threads, one, latency_ms),
        "threads, throttled at 200/s": partial(by_threads, few, latency_ms, 200.0),
        "one lister, no latency": partial(sequentially, many, 0.0),
        "Spark, many slices, rows through the JVM": partial(by_spark, many, latency_ms, through_jvm=True),
        "Spark, many slices": partial(by_spark, many, latency_ms, through_jvm=False),
        "Spark, one slice, rows through the JVM": partial(by_spark, one, latency_ms, through_jvm=True),
        "Spark, one slice": partial(by_spark, one, latency_ms, through_jvm=False),
        "Spark, flat root": partial(by_spark, flat, latency_ms, through_jvm=False),
    }
    for number, (name, function) in enumerate(cases.items()):
        if number == 0 or any(part in name for part in wanted):
            yield Case(name, in_fresh_process(function), baseline=number == 0)


BENCHMARK = Benchmark(
    "Listing a simulated S3 store",
    compare="keys_per_s",
    measure=measure,
    settings={
        "objects": "how many are listed",
        "latency_ms": "of each answer of the store",
        "cases": "parts of the names of cases to run, separated by commas",
    },
)
