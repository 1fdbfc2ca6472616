"""Match stored with referenced objects: by default 20M listed, 18M committed, 1M staged, 1M garbage.

The baseline joins on the addresses themselves. The others are the stage ``unmatched`` of lakefs-gc, on a cluster and on
one machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakefs_gc.config import Settings
from lakefs_gc.engine.decide.matching.unmatched import unmatched
from lakefs_gc.engine.run import GCRun, RunContext, ServerIdentity
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.data_files import StageFiles
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput, Workspace
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.benchmarks.generator import Shape, listing_of
from lakefs_gc_tests.benchmarks.harness import Benchmark, Case, Figure, Options, in_fresh_process, watched
from lakefs_gc_tests.support.no_server import no_server

BY_ADDRESS, BY_SPARK, HERE = "by address", "by Spark", "here"
_ROWS_PER_FILE = 1_000_000
_SERVER = ServerIdentity("", "")
_NOW = datetime(2026, 6, 1, tzinfo=UTC)
_STAGES = ("store_listing", "uncommitted", "active_ranges", "committed", "foreign_references")
_INPUTS = {"uncommitted": (), "active_ranges": ("uncommitted",), "committed": ("active_ranges",)}
_SERVER = ServerIdentity("", "")


def write_tables(folder: Path, listed: int, committed: int, staged: int) -> None:
    """Write the stages of a run as Parquet: numbered objects, of which the first are committed and the next staged."""
    for stage, begin, end in (
        ("store_listing", 0, listed),
        ("committed", 0, committed),
        ("uncommitted", committed, committed + staged),
    ):
        (folder / stage).mkdir(parents=True)
        for first in range(begin, end, _ROWS_PER_FILE):
            # In random order, because the input is never sorted.
            numbers = np.random.default_rng(first).permutation(np.arange(first, min(first + _ROWS_PER_FILE, end)))
            batch = listing_of(Shape(), numbers)
            table = pa.Table.from_batches([batch.select(["address"]) if stage == "uncommitted" else batch])
            pq.write_table(table, folder / stage / f"{first:012}.parquet", use_dictionary=False)


def _datasets(spark: SparkSession, folder: Path, counts: dict[str, int], *, is_near: bool) -> dict[str, Dataset]:
    found = {}
    for hour, stage in enumerate(_STAGES):
        began_at = _NOW + timedelta(hours=hour)
        inputs = {name: name for name in _INPUTS.get(stage, ())}
        facts = {"mode": "rules", "strangers": 0}
        manifest = DatasetManifest(stage, "bench/1", stage, began_at, began_at, counts.get(stage, 0), facts, inputs)
        schema = schemas.BY_STAGE[stage]
        path = str(folder / stage) if counts.get(stage) else None
        keys = tuple(f"{stage}/{file.name}" for file in sorted((folder / stage).glob("*.parquet")))
        files = StageFiles(StoreLocation(folder.as_uri() + "/"), keys, counts.get(stage, 0), stage=stage)
        found[stage] = Dataset(partial(_rows, spark, path, schema), manifest, files if is_near else None)
    return found


def _rows(spark: SparkSession, path: str | None, schema: StructType) -> DataFrame:
    return spark.createDataFrame([], schema) if path is None else spark.read.schema(schema).parquet(path)


def match(folder: Path, counts: dict[str, int], *, how: str, memory: str) -> dict[str, Figure]:
    """Match and write, in this process's Spark: ``BY_ADDRESS``, ``BY_SPARK`` or ``HERE``."""
    resource = SparkResource(spark_config={"spark.driver.memory": memory})
    spark = resource.session
    datasets = _datasets(spark, folder, counts, is_near=how == HERE)
    run = GCRun(
        "bench/1",
        "bench",
        "local://bench/",
        StoreLocation("file:///"),
        _NOW,
        _NOW,
        0,
        0,
        "generated",
        ServerIdentity("", ""),
    )
    inputs = {name.replace("store_listing", "listing"): dataset for name, dataset in datasets.items()}
    spark.range(1).collect()
    with tempfile.TemporaryDirectory() as work, watched() as usage:
        workspace = Workspace(f"file://{work}")
        context = RunContext(resource, no_server, Settings(), workspace, lambda: _NOW, open_store)
        if how == BY_ADDRESS:
            output = StageOutput(_joined_by_address(datasets, run), _NOW)
        else:
            output = unmatched(context, run, **inputs)
        rows = workspace.write(spark, run.run_key, "unmatched", output).rows
    spark.stop()
    return {"unmatched": rows, "listed_per_s": round(counts["store_listing"] / usage.wall_seconds), **usage.figures()}


def _joined_by_address(datasets: dict[str, Dataset], run: GCRun) -> DataFrame:
    references = (
        datasets["committed"]
        .dataframe.select("address", F.lit("committed").alias("found_in"))
        .union(datasets["uncommitted"].dataframe.select("address", F.lit("uncommitted").alias("found_in")))
    )
    joined = datasets["store_listing"].dataframe.join(references.hint("merge"), "address", "full_outer")
    return joined.where(F.col("found_in").isNull() & (F.col("last_modified") < F.lit(run.cutoff)))


def measure(options: Options) -> Iterator[Case]:
    listed = options.count("listed", 20_000_000)
    committed, staged = listed * 18 // 20, listed // 20
    counts = {"store_listing": listed, "committed": committed, "uncommitted": staged}
    with tempfile.TemporaryDirectory() as name:
        began = time.perf_counter()
        write_tables(Path(name), listed, committed, staged)
        yield Case("writing the tables", {"wall_s": round(time.perf_counter() - began, 1)})
        memory = options.text("memory", "2g")
        by_address = in_fresh_process(_case, Path(name), counts, BY_ADDRESS, memory)
        yield Case("sort-merge on addresses", by_address, baseline=True)
        yield Case("the stage, all by Spark", in_fresh_process(_case, Path(name), counts, BY_SPARK, memory))
        yield Case("the stage", in_fresh_process(_case, Path(name), counts, HERE, memory))
        yield Case("the same, 1 GiB of heap", in_fresh_process(_case, Path(name), counts, HERE, "1g"))


def _case(folder: Path, counts: dict[str, int], how: str, memory: str) -> dict[str, Figure]:
    return match(folder, counts, how=how, memory=memory)


BENCHMARK = Benchmark(
    "Matching what is stored with what is referenced",
    compare="listed_per_s",
    measure=measure,
    settings={"listed": "objects in the store; nine tenths are committed", "memory": "heap of the JVM, e.g. 2g"},
)
