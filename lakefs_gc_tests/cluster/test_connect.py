"""A mark and its sweep through Spark Connect, with a real server in separate processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefs_gc.engine.spark.compat import spark_version
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.live_and_garbage import Scene
from lakefs_gc_tests.support.processes import CommandLine


@pytest.mark.of_ci  # the same run as elsewhere, over another protocol of Spark
@pytest.mark.long(80)
@pytest.mark.skipif(spark_version() < (4, 0), reason="lakefs-gc refuses Spark Connect with Spark 3.5")
def test_mark_and_sweep_work_through_spark_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_TESTING", "1")  # the server selects a port, and the client requests it
    with Lake(tmp_path / "lake") as lake:
        scene = Scene.of(lake.repository())
        garbage = scene.litter()
        spark = {
            "spark.remote": "local[2]",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.codegen.wholeStage": "false",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        }
        line = CommandLine(lake, tmp_path / "command-line", spark, tmp_path / "work")
        ended = line.json("run", "lake", "--yes")
        assert (ended["candidates"], ended["deleted"], ended["failed"]) == (1, 1, 0)
        assert garbage not in scene.repository.objects()
        scene.check_live("in the end")
