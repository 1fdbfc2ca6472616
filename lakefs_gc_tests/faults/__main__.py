"""Every call of a run fails in every way: ``python -m lakefs_gc_tests.faults --store azure|gcs [--log FILE]``.

Appends a JSON line for each case, and skips the cases that the file has. Ends with 1 if a live object is lost, a run
continues with a wrong result, or an error is not one of lakefs-gc's.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lakefs_gc.engine.spark.scale import SMALL
from lakefs_gc.engine.spark.session import start_spark
from lakefs_gc.sandbox.azurite import Azurite
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.fake_gcs import FakeGCS
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc_tests.faults.replay import FAULTS, NOT_REACHED, WRONG, Case, Replay
from lakefs_gc_tests.properties.__main__ import SPARK_CONFIG
from lakefs_gc_tests.support import impatient_daemon
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.live_and_garbage import Scene
from lakefs_gc_tests.support.store_proxy import StoreProxy, before_azurite, before_fake_gcs

_CONTAINER = "faults"
_CASES_PER_PROOF = 150
"""After so many cases a whole run proves that nothing that they left is in its way."""
_GARBAGE = 200


def main() -> int:
    """Try the cases. Return exit code 1 for a wrong end."""
    parser = argparse.ArgumentParser(prog="python -m lakefs_gc_tests.faults", description=__doc__)
    parser.add_argument("--store", choices=FAULTS, required=True, help="whose emulator")
    parser.add_argument("--log", type=Path, default=Path("faults.jsonl"), help="gets a JSON line for each case")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after so long")
    parser.add_argument("--stage", default="", help="only the calls of this stage")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the cases")
    options = parser.parse_args()
    log, until = options.log.resolve(), time.monotonic() + options.seconds
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    # Spark's workers import this package from its folder. The configuration of a checkout is not used.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    for name in ("DAGSTER_HOME", "LAKEFS_GC_CONFIG"):
        os.environ.pop(name, None)
    RetryPolicy.pause_seconds = impatient_daemon.pause_seconds  # type: ignore[method-assign]
    with (
        tempfile.TemporaryDirectory(prefix="lakefs-gc-faults-") as name,
        _running(options.store, Path(name)) as (
            proxy,
            location,
        ),
    ):
        folder = Path(name)
        os.chdir(folder)
        spark = start_spark(SPARK_CONFIG | {SMALL: "false", "spark.local.dir": name})
        with Lake(folder / "lake", location, SandboxOptions(grace_period_seconds=1)) as lake:
            scene = Scene.of(lake.repository(), min_age_seconds=2)
            replay = Replay(options.store, spark, scene, proxy, folder / "copies", _GARBAGE)
            _try_all(replay, log, until, options.stage, options.seed)
        spark.stop()
    return _summarize(options.store, log)


def _try_all(replay: Replay, log: Path, until: float, stage: str, seed: int) -> None:
    sys.stdout.write(f"{ {name: len(requests) for name, requests in replay.requests.items()} }\n")
    done = {Case(row["stage"], row["call"], row["fault"]) for row in _rows(log, replay.kind) if row.get("stage")}
    left = [case for case in replay.cases() if case not in done and case.stage.startswith(stage)]
    random.Random(seed).shuffle(left)  # so that an unfinished run has tried some of everything
    since = 0
    for case in left:
        if time.monotonic() > until:
            break
        _append(log, {"store": replay.kind, **replay.try_case(case).to_json()})
        since += 1
        if since == _CASES_PER_PROOF or replay.garbage_left < 2:
            _prove(replay, log)
            since = 0
    _prove(replay, log)


def _prove(replay: Replay, log: Path) -> None:
    began = time.monotonic()
    replay.prove_next_run()
    _append(log, {"store": replay.kind, "next run": "right", "seconds": round(time.monotonic() - began, 1)})


def _append(log: Path, row: dict[str, Any]) -> None:
    with log.open("a") as file:
        file.write(json.dumps(row) + "\n")


def _rows(log: Path, kind: str) -> Iterator[dict[str, Any]]:
    if log.exists():
        yield from (row for row in map(json.loads, log.read_text().splitlines()) if row["store"] == kind)


def _summarize(kind: str, log: Path) -> int:
    rows = [row for row in _rows(log, kind) if row.get("stage")]
    for fault in FAULTS[kind]:
        results = Counter(row["result"] for row in rows if row["fault"] == fault)
        sys.stdout.write(f"{kind} {fault}: {dict(results)}\n")
    wrong = [row for row in rows if row["result"] in (WRONG, NOT_REACHED)]
    for row in wrong:
        sys.stdout.write(f"{json.dumps(row)}\n")
    return int(any(row["result"] == WRONG for row in wrong))


@contextmanager
def _running(kind: str, folder: Path) -> Iterator[tuple[StoreProxy, StoreLocation]]:
    """Run the emulator of a kind and a proxy before it, with its variables in the environment."""
    if kind == "azure":
        with Azurite(folder / "azurite") as azurite:
            os.environ.update(azurite.environment)
            azurite.create_container(_CONTAINER)
            with before_azurite(azurite) as (proxy, environment):
                os.environ.update(environment)
                yield proxy, StoreLocation(azurite.url(_CONTAINER))
    else:
        with FakeGCS(folder / "fake-gcs") as fake_gcs:
            fake_gcs.create_bucket(_CONTAINER)
            with before_fake_gcs(fake_gcs) as (proxy, environment):
                os.environ.update(environment)
                yield proxy, StoreLocation(f"gs://{_CONTAINER}")


if __name__ == "__main__":
    sys.exit(main())
