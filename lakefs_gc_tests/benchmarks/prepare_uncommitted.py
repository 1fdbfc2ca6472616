"""Peak memory and time of the sandbox's preparation of staged entries. Memory must not grow with their number.

Each size runs in a separate process. Entries are written directly to one branch's staging area. Figures: prepared
entries, pages, peak resident memory in MiB before and after the preparation, duration in seconds.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from lakefs_gc.formats.entry import AddressType, Entry
from lakefs_gc.sandbox.context import Sandbox
from lakefs_gc.sandbox.data import garbage
from lakefs_gc.sandbox.state.records import Change, record_of
from lakefs_gc.sandbox.versions import branches, commits
from lakefs_gc.sandbox.versions.refs import Repository
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.benchmarks.harness import Benchmark, Case, Figure, Options, in_fresh_process

_SIZES = (10_000, 250_000, 1_000_000)
_BATCH = 10_000
_REPOSITORY = "staged"


def measure_one(entries: int) -> dict[str, Figure]:
    """Prepare ``entries`` staged entries in this process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sandbox = Sandbox(folder / "state", StoreLocation((folder / "objects").as_uri()))
        repository = _repository(sandbox)
        _stage(sandbox, entries)
        before = _peak_mib()
        began = time.monotonic()
        pages = 1
        page = garbage.prepare_uncommitted(sandbox, repository)
        while page.continuation_token:
            page = garbage.prepare_uncommitted(sandbox, repository, garbage.decode_position(page.continuation_token))
            pages += 1
        seconds = time.monotonic() - began
        after = _peak_mib()
        files = (folder / "objects" / _REPOSITORY / "_lakefs").rglob("uncommitted/*/uncommitted/*")
        prepared = sum(pq.read_metadata(file).num_rows for file in files)
        sandbox.close()
    return {
        "prepared": prepared,
        "pages": pages,
        "peak_mib_before": before,
        "peak_mib": after,
        "seconds": round(seconds, 1),
    }


def _repository(sandbox: Sandbox) -> Repository:
    repository = Repository(_REPOSITORY, f"local://{_REPOSITORY}", "main", sandbox.now_seconds(), read_only=False)
    commit = commits.first_commit(sandbox)
    sandbox.refs.add_repository(repository)
    sandbox.refs.add_commit(_REPOSITORY, commit)
    sandbox.refs.put_branch(_REPOSITORY, branches.new_branch("main", commit.id))
    return repository


def _stage(sandbox: Sandbox, entries: int) -> None:
    token = sandbox.refs.branch(_REPOSITORY, "main").staging_token
    for begin in range(0, entries, _BATCH):
        changes = []
        for number in range(begin, min(entries, begin + _BATCH)):
            path = f"tables/events/part-{number:09}.parquet"
            address = sandbox.addresses.new_address()
            entry = Entry(
                address=address,
                address_type=AddressType.RELATIVE,
                size_bytes=number,
                last_modified_ns=number,
                e_tag=f"{number:032x}",
            )
            record = record_of(path, entry)
            changes.append(Change(record.key, record))
        sandbox.staging.put(token, changes)


def _peak_mib() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def measure(options: Options) -> Iterator[Case]:
    for number, entries in enumerate(options.counts("entries", _SIZES)):
        yield Case(f"{entries:,} entries", in_fresh_process(measure_one, entries), baseline=number == 0)


BENCHMARK = Benchmark(
    "Memory of the sandbox while it prepares staged entries",
    compare="peak_mib",
    higher_is_better=False,
    measure=measure,
    settings={"entries": "sizes, separated by commas"},
)
