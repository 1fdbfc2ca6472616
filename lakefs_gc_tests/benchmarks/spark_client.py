"""lakefs-gc and lakeFS's own Spark client in turns, on repositories that this benchmark writes to a lakeFS server.

Needs a lakeFS server for tests with an S3 store, and the client's jar. Both collectors run as processes, and each time
is from the start of the process to its end. The tools take turns: every pair starts with the other one. A figure is the
median of all pairs, and a ratio is the median of the pairs' ratios. The benchmark ends with an error if the two marks
of a pair are not the same set, or do not have exactly the garbage that was written, or if a sweep leaves an object.

Ours sweeps first, then the objects are put back, and the client deletes the same ones. Our sweep includes its second
look; the client takes none. The repositories stay on the server, and a later run with the same sizes uses them again.
"""

from __future__ import annotations

import logging
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lakefs_gc.config import ServerCredentials, load_server_credentials
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.benchmarks.compared_collectors import (
    Collector,
    CollectorFailedError,
    Ours,
    Run,
    SparkClient,
    marked_addresses,
)
from lakefs_gc_tests.benchmarks.harness import Benchmark, Case, Figure, Options
from lakefs_gc_tests.benchmarks.written_repository import WrittenShape, write_repository

log = logging.getLogger(__name__)

_SMALL = WrittenShape(objects=197, branches=3, commits=30, staged=20, garbage=20)
_LARGE = WrittenShape(objects=103_000, branches=1_000, commits=2_000, staged=25_000, garbage=13_000)
_SMALL_PARTITIONS, _LARGE_PARTITIONS = 4, 8
_SETTLE_SECONDS = 3
"""Both collectors ignore objects of the last second."""
_PUTS_AT_ONCE = 32


@dataclass
class Written:
    """A repository on the server: what must be found in it, and where its objects are."""

    name: str
    garbage: int
    store: ObjectStore


def _case(name: str, runs: list[Run], objects: int, baseline: list[Run] | None = None) -> Case:
    """Return the row of runs, one for each pair. ``baseline`` are the client's runs of the same pairs."""
    seconds = [run.wall_seconds for run in runs]
    figures: dict[str, Figure] = {
        "wall_s": round(statistics.median(seconds), 2),
        "cpu_s": round(statistics.median(run.cpu_seconds for run in runs), 1),
        "objects": objects,
        "each_s": ", ".join(f"{each:.1f}" for each in seconds),
    }
    if baseline is None:
        return Case(name, figures, baseline=True)
    return Case(name, figures, ratio=median_ratio(baseline, runs))


def median_ratio(baseline: list[Run], runs: list[Run]) -> float:
    """Return the median of how many times as fast each run was as the client's run of the same pair."""
    pairs = zip(baseline, runs, strict=True)
    return statistics.median(theirs.wall_seconds / own.wall_seconds for theirs, own in pairs)


def in_turns(
    written: Written, client: Collector, new_ours: Callable[[], Collector], *, pairs: int, sweep: bool, label: str
) -> Iterator[Case]:
    """Mark, mark again with ours, and sweep, ``pairs`` times. ``new_ours`` returns a collector without range cache."""
    client_marks, our_marks, our_marks_again = list[Run](), list[Run](), list[Run]()
    client_sweeps, our_sweeps = list[Run](), list[Run]()
    for pair in range(pairs):
        ours = new_ours()
        collectors = (client, ours) if pair % 2 == 0 else (ours, client)
        marks = {collector: collector.mark(written.name, written.store) for collector in collectors}
        again = ours.mark(written.name, written.store)
        garbage = _same_marks(written, [marks[client], marks[ours], again])
        _log(label, pair, "mark", marks[client], marks[ours])
        _log(label, pair, "mark again", marks[client], again)
        client_marks.append(marks[client])
        our_marks.append(marks[ours])
        our_marks_again.append(again)
        if sweep:
            contents = dict(written.store.read_many(garbage))
            # Ours first: it keeps objects that were written after its mark, such as those that were put back.
            our_sweeps.append(_sweep(written, ours, again.mark_id, contents))
            client_sweeps.append(_sweep(written, client, marks[client].mark_id, contents))
            _log(label, pair, "sweep", client_sweeps[-1], our_sweeps[-1])
    again_name = f"{label}: ours, mark again, ranges in the cache"
    yield _case(f"{label}: lakeFS's client, mark", client_marks, written.garbage)
    yield _case(f"{label}: ours, mark", our_marks, written.garbage, client_marks)
    yield _case(again_name, our_marks_again, written.garbage, client_marks)
    if sweep:
        yield _case(f"{label}: lakeFS's client, sweep", client_sweeps, written.garbage)
        yield _case(f"{label}: ours, sweep", our_sweeps, written.garbage, client_sweeps)


