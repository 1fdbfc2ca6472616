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
from lakefs_gc.engine.forecast.outlook import NEVER_COMMITTED, Total
from lakefs_gc.errors import ConfigurationError, MarkError
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository
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


@pytest.mark.long(40)
def test_a_forecast_is_typed(
    repository: LakeRepository, config: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repository.keep_days(30)
    former = repository.put("live/0", "second")
    repository.commit(age_days=50)
    repository.put("live/0", "third")
    repository.commit(age_days=40)
    monkeypatch.chdir(tmp_path)  # no Dagster instance is there
    config.write_text(config.read_text().replace("[mounts]", "[safety]\nmin_age_hours = 24\n[mounts]"))
    forecast = lakefs_gc.marks("lake", config=config).forecast({"default": 60})
    assert (forecast.repository, forecast.as_of.tzinfo is not None) == ("lake", True)
    assert [each.days for each in forecast.present] == [0, 30, 90]
    now = forecast.present[0]
    assert now.freed[NEVER_COMMITTED] == Total(GARBAGE, GARBAGE * len(b"twelve bytes"))
    # The commits with the first and the second content got successors 50 and 40 days ago.
    assert now.freed["default"] == Total(2, len("live/0") + len("second"))
    assert forecast.asked is not None
    assert "default" not in forecast.asked[0].freed
    assert forecast.asked[1].freed["default"] == now.freed["default"]
    rows = {(row["rules"], row["days"]): row["objects"] for row in forecast.to_pandas().to_dict("records")}
    assert (rows["present", 0], rows["asked", 0], len(rows)) == (GARBAGE + 2, GARBAGE, 6)
    assert forecast.curve()["days"].tolist()[0] == 0
    facts = forecast.to_facts()
    assert facts["asked"]["rules"] == {"default_days": 60, "branches": {}}
    assert facts["present"]["freed"][0]["objects"] == now.total.objects == GARBAGE + 2
    assert former in repository.objects(), "nothing was deleted"
    assert lakefs_gc.marks("lake", config=config).forecast().asked is None
