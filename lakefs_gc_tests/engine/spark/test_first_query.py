"""The first query, which a command has Java run before it needs any."""

from __future__ import annotations

import logging

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.spark import first_query
from lakefs_gc.engine.spark.first_query import run_first_query
from lakefs_gc.engine.spark.scale import SMALL_CONFIG


def test_it_runs_in_a_session_of_its_own(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    before = {name: spark.conf.get(name, None) for name in SMALL_CONFIG}
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    first_job = scheduler.nextJobId()
    with caplog.at_level(logging.DEBUG, first_query.__name__):
        run_first_query(spark)
    assert scheduler.nextJobId() > first_job
    assert not [record for record in caplog.records if record.name == first_query.__name__]
    assert {name: spark.conf.get(name, None) for name in SMALL_CONFIG} == before


def test_without_spark_it_ends(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(first_query, "to_arrow", lambda rows: 1 // 0)
    with caplog.at_level(logging.DEBUG, first_query.__name__):
        run_first_query(spark)
    assert "zero" in caplog.text