def _log(label: str, pair: int, work: str, by_client: Run, by_us: Run) -> None:
    seconds = by_client.wall_seconds, by_us.wall_seconds
    log.info("%s, pair %d, %s: lakeFS's client %.1f s, ours %.1f s", label, pair + 1, work, *seconds)


def _same_marks(written: Written, marks: list[Run]) -> set[str]:
    """Return the addresses. Raise ``CollectorFailedError`` unless all marks have the same, as many as were written."""
    first, *others = (marked_addresses(written.store, mark.mark_id) for mark in marks)
    for mark, other in zip(marks[1:], others, strict=True):
        if different := sorted(first ^ other):
            raise CollectorFailedError(
                f"{written.name}: marks {marks[0].mark_id} and {mark.mark_id} differ in {len(different)} objects: "
                f"{', '.join(different[:3])}"
            )
    if len(first) != written.garbage:
        raise CollectorFailedError(
            f"{written.name}: {len(first)} objects were marked instead of {written.garbage}. If an earlier benchmark "
            "was ended in the middle of a sweep, write a new repository: --set prefix=NAME"
        )
    return first


def _sweep(written: Written, collector: Collector, mark_id: str, contents: dict[str, bytes]) -> Run:
    """Sweep, check that the objects are deleted, and put them back."""
    try:
        run = collector.sweep(written.name, mark_id)
        if left := written.store.stat_many(list(contents)):
            raise CollectorFailedError(f"{written.name}: a sweep left {len(left)} objects: {sorted(left)[:3]}")
    finally:
        put = map_unordered(lambda key: written.store.put(key, contents[key]), contents, _PUTS_AT_ONCE)
        with closing(put):
            for _ in put:
                pass
    time.sleep(_SETTLE_SECONDS)
    return run


def measure(options: Options) -> Iterator[Case]:
    server, sizes = _server(options), options.text("repositories", "small,large").split(",")
    if unknown := set(sizes) - {"small", "large"}:
        raise ConfigurationError(f"Unknown repositories: {unknown}", remedy="Pass small, large, or both")
    with tempfile.TemporaryDirectory(prefix="lakefs-gc-compared-") as name:
        folder = Path(name)
        clients = {
            size: _client(options, folder, server, partitions)
            for size, partitions in (("small", _SMALL_PARTITIONS), ("large", _LARGE_PARTITIONS))
        }
        shapes = {"small": _SMALL, "large": _large(options)}
        prefix = options.text("prefix", "lakefs-gc-compared")
        # The large repository shares the server with the small one, whose mark looks through it, too.
        written = {size: _write(options, server, shapes[size], prefix) for size in reversed(sizes)}
        if len(sizes) == 1:
            _write(options, server, _SMALL, f"{prefix}-neighbour")
        time.sleep(_SETTLE_SECONDS)
        if options.count("warm_up", 0):
            Ours(folder / "warm-up", folder / "cache", server).warm_up()
        run = partial(in_turns, pairs=options.count("pairs", 3), sweep=bool(options.count("sweep", 1)))
        new_ours = partial(_ours, folder, server)
        first = sizes[0]
        for _ in range(options.count("discarded", 1)):  # the first runs read jars and libraries from disk
            list(in_turns(written[first], clients[first], new_ours, pairs=1, sweep=False, label=first))
        for size in sizes:
            yield from run(written[size], clients[size], new_ours, label=size)


