"""Runs the work of Python workers in this process where it is small.

Two workers need 5 s of processor time to start, and each stage that they write or read takes Spark several jobs. For a
repository of 200 objects that is most of a mark. So a small run (``Compute.scale``) calls the same functions in this
process, keeps its rows as Arrow tables, and lets Spark interpret its plans: compiling each of them takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakefs_gc.engine.spark.compat import arrow_schema, to_arrow
from lakefs_gc.engine.spark.local_rows import rows_of, struct_of
from lakefs_gc.engine.spark.workers import Batches, WorkerError, driver_errors
from lakefs_gc.errors import LakeFSGCError

SMALL = "spark.lakefsGc.small"
"""Whether the current run is small. If the configuration sets it to false, none is. Nothing else can be configured."""

SMALL_CONFIG = {
    SMALL: "true",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings of a session while its run is small."""

SMALL_RUN_OBJECTS = 150_000
"""The most objects in the store of a small run. A mark of 100,000 takes 27 s of processor time, and 49 by executors."""

IS_SMALL = "is_small"
"""Fact of a store listing: whether its run is small."""

Work = Callable[[Batches], Batches]
Fits = Callable[[pa.Table], bool]
"""Whether the process of a small run does the work on these rows itself."""


def may_be_small(spark_config: Mapping[str, Any]) -> bool:
    """Return whether a configuration permits small runs."""
    return str(spark_config.get(SMALL)).lower() != "false"


def is_small(session: SparkSession) -> bool:
    """Return whether the current run of a session is small."""
    return session.conf.get(SMALL, "false") == "true"


def in_arrow(
    rows: DataFrame, work: Work, schema: StructType | str, *, few: bool = True, fits: Fits | None = None, tasks: int = 1
) -> DataFrame:
    """Return ``rows.mapInArrow(work, schema)``; in a small run computed at once, in this process.

    If the rows of a small run are not ``few``, or do not fit, workers do the work, in ``tasks``.
    """
    session = rows.sparkSession
    if not is_small(session):
        return rows.mapInArrow(work, schema)
    if few:
        with driver_errors():
            table = to_arrow(rows)
        if fits is None or fits(table):
            return rows_of(session, _work_on(table, work, schema), schema)
        rows = rows_of(session, table, rows.schema)  # not computed again
    return rows.repartition(tasks).mapInArrow(work, schema)  # otherwise in one task


def collect_in_arrow(rows: DataFrame, work: Work, schema: StructType | str) -> list[dict[str, Any]]:
    """Return ``in_arrow`` as rows of the driver. Raise the errors of ``work``."""
    if is_small(rows.sparkSession):
        done: list[dict[str, Any]] = _done_here(rows, work, schema).to_pylist()
        return done
    with driver_errors():
        return [row.asDict() for row in rows.mapInArrow(work, schema).collect()]


def spread(rows: DataFrame, tasks: int, *columns: Any) -> DataFrame:
    """Return ``rows.repartition(tasks, ...)``; the rows as they are in a small run, which has one task."""
    return rows if is_small(rows.sparkSession) else rows.repartition(tasks, *columns)


def work_here(batches: Iterable[pa.RecordBatch], work: Work, fields: pa.Schema) -> pa.Table:
    """Call a function of workers in this process. Raise its errors. Needs no Spark."""
    try:
        done = [batch.select(fields.names) for batch in work(iter(batches))]
    except WorkerError as error:
        if isinstance(error.__cause__, LakeFSGCError):
            raise error.__cause__ from None
        raise
    return pa.Table.from_batches(done).cast(fields) if done else fields.empty_table()


def _done_here(rows: DataFrame, work: Work, schema: StructType | str) -> pa.Table:
    with driver_errors():
        table = to_arrow(rows)
    return _work_on(table, work, schema)


def _work_on(table: pa.Table, work: Work, schema: StructType | str) -> pa.Table:
    return work_here(table.to_batches(), work, arrow_schema(struct_of(schema)))
