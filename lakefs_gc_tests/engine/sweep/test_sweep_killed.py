"""A sweep that is killed in the middle, and the one that goes on (rule 9), on each kind of store."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.mark_history import outcomes_so_far
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc_tests.support.collector import Collector, counts
from lakefs_gc_tests.support.emulators import namespace_behind_proxy
from lakefs_gc_tests.support.killing import kill_session
from lakefs_gc_tests.support.lake import Lake, LakeRepository, keys_below
from lakefs_gc_tests.support.store_proxy import StoreRequest

OBJECTS = 400
_OUTCOMES_BEFORE_KILL = 10
"""In the ledger of a local sweep."""
_DELETES_BEFORE_KILL = 100
"""In an emulator. More than a worker has threads, so some outcomes are in the ledger."""
_TIMEOUT_SECONDS = 120


@pytest.mark.long(40)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the processes in /proc")
@pytest.mark.parametrize("kind", ["local", *(pytest.param(kind, marks=pytest.mark.of_ci) for kind in ("azure", "gcs"))])
def test_a_sweep_goes_on_where_it_was_killed(
    kind: str,
    spark: SparkSession,
    spark_config: dict[str, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    location, reached, killed, deletes = None, threading.Event(), threading.Event(), itertools.count(1)
    with ExitStack() as stack:
        if kind != "local":
            proxy, location = stack.enter_context(namespace_behind_proxy(kind, request))

            def hold(asked: StoreRequest) -> None:
                """Keep the answers back: the sweep is killed after the store has deleted what it asks for."""
                if deleting(asked) and not killed.is_set() and next(deletes) > _DELETES_BEFORE_KILL:
                    reached.set()
                    killed.wait(_TIMEOUT_SECONDS)

            proxy.answered.append(hold)
        lake = stack.enter_context(Lake(tmp_path / "lake", location, SandboxOptions(grace_period_seconds=0)))
        repository = lake.repository()
        live = repository.put_stray("data/live/x")
        keys = [repository.put_stray(f"data/s{number % 4}/{number:04}", b"123") for number in range(OBJECTS)]
        referenced = keys[::50]
        collector = Collector(spark, repository)
        mark = collector.mark_objects(*keys)
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
            while not (reached.is_set() or (kind == "local" and outcomes(repository, mark) >= _OUTCOMES_BEFORE_KILL)):
                assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
                assert time.monotonic() < deadline
                time.sleep(0.002)
        finally:
            kill_session(process)
            killed.set()

        left = repository.objects() & set(keys)
        gone = set(keys) - left
        recorded = recorded_outcomes(repository, mark)
        assert len(referenced) < len(left) < OBJECTS, "killed in the middle"
        assert not gone & set(referenced)
        # Nothing is gone that the ledger does not know of, and what it calls deleted is gone.
        assert gone <= recorded["intent"]
        assert recorded["deleted"]
        assert recorded["deleted"] <= gone
        if kind != "local":
            assert recorded["deleted"] < gone, "some deletes have no outcome"
        # The metrics say so, without Spark.
        so_far = outcomes_so_far(repository.store, mark.mark_id, None, most_files=10_000)
        assert so_far is not None
        assert 0 < so_far["deleted"]["objects"] <= len(gone)
        assert len(gone) <= so_far["deleted"]["objects"] + so_far["intent"]["objects"]
        assert so_far["deleted"]["size_bytes"] == 3 * so_far["deleted"]["objects"]
        assert outcomes_so_far(repository.store, mark.mark_id, None, most_files=5) is None, "too many for each time"

        # A look takes what is gone for referenced where it cannot tell the content: that was deleted all the same.
        result = collector.sweep(mark, live=[*referenced, *sorted(gone)[::3]])
        expected = dict.fromkeys(keys, "deleted") | dict.fromkeys(referenced, "resurrected")
        assert collector.swept == expected
        assert counts(result) == {"deleted": OBJECTS - len(referenced), "resurrected": len(referenced)}
        assert result.outcomes["deleted"].size_bytes == 3 * (OBJECTS - len(referenced))
        assert repository.objects() == {live, *referenced}


def deleting(asked: StoreRequest) -> bool:
    """Whether a request deletes objects, alone or in a batch."""
    return asked.operation[0] == "DELETE" or b"DELETE " in asked.body


def outcomes(repository: LakeRepository, mark: Mark) -> int:
    """Return how many chunks have an outcome."""
    return sum(key.endswith("-outcome.parquet") for key in ledger(repository, mark))


def ledger(repository: LakeRepository, mark: Mark) -> list[str]:
    return list(keys_below(repository.store, MarkPaths.of(mark.mark_id).ledger))


def recorded_outcomes(repository: LakeRepository, mark: Mark) -> dict[str, set[str]]:
    """Return the addresses of each outcome in the ledger."""
    recorded: dict[str, set[str]] = defaultdict(set)
    for _, content in repository.store.read_many(ledger(repository, mark)):
        for row in pq.read_table(io.BytesIO(content)).to_pylist():
            recorded[row["outcome"]].add(row["address"])
    return recorded
