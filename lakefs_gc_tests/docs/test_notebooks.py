"""The Python blocks of the page about notebooks, as they are written, in one namespace, against the embedded server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.explain.answers import State
from lakefs_gc_tests.docs.generate import DOCS
from lakefs_gc_tests.docs.pages import blocks
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lake_fixtures import lake_of_environment

__all__ = ["lake_of_environment"]

MARK_OF_THE_PAGE = "ft4jgpm1pnqihbkupgdg"
PLOT = "freed.curve().plot"


@pytest.mark.of_ci
@pytest.mark.long(60)
def test_the_notebook_runs_as_it_is_written(
    lake: Lake, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = lake.repository("my-repo")
    repository.keep_days(30)
    part = repository.put("tables/events/part-0.parquet")
    erased = repository.put("people/anna.csv", "anna")
    repository.commit(age_days=50)
    repository.delete("people/anna.csv")
    repository.commit(age_days=40)
    made = Collector(spark, repository).mark_objects(erased)
    settings = lake.settings
    (tmp_path / "lakefs-gc.toml").write_text(
        f'work_url = "{settings.work_url}"\n[mounts]\n"local://" = "{lake.location.folder_url}"\n'
    )
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(DOCS / "guides" / "notebooks.md", "python"))
    assert (code.count(MARK_OF_THE_PAGE), code.count(PLOT)) == (1, 1)
    # Matplotlib is none of the packages that the tests need.
    code = "".join(line for line in code.splitlines(keepends=True) if not line.startswith(PLOT))

    names: dict[str, Any] = {}
    exec(code.replace(MARK_OF_THE_PAGE, made.mark_id), names)

    assert names["mark"].manifest.digest == made.digest
    assert isinstance(names["objects"], pd.DataFrame)
    assert names["objects"]["address"].tolist() == [erased]
    assert names["by_reason"].sum() == len("anna")
    assert names["answer"].state is State.KEPT
    assert names["answer"].address == part
    assert len(names["proof"].objects) == 1
    assert names["freed"].asked[0].total.size_bytes == len("anna")
    assert names["freed"].curve()["size_bytes"].max() == len("anna")
