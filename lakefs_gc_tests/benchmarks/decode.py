"""The number of entries of a range that one core decodes per second, including checks.

Without ``--set files=FOLDER`` it decodes a range that it writes itself, with 50,000 entries like a full range of
lakeFS. It has one case for each set of columns: the best of many rounds after a warm-up.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from lakefs_gc.formats.entry import AddressType, Entry, entry_identity, to_ns
from lakefs_gc.formats.ids import new_reversed_id, new_xid
from lakefs_gc.formats.ranges import TableKind, read_range, table_kind
from lakefs_gc.formats.sstable.reader import read_properties
from lakefs_gc.formats.sstable.table_writer import write_range
from lakefs_gc_tests.benchmarks.harness import Benchmark, Case, Options

ENTRIES = 50_000
SECONDS_PER_MEASUREMENT = 3.0
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def full_range() -> bytes:
    """Return a range as a server writes it after this number of uploads."""
    slice_id = new_reversed_id(NOW)
    entries = []
    for i in range(ENTRIES):
        entry = Entry(
            address=f"data/{slice_id}/{new_xid(NOW)}",
            address_type=AddressType.RELATIVE,
            size_bytes=1_000_000 + i,
            last_modified_ns=to_ns(NOW) + i * 1_000_000_000,
            e_tag=hashlib.md5(b"%d" % i, usedforsecurity=False).hexdigest(),
            content_type="application/octet-stream",
        )
        entries.append((b"tables/events/dt=2026-01-01/part-%06d.parquet" % i, entry_identity(entry), entry))
    return write_range(entries).data


def ranges_in(places: Sequence[str]) -> list[bytes]:
    """Return the content of each range among these files and folders."""
    files = [file for place in places for file in ([Path(place)] if Path(place).is_file() else Path(place).iterdir())]
    contents = [file.read_bytes() for file in files if file.is_file() and not file.name.endswith((".json", "dummy"))]
    return [data for data in contents if table_kind(read_properties(data, "")) == TableKind.RANGE]


def best_rate(ranges: Sequence[bytes], *, keys: bool, details: bool) -> float:
    """Return the entries per second of the fastest round over all ranges."""
    fastest = float("inf")
    entries = 0
    until = time.perf_counter() + SECONDS_PER_MEASUREMENT
    while time.perf_counter() < until:
        begin = time.perf_counter()
        entries = sum(read_range(data, "", keys=keys, details=details).num_rows for data in ranges)
        fastest = min(fastest, time.perf_counter() - begin)
    return entries / fastest


def measure(options: Options) -> Iterator[Case]:
    places = [place for place in options.text("files").split(":") if place]
    ranges = ranges_in(places) if places else [full_range()]
    size_mib = sum(map(len, ranges)) / 1024**2
    for columns, keys, details in (("address", False, False), ("key", True, False), ("key, e_tag", True, True)):
        rate = best_rate(ranges, keys=keys, details=details)
        figures = {"files": len(ranges), "size_mib": round(size_mib, 1), "entries_per_s": round(rate)}
        yield Case(columns, figures, baseline=columns == "address")


BENCHMARK = Benchmark(
    "Decoding ranges, one core, checksums on",
    compare="entries_per_s",
    measure=measure,
    settings={"files": "files or folders with ranges, separated by ':'"},
)
