"""A sweep that is killed in the middle, and the one that goes on (rule 9)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc_tests.support.collector import Collector, LakeRepository, counts
from lakefs_gc_tests.support.killing import kill_session

OBJECTS = 400
_TIMEOUT_SECONDS = 120


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the processes in /proc")
def test_a_sweep_goes_on_where_it_was_killed(
    spark: SparkSession, spark_config: dict[str, str], repository: LakeRepository, tmp_path: Path
) -> None:
    live = repository.put_stray("data/live/x")
    keys = [repository.put_stray(f"data/s{number % 4}/{number:04}", b"123") for number in range(OBJECTS)]
    referenced = keys[::50]
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*keys)
    ledger = repository.folder / MarkPaths.of(mark.mark_id).ledger
    task = {
        "run": collector.begin().to_facts(),
        "mark_id": mark.mark_id,
        "work_url": f"file://{tmp_path}/work-of-the-other",
        "live": referenced,
        "spark": spark_config,
    }
    (tmp_path / "task.json").write_text(json.dumps(task))
    command = [sys.executable, "-m", "lakefs_gc_tests.support.sweep_process", str(tmp_path / "task.json")]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not (ledger.exists() and sum(1 for _ in ledger.glob("*-outcome.parquet")) >= 10):
            assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        kill_session(process)

    left = repository.objects() & set(keys)
    recorded = Counter(recorded_outcomes(ledger))
    assert len(referenced) < len(left) < OBJECTS, "killed in the middle"
    # Nothing is gone that the ledger does not know of.
    assert OBJECTS - len(left) <= recorded["intent"]
    assert recorded["deleted"] <= OBJECTS - len(left)

    # A look takes what is gone for referenced where it cannot tell the content: that was deleted all the same.
    gone = sorted(set(keys) - left)
    result = collector.sweep(mark, live=[*referenced, *gone[::3]])
    assert collector.swept.keys() == set(keys)
    expected = dict.fromkeys(keys, "deleted") | dict.fromkeys(referenced, "resurrected")
    assert collector.swept == expected
    assert counts(result) == {"deleted": OBJECTS - len(referenced), "resurrected": len(referenced)}
    assert result.outcomes["deleted"].size_bytes == 3 * (OBJECTS - len(referenced))
    assert repository.objects() == {live, *referenced}


def recorded_outcomes(ledger: Path) -> Iterator[str]:
    for file in ledger.glob("*.parquet"):
        yield from pq.read_table(file)["outcome"].to_pylist()
