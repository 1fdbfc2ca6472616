"""A job takes the Spark session that runs in its process, as on Databricks, and leaves it running."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakefs_gc.engine.spark.java import ensure_java
from lakefs_gc_tests.docs.generate import DOCS
from lakefs_gc_tests.docs.pages import blocks
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lake_fixtures import lake
from lakefs_gc_tests.support.user_environment import environment_of_user

__all__ = ["lake"]

_TIMEOUT_SECONDS = 300
_JOB = """
from pyspark import SparkContext
from pyspark.sql import SparkSession

theirs = SparkSession.builder.master("local[1]").appName("theirs").config("spark.ui.enabled", "false").getOrCreate()
id_before = theirs.sparkContext.applicationId
try:
    exec(open("recipe.py").read())
except SystemExit as end:
    assert not end.code, end.code
assert SparkContext._active_spark_context is theirs.sparkContext
assert (theirs.sparkContext.applicationId, theirs.sparkContext.appName) == (id_before, "theirs")
assert theirs.sparkContext.master == "local[1]"
assert theirs.range(7).count() == 7
print("their session runs on")
"""


@pytest.mark.of_ci
@pytest.mark.long(40)
def test_the_recipe_for_databricks_takes_the_running_session(lake: Lake, tmp_path: Path) -> None:
    repository = lake.repository("my-repo")
    live = repository.put("live")
    repository.commit()
    garbage = repository.put_stray("data/old/garbage")
    [recipe] = [code for code in blocks(DOCS / "guides" / "clusters.md", "python") if "getOrCreate" in code]
    (tmp_path / "recipe.py").write_text(recipe)
    (tmp_path / "job.py").write_text(_JOB)

    ended = subprocess.run(
        [sys.executable, "job.py"],
        cwd=tmp_path,
        env={
            **environment_of_user(lake, tmp_path, {"spark.master": "local[2]"}, backup=False),
            "JAVA_HOME": str(ensure_java()),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-3000:]
    assert ended.stdout.endswith("their session runs on\n")
    [mark] = list(repository.folder.glob("_lakefs/retention/gc/unified/*/summary.json"))
    assert '"num_deleted_objects":1' in mark.read_text()
    assert repository.objects() == {live, garbage}
