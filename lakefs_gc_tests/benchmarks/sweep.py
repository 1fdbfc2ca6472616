"""Sweep a mark in a simulated S3 store, from an approved mark to the summary. Only the deletes are measured.

Nothing is referenced, so second looks cost nothing here. The baseline sends one request at a time in each task. The
other cases adapt the number of concurrent requests to the store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from tempfile import TemporaryDirectory

from pyspark.sql import functions as F

from lakefs_gc.config import Settings, SweepSettings
from lakefs_gc.engine.collect.listing.listing_rounds import list_in_rounds
from lakefs_gc.engine.decide.marking.write_mark import write_mark
from lakefs_gc.engine.run import GCRun, RunContext, ServerIdentity
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compute import StartedSpark
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.parts import PartsFolder
from lakefs_gc.engine.spark.session import start_spark
from lakefs_gc.engine.sweep.sweep import sweep
from lakefs_gc.engine.workspace.workspace import StageOutput, Workspace, utc_now
from lakefs_gc.storage.listing.range_listing import ListingLimits
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.benchmarks.harness import Benchmark, Case, Figure, Options, in_fresh_process, watched
from lakefs_gc_tests.benchmarks.simulated_keys import KeyShape
from lakefs_gc_tests.benchmarks.simulated_store import SimulatedStore
from lakefs_gc_tests.support.no_server import no_server

_OBJECTS_PER_SLICE = 50_000
_SERVER = ServerIdentity("", "")
_NOW = datetime(2026, 6, 1, tzinfo=UTC)
_MARK_ID = "g" * 20
_SERVER = ServerIdentity("", "")


def swept(
    objects: int, latency_ms: float, requests_per_second: float, requests_at_once: int, protocol: str = "s3"
) -> dict[str, Figure]:
    """List and mark all objects, and sweep them. The figures are those of the sweep."""
    shape = KeyShape(slices=max(1, objects // _OBJECTS_PER_SLICE), objects_per_slice=min(objects, _OBJECTS_PER_SLICE))
    simulated = SimulatedStore(shape, latency_ms=latency_ms, requests_per_second=requests_per_second, protocol=protocol)
    cores = os.cpu_count() or 1
    with simulated, simulated.environment(), TemporaryDirectory() as folder:
        spark = start_spark({"spark.master": f"local[{cores}]"})
        compute, workspace = StartedSpark(spark, cores), Workspace(f"file://{folder}")
        run = GCRun(
            "bench/1",
            "bench",
            simulated.location.url,
            simulated.location,
            _NOW,
            _NOW,
            0,
            0,
            "simulated",
            ServerIdentity("", ""),
        )
        listed = PartsFolder(StoreLocation(f"file://{folder}"), "listed/")
        list_in_rounds(compute, simulated.location, listed, ListingLimits())
        rows = spark.read.schema(schemas.STORE_LISTING).parquet(f"{folder}/listed")
        candidates = StageOutput(
            rows.withColumn("reason", F.lit(schemas.NEVER_COMMITTED)),
            _NOW,
            {"cutoff": run.cutoff.isoformat(), "expired": 0, "expired_bytes": 0},
            {"size_bytes": F.sum("size")},
        )
        workspace.write(spark, run.run_key, "candidates", candidates)
        kept = workspace.read(spark, run.run_key, "candidates", schemas.CANDIDATES)
        mark = write_mark(run, candidates=kept, counts={}, mark_id=_MARK_ID)
        nothing = local_rows(spark, [], schemas.UNCOMMITTED)
        before = simulated.stats()
        with watched() as usage:
            settings = Settings(sweep=SweepSettings(requests_at_once=requests_at_once))
            context = RunContext(compute, no_server, settings, workspace, utc_now, open_store)
            output, result = sweep(context, run, mark, lambda suspects: nothing)
            workspace.write(spark, run.run_key, "sweep", output)
        after = simulated.stats()
        spark.stop()
        requests = {name: count - before.requests.get(name, 0) for name, count in after.requests.items()}
        return {
            "deleted": result.outcomes["deleted"].objects,
            "deleted_per_s": round(result.outcomes["deleted"].objects / usage.wall_seconds),
            "cpu_s_per_million": round(usage.client_cpu_seconds / mark.candidates * 1e6, 1),
            "bulk_deletes": requests.get("DeleteObjects", 0),
            "pages": requests.get("ListObjectsV2", 0),
            "heads": requests.get("HeadObject", 0),
            "slow_downs": requests.get("SlowDown", 0),
            "most_at_once": after.most_at_once,
            **usage.figures(),
            "simulator_cpu_s": round(after.cpu_seconds - before.cpu_seconds, 2),
        }


def measure(options: Options) -> Iterator[Case]:
    objects, latency_ms = options.count("objects", 1_000_000), options.number("latency_ms", 100)
    cases = {
        "one request at a time": partial(swept, objects, latency_ms, 0, 1),
        "at the store's pace": partial(swept, objects, latency_ms, 0, 16),
        "throttled at 30 requests/s": partial(swept, objects, latency_ms, 30, 16),
    }
    for number, (name, function) in enumerate(cases.items()):
        yield Case(name, in_fresh_process(function), baseline=number == 0)


BENCHMARK = Benchmark(
    "Sweeping a mark in a simulated S3 store",
    compare="deleted_per_s",
    measure=measure,
    settings={"objects": "how many are marked and deleted", "latency_ms": "of each answer of the store"},
)