def _ours(folder: Path, server: ServerCredentials) -> Ours:
    work = folder / "ours"
    shutil.rmtree(work, ignore_errors=True)
    return Ours(work, folder / "cache", server)


def _client(options: Options, folder: Path, server: ServerCredentials, partitions: int) -> SparkClient:
    for name, option in (("client_jar", "--client-jar FILE"), ("spark_home", "--spark-home FOLDER")):
        if not options.text(name):
            raise ConfigurationError(f"This benchmark needs {option.split()[0]}", remedy=f"Pass {option}")
    return SparkClient(
        folder / "client",
        server,
        jar=Path(options.text("client_jar")),
        spark_home=Path(options.text("spark_home")),
        jars=_jars(options.text("jars")),
        cores=options.count("cores", 2),
        partitions=options.count("partitions", partitions),
        memory=options.text("memory", "4g"),
    )


def _jars(folder: str) -> list[Path]:
    if not folder:
        return []
    jars = sorted(Path(folder).glob("*.jar"))
    if not jars:
        raise ConfigurationError(f"{folder} has no jar", remedy="Pass the folder of the jars that Spark needs for S3")
    return jars


def _server(options: Options) -> ServerCredentials:
    """Return the credentials of the environment, for the server of ``--server`` if it is given."""
    given = {"LAKECTL_SERVER_ENDPOINT_URL": url} if (url := options.text("server")) else {}
    return load_server_credentials({**os.environ, **given})


def _large(options: Options) -> WrittenShape:
    return WrittenShape(
        objects=options.count("objects", _LARGE.objects),
        branches=options.count("branches", _LARGE.branches),
        commits=options.count("commits", _LARGE.commits),
        staged=options.count("staged", _LARGE.staged),
        garbage=options.count("garbage", _LARGE.garbage),
    )


def _write(options: Options, server: ServerCredentials, shape: WrittenShape, prefix: str) -> Written:
    root = options.text("namespace").rstrip("/")
    if not root.startswith("s3://"):
        raise ConfigurationError(
            "This benchmark needs a folder of an S3 store, in which it creates the namespaces of its repositories",
            remedy="Pass --set namespace=s3://BUCKET/FOLDER",
        )
    name = write_repository(server, shape, prefix, root, note=log.info)
    return Written(name, shape.garbage, open_store(StoreLocation(f"{root}/{name}")))


BENCHMARK = Benchmark(
    "lakefs-gc and lakeFS's own Spark client in turns, on a lakeFS server",
    compare="wall_s",
    higher_is_better=False,
    measure=measure,
    settings={
        "server": "lakeFS server, for tests only (--server); default: LAKECTL_SERVER_ENDPOINT_URL",
        "client_jar": "assembly jar of lakeFS's Spark client (--client-jar)",
        "spark_home": "folder of the Spark that runs the client (--spark-home)",
        "jars": "folder of the jars that this Spark needs for S3",
        "namespace": "s3://BUCKET/FOLDER for the namespaces of the repositories",
        "prefix": "of the names of the repositories",
        "repositories": "small,large",
        "objects": "of the large repository, with those that are staged or garbage",
        "branches": "of the large repository",
        "commits": "of the large repository",
        "staged": "objects of the large repository that are not committed",
        "garbage": "objects of the large repository that both must mark",
        "pairs": "how often each collector runs",
        "discarded": "pairs before that, which do not count",
        "sweep": "0: mark only",
        "warm_up": "1: run lakefs-gc warm-up first",
        "cores": "of the client's Spark",
        "memory": "of the client's Spark",
        "partitions": "of the client's Spark; default: 4 for the small repository, 8 for the large one",
    },
)
