"""Read every range of the active commits of a generated namespace, in the real format in a local folder.

In the baseline, rows go from the workers through the JVM, which makes them distinct and writes them. In the other
cases the workers write, without a range cache, with an empty one, and with a complete one.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefs_gc.config import Settings
from lakefs_gc.engine.collect.references.active_ranges import metadata_files, ranges_of
from lakefs_gc.engine.collect.references.committed import live_addresses, write_addresses
from lakefs_gc.engine.run import GCRun, RunContext, ServerIdentity
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.workers import Batches, worker
from lakefs_gc.engine.workspace.range_cache import RangeCache, Row, read_through
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput, Workspace, utc_now
from lakefs_gc.formats.commits_csv import read_active_commits
from lakefs_gc.formats.sstable.reader import TableData
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.benchmarks.generator import Namespace, Shape, generate
from lakefs_gc_tests.benchmarks.harness import Benchmark, Case, Figure, Options, in_fresh_process, watched
from lakefs_gc_tests.support.no_server import no_server

_COMMITS_FILE = f"_lakefs/retention/gc/commits/run_id={'g' * 20}/commits.csv"
_CACHE_BYTES = 100 * 1024**3


def run_of(folder: Path) -> GCRun:
    """Return a run over a generated namespace."""
    now = datetime(2026, 6, 1, tzinfo=UTC)
    store = StoreLocation(f"file://{folder}")
    return GCRun("bench/1", "bench", "local://bench/", store, now, now, 0, 0, "generated", ServerIdentity("", ""))


def read_committed(folder: Path, work: Path, *, through_jvm: bool, cached: bool) -> dict[str, Figure]:
    """Read metaranges, then ranges, in this process's Spark. Return the usage of both."""
    resource = SparkResource(spark_config={"spark.driver.memory": "2g"})
    spark, cores, run = resource.session, resource.cores, run_of(folder)
    place = Workspace(f"file://{work}", max_range_cache_bytes=_CACHE_BYTES if cached else 0)
    spark.range(cores).mapInArrow(lambda batches: batches, "id long").collect()  # so that the workers have started
    with watched() as usage:
        ranges = _active_ranges(spark, run, place, cores)
        middle = time.perf_counter()
        if through_jvm:
            entries = place.range_cache.locate(spark, _files(ranges.dataframe, run), cores=cores)
            rows = entries.mapInArrow(_read(run.namespace, place.range_cache, cores), schemas.COMMITTED)
            distinct = rows.groupBy("address").agg(
                F.max("size").alias("size"), F.max("last_modified").alias("last_modified")
            )
            manifest = place.write(spark, run.run_key, "committed", StageOutput(distinct, utc_now()))
        else:
            existing = metadata_files(spark, run.store)
            context = RunContext(resource, no_server, Settings(), place, utc_now, open_store)
            listed = place.files_of(ranges.manifest)
            written = write_addresses(context, run, ranges.dataframe, "committed", listed=listed, existing=existing)
            output = StageOutput(written, utc_now(), in_parts=True)
            manifest = place.write(spark, run.run_key, "committed", output)
        ranges_seconds = time.perf_counter() - middle
    spark.stop()
    entries_read = manifest.rows if through_jvm else manifest.facts["entries"]  # all are different
    return {
        "rows": entries_read,
        "rows_per_s": round(entries_read / usage.wall_seconds),
        "ranges": ranges.manifest.rows,
        "of_it_ranges_s": round(ranges_seconds, 2),
        **usage.figures(),
        "workers_cpu_s": round(usage.cpu_seconds.get("workers", 0), 1),
        "jvm_cpu_s": round(usage.cpu_seconds.get("jvm", 0), 1),
    }


def _active_ranges(spark: SparkSession, run: GCRun, place: Workspace, cores: int) -> Dataset:
    csv = Path(run.store.url.removeprefix("file://")) / _COMMITS_FILE
    metaranges = read_active_commits(csv.read_bytes(), csv.name).column("metarange_id").to_pylist()
    named = spark.createDataFrame([(metarange_id,) for metarange_id in metaranges], "range_id string")
    located = place.range_cache.locate(spark, _files(named, run), cores=cores)
    output = StageOutput(ranges_of(located, place.range_cache, cores, run.known_folders), utc_now())
    place.write(spark, run.run_key, "active_ranges", output)
    return place.read(spark, run.run_key, "active_ranges", schemas.ACTIVE_RANGES)


def _files(ids: DataFrame, run: GCRun) -> DataFrame:
    return ids.withColumn("store_url", F.lit(run.store.folder_url))


@worker
def _read(batches: Batches, namespace: str, cache: RangeCache, cores: int) -> Batches:
    def decode(data: TableData, file: str, row: Row) -> list[pa.RecordBatch]:
        return list(live_addresses(data, file, (namespace,), row["entries"]))

    for _, batch in read_through(batches, cache, cores, decode):
        yield from batch


def measure(options: Options) -> Iterator[Case]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(options.text("namespace") or f"{name}/namespace")
        if not options.text("namespace"):
            entries = options.count("entries", 1_000_000)
            ranges = options.count("ranges", max(1, entries // 417))
            namespace: Namespace = generate(folder, Shape(entries, ranges, slots=max(1, ranges // 100)))
            yield Case("writing the namespace", {"rows": namespace.shape.distinct, "wall_s": namespace.seconds})
        if options.count("baseline", 1):
            through_jvm = in_fresh_process(_case, folder, Path(name) / "jvm", True, False)
            yield Case("rows through the JVM", through_jvm, baseline=True)
        yield Case("written by workers", in_fresh_process(_case, folder, Path(name) / "workers", False, False))
        yield Case("first run with the cache", in_fresh_process(_case, folder, Path(name) / "cache", False, True))
        yield Case("second run with the cache", in_fresh_process(_case, folder, Path(name) / "cache", False, True))


def _case(folder: Path, work: Path, through_jvm: bool, cached: bool) -> dict[str, Figure]:
    return read_committed(folder, work, through_jvm=through_jvm, cached=cached)


BENCHMARK = Benchmark(
    "Reading the ranges of the active commits",
    compare="rows_per_s",
    measure=measure,
    settings={
        "entries": "in all ranges together, all different",
        "ranges": "how many files they are in",
        "namespace": "a folder that the generator wrote, instead",
        "baseline": "0: leave the slow one out",
    },
)
