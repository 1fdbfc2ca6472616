"""The short form of ``make test-sparks``, with the older versions of Spark, where its environments are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_CHECKOUT = Path(__file__).parents[1]
_TESTS = (
    "lakefs_gc_tests/engine/spark/test_compat.py",
    "lakefs_gc_tests/test_golden.py::test_marks_what_the_oracle_says[slices-and-copies-local]",
    "lakefs_gc_tests/pipeline/assets/test_small_runs.py::test_a_small_run_marks_what_executors_mark",
)
_OLDEST = "3.5"
_TIMEOUT_SECONDS = 900


@pytest.mark.of_ci
@pytest.mark.long(200)
@pytest.mark.parametrize("version", [_OLDEST, "4.0"])
def test_older_versions_of_spark_mark_the_same_objects(version: str, tmp_path: Path) -> None:
    python = Path(sys.prefix) / f"spark-{version}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python.parent.parent} is not installed: run `make test-sparks`")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYSPARK"))}
    modules: dict[tuple[str, ...], Path] = {("pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *_TESTS): _CHECKOUT}
    if version == _OLDEST:
        modules["lakefs_gc", "demo"] = tmp_path  # as commands run; the tests above mark and sweep, too
    for module, folder in modules.items():
        ended = subprocess.run(
            [python, "-m", *module],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
