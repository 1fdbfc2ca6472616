"""A mark and its sweep on a cluster that loses a machine: the totals are correct, and no live object is lost.

A machine dies while it sends a request to the store: its executor, its Python workers and their daemon. By default it
dies in the sweep. With ``LAKEFS_GC_TESTS_CLUSTER=all`` it dies in each stage that runs on executors.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc.engine.spark.scale import SMALL
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.faulty_s3 import Answer, Request, error
from lakefs_gc_tests.support.faulty_store import LevelledS3, credentials
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.processes import CommandLine
from lakefs_gc_tests.support.standalone_cluster import Machine, StandaloneCluster

_ALL = os.environ.get("LAKEFS_GC_TESTS_CLUSTER") == "all"
_only_if_all = pytest.mark.skipif(not _ALL, reason="LAKEFS_GC_TESTS_CLUSTER is not all")
_MACHINES = ("machine-1", "machine-2")
_GARBAGE = 60
_BRANCHES = 8

pytestmark = [
    # What happens when workers die is shown without a cluster, too: faults/test_killed, engine/sweep/test_sweep_killed.
    pytest.mark.of_ci,
    pytest.mark.long(280),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the processes in /proc"),
]


def lists(request: Request) -> bool:
    return request.operation == "ListObjectsV2" and "/data/" in request.query.get("prefix", "")


def reads_range(request: Request) -> bool:
    return request.operation == "GetObject" and bool(re.search("/_lakefs/[0-9a-f]{64}$", request.keys[0]))


def deletes(request: Request) -> bool:
    return request.operation == "DeleteObjects" and "/data/" in request.keys[0]


@dataclass
class Killer:
    """Kills the machine that sends the ``number``-th request of a kind."""

    server: LevelledS3
    machines: dict[str, Machine]
    wanted: Callable[[Request], bool]
    number: int
    seen: int = 0
    killed: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Request) -> Answer | None:
        sender = re.search(r"Credential=([^/]+)/", request.headers.get("authorization", ""))
        if sender is None or sender[1] not in self.machines or not self.wanted(request):
            return None
        with self.lock:
            self.seen += 1
            if self.killed or self.seen < self.number:
                return None
            self.killed.append(sender[1])
        self.server.right_answer(request)  # the store executes the request, but the client no longer exists
        self.machines[sender[1]].kill()
        return error(500, "InternalError")


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        pytest.param(deletes, 10, id="sweeping"),
        pytest.param(lists, 3, id="listing", marks=_only_if_all),
        pytest.param(reads_range, 4, id="reading", marks=_only_if_all),
    ],
)
def test_a_run_survives_the_loss_of_a_machine(
    tmp_path: Path, levelled_s3: LevelledS3, packed: dict[str, Any], wanted: Callable[[Request], bool], number: int
) -> None:
    server = levelled_s3  # its requests identify the machine
    environments = {name: credentials(server, name) for name in _MACHINES}
    with (
        Lake(tmp_path / "lake", StoreLocation("s3://bucket/lakes/")) as lake,
        StandaloneCluster(tmp_path / "cluster", environments) as cluster,
    ):
        repository = lake.repository()
        live, garbage = fill(repository)
        server.page_size = 5
        killer = Killer(server, cluster.workers, wanted, number)
        server.faults.append(killer)
        line = CommandLine(lake, tmp_path / "driver", packed["spark"] | settings(cluster), tmp_path / "shared" / "work")

        ended = line.json("run", "lake", "--yes")

        assert killer.killed, "a machine was lost"
        assert [name for name in _MACHINES if not cluster.workers[name].is_alive] == killer.killed
        counted = ("candidates", "deleted", "already_gone", "resurrected", "failed")
        assert {name: ended[name] for name in counted} == {
            "candidates": len(garbage),
            "deleted": len(garbage),
            "already_gone": 0,
            "resurrected": 0,
            "failed": 0,
        }
        assert repository.objects() == live
        for name in _MACHINES:  # both machines have worked, with the archive
            assert list((tmp_path / "cluster" / name).glob("work/app-*/*/lakefs-gc/python/bin/python3")), name


def fill(repository: LakeRepository) -> tuple[set[str], set[str]]:
    """Create live objects in many ranges, and garbage in several slices."""
    for branch in range(_BRANCHES):
        repository.branch(f"branch-{branch}")
        repository.put(f"file-{branch}", branch=f"branch-{branch}")
        repository.commit(branch=f"branch-{branch}", age_days=1)
    repository.put("staged")
    repository.keep_days(10)
    live = repository.objects()
    garbage = {repository.put_stray(f"data/s{n % 6}/{n:03}", b"garbage") for n in range(_GARBAGE)}
    return live, garbage


def settings(cluster: StandaloneCluster) -> dict[str, str]:
    return {
        "spark.master": cluster.url,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.sql.shuffle.partitions": "4",
        "spark.default.parallelism": "2",
        SMALL: "false",  # a small run would list, read and delete in the driver
        # Compiling the plans takes longer than processing so few rows.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
