"""Rows of the driver as DataFrames, and joins of such rows without Spark.

Spark takes 0.3 to 0.6 s for the first joins of a process, and 0.1 s for each later one, however few the rows are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from lakefs_gc.engine.spark.compat import arrow_schema, from_arrow, known_table, parse_schema


def local_rows(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: StructType | str) -> DataFrame:
    """Return ``rows`` as a DataFrame with ``schema`` (a ``StructType``, or DDL such as ``"file string"``).

    ``createDataFrame`` starts a Python worker for a list of rows. Two rows take 87 ms, and 12 ms here, through Arrow.
    """
    fields = arrow_schema(struct_of(schema))
    columns = zip(*rows, strict=True) if rows else ([] for _ in fields)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return rows_of(spark, pa.table(arrays, schema=fields), schema)


def rows_of(spark: SparkSession, table: pa.Table, schema: StructType | str) -> DataFrame:
    """Return an Arrow table, whose columns are those of ``arrow_schema``, as a DataFrame."""
    return from_arrow(spark, table, struct_of(schema))


def struct_of(schema: StructType | str) -> StructType:
    """Return a schema, parsed if it is DDL."""
    return parse_schema(schema) if isinstance(schema, str) else schema


def columns_of(rows: DataFrame, *columns: str) -> DataFrame:
    """Return these columns of ``rows``, as rows of the driver if these are."""
    table = known_table(rows)
    if table is None:
        return rows.select(*columns)
    return rows_of(rows.sparkSession, table.select(columns), StructType([rows.schema[name] for name in columns]))


def rows_having(rows: DataFrame, column: str, text: str) -> DataFrame:
    """Return the rows that have this text in a column."""
    table = known_table(rows)
    if table is None:
        return rows.where(F.col(column) == text)
    return rows_of(rows.sparkSession, table.filter(pc.equal(table[column], text)), rows.schema)


def with_text(rows: DataFrame, column: str, text: str) -> DataFrame:
    """Return ``rows`` with a column that has the same text in each, as rows of the driver if these are."""
    table = known_table(rows)
    if table is None:
        return rows.withColumn(column, F.lit(text))
    schema = StructType([*rows.schema.fields, StructField(column, StringType(), False)])
    table = table.append_column(arrow_schema(schema).field(column), pa.repeat(text, table.num_rows))
    return rows_of(rows.sparkSession, table, schema)


def greatest_of(rows: DataFrame, key: str, value: str) -> DataFrame:
    """Return each ``key`` once, with its greatest ``value``; null if it has none."""
    return _one_of_each(rows, (key,), value, "max")


def least_of(rows: DataFrame, keys: Sequence[str], value: str) -> DataFrame:
    """Return each combination of ``keys`` once, with its least ``value``; null if it has none. Nulls are a key, too."""
    return _one_of_each(rows, keys, value, "min")


def _one_of_each(rows: DataFrame, keys: Sequence[str], value: str, which: Literal["min", "max"]) -> DataFrame:
    table = known_table(rows)
    if table is None:
        return rows.groupBy(*keys).agg((F.min if which == "min" else F.max)(value).alias(value))
    found = table.group_by(list(keys), use_threads=False).aggregate([(value, which)]).rename_columns([*keys, value])
    return rows_of(rows.sparkSession, found, StructType([rows.schema[name] for name in (*keys, value)]))


def rows_with(rows: DataFrame, others: DataFrame, *columns: str) -> DataFrame:
    """Return the rows whose values in these columns are those of a row of ``others``. Nulls match nothing."""
    return _compared(rows, others, columns, "semi")


def rows_without(rows: DataFrame, others: DataFrame, *columns: str) -> DataFrame:
    """Return all rows that ``rows_with`` does not return."""
    return _compared(rows, others, columns, "anti")


def _compared(rows: DataFrame, others: DataFrame, columns: tuple[str, ...], how: str) -> DataFrame:
    these, those = known_table(rows), known_table(others)
    if these is None or those is None or _types(these, columns) != _types(those, columns):
        return rows.join(others.select(*columns), list(columns), f"left_{how}").select(*rows.columns)
    found = these.join(those.select(columns), list(columns), join_type=f"left {how}")
    return rows_of(rows.sparkSession, found.select(these.column_names), rows.schema)


def _types(table: pa.Table, columns: Iterable[str]) -> list[pa.DataType]:
    return [table.schema.field(column).type for column in columns]


def union_of(frames: Iterable[DataFrame]) -> DataFrame:
    """Return all rows of DataFrames with the same columns. No row passes a shuffle: see ``parts``."""
    first, *others = frames
    tables = [known_table(rows) for rows in (first, *others)]
    known = [table.select(first.columns) for table in tables if table is not None]
    if len(known) < len(tables) or any(table.schema.types != known[0].schema.types for table in known):
        return reduce(DataFrame.unionByName, others, first)
    # Some may have columns that are never null.
    return rows_of(first.sparkSession, pa.concat_tables(known, promote_options="permissive"), first.schema)


def distinct_union(frames: Iterable[DataFrame]) -> DataFrame:
    """Return all rows of DataFrames with the same columns, each once."""
    rows = union_of(frames)
    table = known_table(rows)
    if table is None:
        return rows.distinct()
    found = table.group_by(table.column_names, use_threads=False).aggregate([])
    return rows_of(rows.sparkSession, found.select(table.column_names), rows.schema)
