"""Joins and unions of rows of the driver give what Spark gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from lakefs_gc.engine.decide.shown.lookups import Answers, kept_of
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import known_table
from lakefs_gc.engine.spark.local_rows import (
    columns_of,
    distinct_union,
    greatest_of,
    least_of,
    local_rows,
    rows_having,
    rows_with,
    rows_without,
    with_text,
)

_SCHEMA = "size long, address string, other long"


def some_rows(random: Random, number: int) -> list[tuple[int | None, str | None, int]]:
    """Rows with duplicates and nulls."""
    return [(random.choice([1, 2, None]), random.choice(["a", "b", None]), random.randrange(2)) for _ in range(number)]


def by_spark(rows: DataFrame) -> DataFrame:
    computed = rows.where("true")
    assert known_table(computed) is None
    return computed


def contents(rows: DataFrame) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in rows.collect()), key=repr)


@pytest.mark.parametrize("numbers", [(8, 5), (8, 0), (0, 5), (0, 0)])
@pytest.mark.parametrize("columns", [("address",), ("address", "size")])
def test_comparisons(spark: SparkSession, numbers: tuple[int, int], columns: tuple[str, ...]) -> None:
    random = Random(str((numbers, columns)))
    rows, others = (local_rows(spark, some_rows(random, number), _SCHEMA) for number in numbers)
    for compare in (rows_with, rows_without):
        here = compare(rows, others, *columns)
        assert known_table(here) is not None
        assert here.columns == rows.columns == compare(by_spark(rows), others, *columns).columns
        expected = contents(compare(by_spark(rows), by_spark(others), *columns))
        assert contents(here) == contents(compare(rows, by_spark(others), *columns)) == expected
    with_them, without_them = (compare(rows, others, *columns).count() for compare in (rows_with, rows_without))
    assert with_them + without_them == numbers[0]


@pytest.mark.parametrize("numbers", [(6, 5, 4), (0, 5), (0,), (7,)])
def test_unions(spark: SparkSession, numbers: tuple[int, ...]) -> None:
    random = Random(str(numbers))
    frames = [local_rows(spark, some_rows(random, number), _SCHEMA) for number in numbers]
    in_another_order = local_rows(spark, [("a", 1, 1)], "address string, size long, other long")
    here = distinct_union([*frames, in_another_order])
    assert known_table(here) is not None
    assert here.columns == frames[0].columns
    expected = contents(distinct_union([by_spark(rows) for rows in [*frames, in_another_order]]))
    assert contents(here) == contents(distinct_union([*frames, by_spark(in_another_order)])) == expected


@pytest.mark.parametrize("number", [9, 1, 0])
def test_columns_texts_and_values(spark: SparkSession, number: int) -> None:
    rows = local_rows(spark, some_rows(Random(number), number), _SCHEMA)
    changes: list[Callable[[DataFrame], DataFrame]] = [
        lambda rows: columns_of(rows, "other", "address"),
        lambda rows: with_text(rows, "store_url", "s3://bucket/"),
        lambda rows: greatest_of(rows, "address", "size"),
        lambda rows: greatest_of(rows, "other", "address"),
        lambda rows: least_of(rows, ("address", "size"), "other"),
        lambda rows: least_of(rows, ("other",), "address"),
        lambda rows: rows_having(rows, "address", "b"),
    ]
    for change in changes:
        here, expected = change(rows), change(by_spark(rows))
        assert known_table(here) is not None
        assert here.schema == expected.schema
        assert contents(here) == contents(expected)


ADDRESSES = ["data/s/a", "data/s/b", "data/s/a+b", "data/s/a b", "data/s/a%20b", "data/s/a?b", "data/s/é", "data/s/%"]


@pytest.mark.parametrize("objects", [ADDRESSES, ADDRESSES[:4], ADDRESSES[:1], []], ids=len)
@pytest.mark.parametrize("shown", [ADDRESSES[:2], ["data/s/a b", "data/s/a"], ["data/s/other"], []], ids=str)
def test_what_branches_show(spark: SparkSession, objects: Iterable[str], shown: list[str]) -> None:
    rows = local_rows(spark, [(address, size) for size, address in enumerate(objects)], "address string, size long")
    alike = local_rows(spark, [], "address string, size long, md5 string")
    kept = kept_of(spark, rows, alike, Answers(set(shown)))
    assert kept.columns == schemas.KEPT.names
    expected = {*objects} & ({*shown} | ({"data/s/a%20b"} if "data/s/a b" in shown else set()))
    expected |= {"data/s/a?b"} & {*objects} if "data/s/a" in shown else set()
    assert {row["address"] for row in kept.collect()} == expected
    assert contents(kept.distinct()) == contents(kept_of(spark, by_spark(rows), alike, Answers(set(shown))).distinct())


def test_rows_of_other_types_are_compared_by_spark(spark: SparkSession) -> None:
    longs, ints = local_rows(spark, [(1,), (2,)], "size long"), local_rows(spark, [(2,), (3,)], "size int")
    assert contents(rows_with(longs, ints, "size")) == [(2,)]
    assert contents(distinct_union([longs, ints])) == [(1,), (2,), (3,)]
    never_null = local_rows(spark, [(4,)], StructType([StructField("size", LongType(), nullable=False)]))
    here = distinct_union([longs, never_null])
    assert known_table(here) is not None
    assert contents(here) == [(1,), (2,), (4,)]
