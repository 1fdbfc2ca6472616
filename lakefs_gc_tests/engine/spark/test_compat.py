"""What differs between versions of Spark, with the installed one. ``make test-sparks`` runs it with the older ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.spark import compat, schemas
from lakefs_gc.engine.spark.compat import (
    arrow_schema,
    examine_spark,
    from_arrow,
    java_text,
    java_versions,
    parse_schema,
    refuse_unsupported,
    spark_version,
    to_arrow,
    try_url_decode,
    version_of,
)
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.errors import ConfigurationError, SparkFailedError

_PYTHON = (3, 11)


def test_versions_are_read() -> None:
    assert version_of("3.5.7") == (3, 5)
    assert version_of("4.0.1.dev2") == (4, 0)
    assert spark_version() == version_of(pyspark.__version__)


@pytest.mark.parametrize("version", [(3, 5), (4, 0), (4, 1), (4, 2), (4, 3), (4, 9)])
def test_supported_versions_pass(version: tuple[int, int]) -> None:
    refuse_unsupported(version, _PYTHON)


@pytest.mark.parametrize("version", [(2, 4), (3, 4), (5, 0)])
def test_other_versions_are_refused(version: tuple[int, int]) -> None:
    with pytest.raises(ConfigurationError, match=r"Spark \d\.\d is not supported"):
        refuse_unsupported(version, _PYTHON)


def test_spark_3_needs_an_older_python_and_no_connect() -> None:
    with pytest.raises(ConfigurationError, match=r"Spark 3\.5 does not support Python 3\.12"):
        refuse_unsupported((3, 5), (3, 12))
    with pytest.raises(ConfigurationError, match="cannot use Spark Connect with Spark 3"):
        refuse_unsupported((3, 5), _PYTHON, connect=True)
    refuse_unsupported((4, 0), (3, 13), connect=True)


def test_java_versions() -> None:
    assert java_versions((3, 5)) == (8, 17)
    assert java_versions((4, 0)) == (17, 21)
    assert java_text((4, 0)) == "Java 17 to 21"
    assert java_text((4, 3)) == "Java 17 or newer"


def test_an_untested_version_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert examine_spark()[1] == ""
    monkeypatch.setattr(pyspark, "__version__", "4.9.0")
    detail, remedy = examine_spark()
    assert "newer than 4.3" in detail
    assert remedy == "install Spark 4.3"
    monkeypatch.setattr(pyspark, "__version__", "5.0.0")
    with pytest.raises(ConfigurationError, match="not supported"):
        examine_spark()


@pytest.mark.parametrize("stage", [stage for stage, schema in schemas.BY_STAGE.items() if schema])
def test_the_columns_in_arrow_are_the_same_in_all_versions(stage: str) -> None:
    types = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    struct = schemas.BY_STAGE[stage]
    for field, column in zip(arrow_schema(struct), struct, strict=True):
        if column.name == "ages":
            assert field.type.value_type == pa.int32()
        else:
            assert field.type == types[column.dataType.simpleString()], column.name
        assert (field.name, field.nullable) == (column.name, column.nullable)


def test_rows_go_to_spark_and_back(spark: SparkSession) -> None:
    struct = parse_schema("name string, size long, flag boolean, at timestamp")
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    rows = [
        {"name": f"n{number}", "size": None if number % 3 else 2**62 + number, "flag": True, "at": at}
        for number in range(25_000)  # several batches
    ]
    rows.append({"name": None, "size": None, "flag": None, "at": None})
    table = pa.Table.from_pylist(rows, schema=arrow_schema(struct))
    frame = from_arrow(spark, table, struct)
    assert frame.schema == struct
    assert to_arrow(frame).to_pylist() == rows
    assert frame.agg(F.count_if(F.col("size").isNull())).first()[0] == sum(row["size"] is None for row in rows)  # type: ignore[index]
    empty = from_arrow(spark, table.slice(0, 0), struct)
    assert (empty.count(), to_arrow(empty).num_rows, to_arrow(empty).schema) == (0, 0, table.schema)


def test_a_table_is_sent_when_spark_needs_it_and_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, send = list[int](), compat._java_rows

    def sending(*arguments: Any) -> Any:
        sent.append(1)
        return send(*arguments)

    monkeypatch.setattr(compat, "_java_rows", sending)
    struct = parse_schema("name string")
    frame = from_arrow(spark, pa.table([["a", "b"]], arrow_schema(struct)), struct)
    assert (frame.columns, frame.schema, to_arrow(frame).num_rows, sent) == (["name"], struct, 2, [])
    assert frame.count() == frame.union(frame).distinct().count() == 2
    assert sent == [1]


def test_a_table_without_batches_has_its_columns(spark: SparkSession) -> None:
    struct = parse_schema("name string, numbers array<int>, at timestamp")
    frame = from_arrow(spark, pa.Table.from_batches([], arrow_schema(struct)), struct)
    assert (frame.count(), frame.schema) == (0, struct)


@pytest.mark.parametrize("empty_batches", [(0,), (1,), (0, 1, 2), (2,)])
def test_a_batch_without_rows_ends_nothing(spark: SparkSession, empty_batches: tuple[int, ...]) -> None:
    struct = parse_schema("name string")
    batches = [pa.record_batch({"name": [f"{number}"]}, arrow_schema(struct)) for number in range(2)]
    for position in sorted(empty_batches, reverse=True):
        batches.insert(position, batches[0].slice(0, 0))
    frame = from_arrow(spark, pa.Table.from_batches(batches), struct)
    assert [row["name"] for row in frame.collect()] == ["0", "1"]
    assert frame.count() == 2


def test_an_overflow_and_an_invalid_cast_fail_the_query(spark: SparkSession) -> None:
    """Spark 3.5 would answer with a wrong number and null, unless it is configured like Spark 4."""
    for wrong in ("9223372036854775807 + id", "cast(concat('x', id) as long)"):
        with pytest.raises(SparkFailedError), driver_errors():
            spark.range(1, 2).selectExpr(wrong).collect()


def test_urls_that_cannot_be_decoded_are_null(spark: SparkSession) -> None:
    """The same answers in all versions: the function of Spark 4 decides, which Spark 3.5 does not have."""
    decoded: dict[str | None, str | None] = {
        "a%20b%2Fc": "a b/c",
        "": "",
        "x\ny": "x\ny",
        "%E2%82%AC": "€",
        "%ff": "�",
        "%": None,
        "a%2": None,
        "%zz": None,
        "%%20": None,
        "%-1": None,
        "ok%20%": None,
        "%\uff11\uff12": "\x12",
        "%\uff21\u0661": "�",
        "%\U0001d7d8": None,
        None: None,
    }
    rows = spark.createDataFrame([(text,) for text in decoded], "text string")
    assert {
        row.text: row.decoded for row in rows.select("text", try_url_decode(F.col("text")).alias("decoded")).collect()
    } == decoded
