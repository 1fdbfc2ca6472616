"""The Python API: the marks of a repository as pandas and Spark see them, and the same answers as the commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

import lakefs_gc
from lakefs_gc.engine.explain.answers import State
from lakefs_gc.errors import ConfigurationError, MarkError
from lakefs_gc_tests.support.collector import Collector, LakeRepository
from lakefs_gc_tests.support.lake_fixtures import lake_of_environment, repository_with_garbage
from lakefs_gc_tests.support.repository_with_garbage import GARBAGE, LIVE

__all__ = ["lake_of_environment", "repository_with_garbage"]


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import lakefs_gc, sys; print(sorted({'dagster', 'numba', 'pandas', 'pyarrow', 'pyspark'} & {*sys.modules}))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="has no attribute 'mark'"):
        lakefs_gc.mark  # type: ignore[attr-defined]  # noqa: B018


@pytest.fixture
def config(repository: LakeRepository, tmp_path: Path) -> Path:
    settings = repository.lake.settings
    file = tmp_path / "lakefs-gc.toml"
    file.write_text(
        f'work_url = "{settings.work_url}"\n[mounts]\n"local://" = "{repository.lake.location.folder_url}"\n'
    )
    return file


def test_a_mark_in_pandas_and_in_spark(repository: LakeRepository, config: Path, spark: SparkSession) -> None:
    garbage = sorted(key for key in repository.objects() if "garbage" in key)
    made = Collector(spark, repository).mark_objects(*garbage)
    marks = lakefs_gc.marks("lake", config=config)

    table = marks.to_pandas()
    assert table["mark_id"].tolist() == [made.mark_id] == [mark.mark_id for mark in marks]
    assert table["candidates"].tolist() == [GARBAGE]
    assert table["created_at"][0].tzinfo is not None

    mark = marks.mark(made.mark_id)
    assert mark.manifest.digest == made.digest
    frames = list(mark.objects())
    assert all(isinstance(frame, pd.DataFrame) for frame in frames)
    assert sorted(pd.concat(frames)["address"]) == garbage
    assert sorted(row["address"] for row in mark.to_spark(spark).collect()) == garbage

    answers = marks.explain(garbage[0], "lakefs://lake/main/live/0")
    assert [answer.state for answer in answers] == [State.MARKED, State.KEPT]
    assert len(marks.prove_erased("live/", no_backups=True).objects) == LIVE
    with pytest.raises(ConfigurationError, match="it has no default"):
        marks.forecast({"main": 3})
    with pytest.raises(MarkError):
        list(marks.mark("no-such-mark").objects())
