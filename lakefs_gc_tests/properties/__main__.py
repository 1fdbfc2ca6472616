"""Many random histories: ``python -m lakefs_gc_tests.properties --histories N --seed S [--jobs J] [--log FILE]``.

Runs the seeds S, S+1, ... Each seed determines its history and its move. ``--store azure`` or ``gcs`` runs them in an
emulator instead of local files. Ends with 1 and the command that repeats the seed if a history violates a property.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lakefs_gc.engine.spark.session import start_spark
from lakefs_gc_tests.properties.moves import MOVES
from lakefs_gc_tests.properties.seeded import run_history
from lakefs_gc_tests.properties.stores import KINDS, LOCAL, running

_PER_PROCESS = 200
"""The number of seeds after which a new process with a new JVM begins, so that their memory does not grow for hours."""
SPARK_CONFIG = {
    "spark.master": "local[1]",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m",
    "spark.python.daemon.module": "lakefs_gc_tests.support.impatient_daemon",
}
"""Settings for a few rows: one task at a time, and no optimization that takes longer than the run."""
_MODULE = "lakefs_gc_tests.properties"


def main() -> int:
    """Run the histories. Return exit code 1 for a violation."""
    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}", description=__doc__)
    parser.add_argument("--histories", type=int, default=10, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the first")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once, each with a Spark of its own")
    parser.add_argument("--log", type=Path, default=Path("histories.jsonl"), help="gets a JSON line for each history")
    parser.add_argument("--move", choices=sorted(MOVES), default="", help="this one only")
    parser.add_argument("--store", choices=KINDS, default=LOCAL, help="where the objects are")
    parser.add_argument("--step", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    log = options.log.resolve()
    if options.step:
        seeds = range(options.seed, options.seed + options.histories * options.step, options.step)
        return _run(seeds, log, options.move, options.store)
    before = log.stat().st_size if log.exists() else 0
    chosen = [*(["--move", options.move] if options.move else []), "--store", options.store]
    ended = _run_in_processes(options.histories, options.seed, options.jobs, log, chosen)
    lines = log.read_bytes()[before:].decode().splitlines() if log.exists() else []
    _summarize([json.loads(line) for line in lines], options.histories, chosen)
    return max(ended, int(len(lines) != options.histories))


def _run_in_processes(histories: int, first: int, jobs: int, log: Path, chosen: Sequence[str]) -> int:
    """Run the seeds in processes. Each job has every ``jobs``-th seed, with ``_PER_PROCESS`` seeds in one process."""
    jobs = min(jobs, histories)
    left = {job: range(first + job, first + histories, jobs) for job in range(jobs)}
    running: dict[int, subprocess.Popen[bytes]] = {}
    worst = 0
    while left or running:
        for job in [job for job in left if job not in running]:
            seeds, left[job] = left[job][:_PER_PROCESS], left[job][_PER_PROCESS:]
            if not left[job]:
                del left[job]
            command = [sys.executable, "-W", "ignore", "-m", _MODULE, "--step", str(jobs), "--log", str(log)]
            command += ["--seed", str(seeds[0]), "--histories", str(len(seeds)), *chosen]
            running[job] = subprocess.Popen(command)
        for job, process in list(running.items()):
            try:
                worst = max(worst, abs(process.wait(timeout=0.2)))
            except subprocess.TimeoutExpired:
                continue
            del running[job]
    return min(worst, 1)


def _run(seeds: range, log: Path, move: str, kind: str) -> int:
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # Spark's workers import this package from its folder. The configuration of a checkout is not used.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    for name in ("DAGSTER_HOME", "LAKEFS_GC_CONFIG"):
        os.environ.pop(name, None)
    violations = 0
    with tempfile.TemporaryDirectory(prefix="lakefs-gc-histories-") as folder, running(kind, Path(folder)) as store:
        os.chdir(folder)
        spark = start_spark(SPARK_CONFIG | {"spark.local.dir": folder})
        java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        for seed in seeds:
            outcome = run_history(spark, seed, MOVES, move, store)
            if outcome.violation and java.poll() is not None:
                sys.stderr.write(f"Java has ended, so no history from seed {seed} on says anything\n")
                return 1
            with log.open("ab") as file:  # one write, because jobs share the file
                file.write(json.dumps(outcome.to_json()).encode() + b"\n")
            if outcome.violation:
                violations += 1
                command = _command(seed, [*(["--move", move] if move else []), "--store", kind])
                sys.stdout.write(f"VIOLATION, {outcome.moves}: {outcome.violation}\n  repeat: {command}\n")
                sys.stdout.flush()
        spark.stop()
    return int(violations > 0)


def _command(seed: int, chosen: Sequence[str]) -> str:
    return shlex.join(["python", "-m", _MODULE, "--histories", "1", "--seed", str(seed), *chosen])


def _summarize(outcomes: list[dict[str, Any]], requested: int, chosen: Sequence[str]) -> None:
    moves = Counter(name for outcome in outcomes for name in outcome["moves"])
    errors = Counter[str]()
    for outcome in outcomes:
        errors.update(outcome["errors"])
    lines = [
        f"{len(outcomes)} of {requested} histories: {dict(Counter(outcome['outcome'] for outcome in outcomes))}",
        f"marks {sum(o['marked'] for o in outcomes)}, deleted objects {sum(o['deleted'] for o in outcomes)}, "
        f"seconds {sum(o['seconds'] for o in outcomes):.0f}",
        f"errors: {dict(errors.most_common())}",
        *(f"{count:6} {name}" for name, count in sorted(moves.items())),
        *(f"violation: {_command(o['seed'], chosen)}" for o in outcomes if o["violation"]),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
