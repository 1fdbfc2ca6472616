"""A table that changes on its way to Java is an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from lakefs_gc.engine.spark.compat import arrow_schema, from_arrow, parse_schema
from lakefs_gc.errors import CorruptFileError

TABLE = {"address": ["data/a", "data/c"], "size": [1, 2]}


@pytest.fixture
def flipped(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Flip a bit of the first address in each file that PySpark gives to Java. An element switches that on."""
    is_on: list[bool] = []
    serialize = SparkContext._serialize_to_jvm

    def damaging(self: Any, data: Any, serializer: Any, reader: Callable[[str], Any], server: Any) -> Any:
        def read(name: str) -> Any:
            content = Path(name).read_bytes()
            assert content.count(b"data/adata/c") == 1
            if is_on:
                Path(name).write_bytes(content.replace(b"data/adata/c", b"data/cdata/c"))
            return reader(name)

        return serialize(self, data, serializer, read, server)

    monkeypatch.setattr(SparkContext, "_serialize_to_jvm", damaging)
    return is_on


def test_a_bit_that_flips_on_the_way_to_java(spark: SparkSession, flipped: list[bool]) -> None:
    struct = parse_schema("address string, size long")
    table = pa.table(TABLE, arrow_schema(struct))
    assert from_arrow(spark, table, struct).distinct().count() == 2
    flipped.append(True)
    with pytest.raises(CorruptFileError, match="it passes rows to Spark, and has another content"):
        from_arrow(spark, table, struct).distinct().count()
