"""The first questions to ``lakefs-gc explain`` after a mark of a large repository, as a person asks them.

The repository is that of ``end_to_end``: a simulated S3 store, and the embedded server in a process of its own. Each
question is a new process of the command line. ``wall_s`` is all of it, and ``requests`` are those to the store. The
last case has the first question again, without the workspace of a run, and so without its index of the ranges.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lakefs_gc.config import ServerCredentials
from lakefs_gc_tests.benchmarks.end_to_end import marked, shape_of
from lakefs_gc_tests.benchmarks.generated_repository import REPOSITORY, sandbox_process, write_repository
from lakefs_gc_tests.benchmarks.generator import Shape, addresses_of
from lakefs_gc_tests.benchmarks.harness import Benchmark, Case, Figure, Options, in_fresh_process

_MANY = 50


def explained(work: Path, credentials: ServerCredentials, addresses: list[str]) -> dict[str, Figure]:
    """Ask the command line about objects. The figures have their states, and what the process took."""
    config = work.parent / f"{work.name}.toml"
    config.write_text(f'work_url = "{work.as_uri()}"')
    environment = os.environ | {
        "LAKECTL_SERVER_ENDPOINT_URL": credentials.endpoint_url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": credentials.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": credentials.secret_access_key,
        "LAKEFS_GC_CONFIG": str(config),
    }
    command = [sys.executable, "-m", "lakefs_gc", "explain", REPOSITORY, *addresses, "--json"]
    began, cpu_before = time.perf_counter(), _cpu_seconds_of_children()
    answered = subprocess.run(command, env=environment, check=True, capture_output=True)
    wall_seconds, cpu_seconds = time.perf_counter() - began, _cpu_seconds_of_children() - cpu_before
    answers = json.loads(answered.stdout)["objects"]
    return {
        "objects": len(answers),
        "states": ", ".join(sorted({answer["state"] for answer in answers})),
        "wall_s": round(wall_seconds, 2),
        "client_cpu_s": round(cpu_seconds, 2),
    }


def _cpu_seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def questions(shape: Shape) -> dict[str, list[str]]:
    """Return what is asked: objects of the first and of the last commit, one that is marked, and many at once."""
    committed = shape.ranges * shape.per_range
    chosen = {
        "a marked object": [committed + shape.staged],
        "an object of the first commit": [0],
        "one of the last commit, again": [committed - 1],
        "many objects at once": list(range(0, committed, max(1, committed // _MANY)))[:_MANY],
    }
    return {name: addresses_of(shape, np.array(numbers)).to_pylist() for name, numbers in chosen.items()}


def measure(options: Options) -> Iterator[Case]:
    objects, commits = options.count("objects", 1_000_000), options.count("commits", 1_000)
    latency_ms, memory = options.number("latency_ms", 30), options.text("memory", "2g")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shape = shape_of(objects, commits)
        repository = write_repository(folder, shape, options.count("branches", 100))
        with (
            repository.store(latency_ms) as simulated,
            simulated.environment(),
            sandbox_process(repository.state) as (credentials, pid),
        ):
            figures = in_fresh_process(marked, folder / "work", credentials, pid, memory)
            yield Case("the mark", {"listed": figures["listed"], "wall_s": figures["wall_s"]})
            asked = questions(shape)
            first = next(iter(asked))
            cases = [(question, folder / "work", addresses) for question, addresses in asked.items()]
            for question, work, addresses in (*cases, (f"{first}, no run", folder / "none", asked[first])):
                before = sum(simulated.stats().requests.values())
                figures = explained(work, credentials, addresses)
                requests = sum(simulated.stats().requests.values()) - before
                yield Case(question, {**figures, "requests": requests}, baseline=question == first)


BENCHMARK = Benchmark(
    "The first questions to explain after a mark",
    compare="wall_s",
    higher_is_better=False,
    measure=measure,
    settings={
        "objects": "in the repository",
        "commits": "how many commits there are",
        "branches": "how many branches there are",
        "latency_ms": "of each answer of the store",
        "memory": "spark.driver.memory of the mark",
    },
)
