"""Generate a namespace of any size in the real format: ranges, metaranges, active commits, staged objects.

    python -m lakefs_gc_tests.benchmarks.generator FOLDER [--entries 1000000 --ranges 2400 --commits 100 ...]

The files are identical to those of a lakeFS server, including ids and checksums, and reproducible for the same
``Shape``. The objects themselves are not written. ``Namespace.objects`` returns their rows for a simulated store.

The repository has ``slots`` ranges at any time. Each commit replaces some of them by their next *version*, in which one
of ``turnover`` entries is a new object. So ranges share addresses, and commits share ranges, as in a real history.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakefs_gc.formats.commits_csv import write_active_commits
from lakefs_gc.formats.entry import AddressType, Entry, encode_entry, encode_value, entry_identity, identity_of_map
from lakefs_gc.formats.jit import compiled, inlined
from lakefs_gc.formats.sstable.blocks import Array, address_of
from lakefs_gc.formats.sstable.memory import store_8
from lakefs_gc.formats.sstable.snappy import copy_literal
from lakefs_gc.formats.sstable.table_writer import (
    BLOCK_SIZE_BYTES,
    BLOCK_SIZE_THRESHOLD_BYTES,
    DATA_RESTART_INTERVAL,
    SET_TRAILER,
    BlockBuilder,
    TableBuilder,
    WrittenTable,
    write_metarange,
)
from lakefs_gc.formats.uncommitted_parquet import UNCOMMITTED_FILE_SCHEMA, write_uncommitted
from lakefs_gc.storage.base import LISTING_SCHEMA

OBJECTS_PER_SLICE = 50_000
_EPOCH_S = 1_767_225_600  # 2026-01-01
_CONTENTS = 1 << 14
"""The number of distinct sizes and ETags. An identity is a SHA-256, so 16,384 of them are computed once and reused."""
_LEAST_SIZE_BYTES, _SIZE_STEP_BYTES = 10_000_000, 4099
"""All sizes have eight decimal digits, and four bytes as a varint."""
_ALPHABET = np.frombuffer(b"0123456789abcdefghijklmnopqrstuv", np.uint8)
_ADDRESS_BYTES = len("data/") + 20 + 1 + 20
_KEY = b"events/p00000000/part-00000.parquet"
_ROOM = 64  # data is copied in steps of 16 bytes
_FILES_PER_UNCOMMITTED_PAGE = 200_000
_RANGES_PER_TASK = 500


@dataclass(frozen=True)
class Shape:
    """The content of a namespace: ``entries`` in total, divided equally among ``ranges``.

    One commit has ``slots`` ranges. With ``turnover`` 1 every entry of a new version is a new object, with 10 every
    tenth. ``staged`` objects are in the uncommitted list, ``stale`` objects are unreferenced.
    """

    entries: int = 1_000_000
    ranges: int = 2_400
    slots: int = 240
    commits: int = 100
    turnover: int = 1
    staged: int = 0
    stale: int = 0
    seed: int = 1

    @property
    def per_range(self) -> int:
        return max(1, self.entries // self.ranges)

    @property
    def distinct(self) -> int:
        """Return the number of distinct committed addresses."""
        versions = -(-self.ranges // self.slots)
        of_version = [
            self.per_range if not v else len(range(v % self.turnover, self.per_range, self.turnover))
            for v in range(versions)
        ]
        return sum(of_version[number // self.slots] for number in range(self.ranges))


# -- numbers to names, compiled ----------------------------------------------------------------------------------


@inlined
def _mixed(number: int) -> np.uint64:
    """Return 64 pseudorandom bits (SplitMix64)."""
    value = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@inlined
def _write_xid(seconds: int, low: np.uint64, alphabet: Array, target: int) -> None:
    """Write the 20 characters of 32 bits of time and 64 other bits. The last character contains the last bit."""
    high = np.uint64(seconds)
    for i in range(20):
        shift = 91 - 5 * i  # of the 96 bits, 5 at a time from the top
        if shift >= 64:
            digit = high >> np.uint64(shift - 64)
        elif shift >= 0:
            digit = low >> np.uint64(shift)
            if shift > 59:
                digit |= high << np.uint64(64 - shift)
        else:
            digit = low << np.uint64(-shift)
        store_8(target + i, alphabet[digit & np.uint64(31)])


@compiled
def write_addresses(numbers: Array, seed: int, alphabet: Array, target: int, stride: int) -> None:
    """Write the address of each object, ``stride`` bytes apart. 50,000 consecutive numbers share a slice."""
    for row in range(numbers.size):
        number = numbers[row]
        at = target + row * stride
        for i in range(5):
            store_8(at + i, np.uint8((100, 97, 116, 97, 47)[i]))  # data/
        slice_number = number // 50_000
        _write_xid((0xEA000000 - slice_number * 60) & 0xFFFFFFFF, _mixed(seed + slice_number), alphabet, at + 5)
        store_8(at + 25, np.uint8(47))
        _write_xid(1_767_225_600 + number // 10_000, _mixed(seed ^ (number << 8)), alphabet, at + 26)


@inlined
def _write_digits(number: int, digits: int, target: int) -> None:
    for i in range(digits):
        store_8(target + digits - 1 - i, np.uint8(48 + number % 10))
        number //= 10


@compiled
def write_contents(numbers: Array, seed: int, contents: int, out: Array) -> None:
    """Write the number of the content of each object: which of the ``contents`` sizes and ETags it has."""
    for row in range(numbers.size):
        out[row] = np.int64(_mixed(numbers[row] + seed * 7) % np.uint64(contents))


@compiled
def fill_entries(
    numbers: Array, seed: int, alphabet: Array, values: Array, value_bytes: int, address_offset: int, time_offset: int,
    rows: Array,
) -> None:  # fmt: skip
    """Write the values of entries from templates of the same length, in which address and time are overwritten."""
    target = address_of(rows)
    source = address_of(values)
    for row in range(numbers.size):
        content = np.int64(_mixed(numbers[row] + seed * 7) % np.uint64(values.size // value_bytes - 4))
        copy_literal(source + int(content) * value_bytes, target + row * value_bytes, value_bytes)
        seconds = 1_767_225_600 + numbers[row] // 10_000
        for i in range(5):  # a varint of 31 bits
            more = np.uint8(0x80) if i < 4 else np.uint8(0)
            store_8(target + row * value_bytes + time_offset + i, np.uint8((seconds >> (7 * i)) & 0x7F) | more)
    write_addresses(numbers, seed, alphabet, target + address_offset, value_bytes)


@compiled
def fill_keys(slot: int, template: Array, rows: Array) -> None:
    """Write the logical paths of a slot in order."""
    target = address_of(rows)
    size = template.size - 64
    for row in range((rows.size - 64) // size):
        copy_literal(address_of(template), target + row * size, size)
        _write_digits(slot, 8, target + row * size + 8)
        _write_digits(row, 5, target + row * size + 22)


@inlined
def _write_varint(number: int, target: int) -> int:
    while number > 127:
        store_8(target, np.uint8(number & 127) | np.uint8(128))
        number >>= 7
        target += 1
    store_8(target, np.uint8(number))
    return target + 1


@compiled
def fill_block(
    keys: Array, key_bytes: int, values: Array, value_bytes: int, first: int, trailer: Array, block: Array,
    restart_points: Array,
) -> tuple[int, int]:  # fmt: skip
    """Write entries to a block from ``first`` on, until Pebble would close it. Return its size and the next entry.

    Every 16th entry is a restart point with a complete key.
    """
    start = address_of(block)
    target = start
    entries = (keys.size - 64) // key_bytes
    restarts = 0
    row = first
    while row < entries:
        in_block = row - first
        size = target - start + 4 * restarts + 4
        grown = size + key_bytes + 8 + value_bytes + 4 + 1 + 2  # two more for the varints, one and two bytes long
        if in_block % DATA_RESTART_INTERVAL == 0:
            grown += 4
        full = size >= BLOCK_SIZE_BYTES or grown > BLOCK_SIZE_BYTES
        if in_block > 0 and size > BLOCK_SIZE_THRESHOLD_BYTES and full:
            break
        shared = 0
        if in_block % DATA_RESTART_INTERVAL == 0:
            restart_points[restarts] = target - start
            restarts += 1
        else:
            while keys[row * key_bytes + shared] == keys[(row - 1) * key_bytes + shared]:
                shared += 1
        target = _write_varint(shared, target)
        target = _write_varint(key_bytes + 8 - shared, target)
        target = _write_varint(value_bytes, target)
        copy_literal(address_of(keys) + row * key_bytes + shared, target, key_bytes - shared)
        target += key_bytes - shared
        copy_literal(address_of(trailer), target, 8)
        target += 8
        copy_literal(address_of(values) + row * value_bytes, target, value_bytes)
        target += value_bytes
        row += 1
    return target - start, row


# -- ranges --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Templates:
    values: Array
    value_bytes: int
    address_offset: int
    time_offset: int


def _template_entry(content: int, seed: int) -> Entry:
    return Entry(
        address="a" * _ADDRESS_BYTES,
        address_type=AddressType.RELATIVE,
        size_bytes=_LEAST_SIZE_BYTES + content * _SIZE_STEP_BYTES,
        last_modified_ns=_EPOCH_S * 1_000_000_000 + 300_000_000,
        e_tag=hashlib.md5(b"%d %d" % (seed, content), usedforsecurity=False).hexdigest(),
        content_type="application/octet-stream",
    )


@lru_cache(maxsize=1)
def _templates(seed: int) -> _Templates:
    entries = [_template_entry(content, seed) for content in range(_CONTENTS)]
    values = [encode_value(entry_identity(entry), encode_entry(entry)) for entry in entries]
    # Four more that are never selected, because copies of the last one read beyond it.
    joined = np.frombuffer(b"".join(values + values[:4]), np.uint8)
    # After the address: the tag and the length of the time, the tag of its seconds.
    address_offset = values[0].index(b"a" * _ADDRESS_BYTES)
    return _Templates(joined, len(values[0]), address_offset, address_offset + _ADDRESS_BYTES + 3)


def entry_numbers(shape: Shape, number: int) -> Array:
    """Return the numbers of the objects of a range, in the order of its paths."""
    version, slot = divmod(number, shape.slots)
    path = np.arange(shape.per_range, dtype=np.int64)
    changed = np.maximum(version - (version - path) % shape.turnover, 0)
    changed_range: Array = (changed * shape.slots + slot) * shape.per_range + path
    return changed_range


def write_range_number(shape: Shape, number: int) -> WrittenTable:
    """Return the range with a number. Its bytes equal those of ``table_writer.write_range`` for the same entries."""
    templates, count, slot = _templates(shape.seed), shape.per_range, number % shape.slots
    value_bytes, key_bytes = templates.value_bytes, len(_KEY)
    values = np.empty(count * value_bytes + _ROOM, np.uint8)
    fill_entries(
        entry_numbers(shape, number), shape.seed, _ALPHABET, templates.values, value_bytes,
        templates.address_offset, templates.time_offset, values,
    )  # fmt: skip
    keys = np.zeros(count * key_bytes + _ROOM, np.uint8)
    fill_keys(slot, np.frombuffer(_KEY + bytes(_ROOM), np.uint8), keys)
    builder = TableBuilder()
    content = np.empty(4 * BLOCK_SIZE_BYTES, np.uint8)
    restart_points = np.empty(BLOCK_SIZE_BYTES, np.int64)
    trailer = np.frombuffer(SET_TRAILER + bytes(_ROOM), np.uint8)
    first = 0
    while first < count:
        size, behind = fill_block(keys, key_bytes, values, value_bytes, first, trailer, content, restart_points)
        block = BlockBuilder(DATA_RESTART_INTERVAL)
        block.count = behind - first
        block.buffer += content[:size].tobytes()
        block.restarts = restart_points[: -(-block.count // DATA_RESTART_INTERVAL)].tolist()
        last_key = keys[(behind - 1) * key_bytes : behind * key_bytes].tobytes()
        next_key = keys[behind * key_bytes : (behind + 1) * key_bytes].tobytes() if behind < count else b""
        builder.add_block(block, key_bytes * block.count, value_bytes * block.count, last_key, next_key)
        first = behind
    min_key, max_key = keys[:key_bytes].tobytes(), keys[(count - 1) * key_bytes : count * key_bytes].tobytes()
    estimated = builder.estimated_size_bytes()
    properties = {
        "type": b"ranges",
        "min_key": min_key,
        "max_key": max_key,
        "count": b"%d" % count,
        "estimated_size_bytes": b"%d" % estimated,
    }
    return WrittenTable(
        _table_id(keys, key_bytes, values, value_bytes, count),
        builder.finish(properties),
        min_key,
        max_key,
        count,
        estimated,
    )


def _table_id(keys: Array, key_bytes: int, values: Array, value_bytes: int, count: int) -> str:
    parts = (b"%d" % key_bytes, (keys, key_bytes), b"|%d" % value_bytes, (values, value_bytes), b"|")
    columns = [
        np.broadcast_to(np.frombuffer(part, np.uint8), (count, len(part)))
        if isinstance(part, bytes)
        else part[0][: count * part[1]].reshape(count, part[1])
        for part in parts
    ]
    digest = hashlib.sha256(np.concatenate(columns, axis=1).data)
    digest.update(identity_of_map({"type": "ranges"}))
    return digest.hexdigest()


def _write_ranges(shape: Shape, folder: Path, begin: int, end: int) -> list[WrittenTable]:
    """Write some ranges. Return their records in metaranges."""
    described = []
    for number in range(begin, end):
        table = write_range_number(shape, number)
        (folder / table.id).write_bytes(table.data)
        described.append(replace(table, data=b""))
    return described


# -- the namespace -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Namespace:
    """A written namespace. ``commits_file`` and ``uncommitted_folder`` are keys in it."""

    folder: Path
    shape: Shape
    commits_file: str
    heads: tuple[str, ...]
    uncommitted_folder: str
    seconds: float

    @property
    def numbers(self) -> Iterator[Array]:
        """Yield the numbers of all objects of the store in parts: committed, staged, stale."""
        shape = self.shape
        for number in range(shape.ranges):
            objects = entry_numbers(shape, number)
            own = number * shape.per_range
            yield objects[objects >= own] if number >= shape.slots else objects
        loose = shape.ranges * shape.per_range
        for begin in range(loose, loose + shape.staged + shape.stale, OBJECTS_PER_SLICE):
            yield np.arange(begin, min(begin + OBJECTS_PER_SLICE, loose + shape.staged + shape.stale))

    def objects(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a listing of the store in random order, as batches of ``LISTING_SCHEMA``."""
        for numbers in self.numbers:
            if len(numbers):
                yield listing_of(self.shape, numbers)


def addresses_of(shape: Shape, numbers: Array) -> pa.StringArray:
    """Return the address of each object."""
    content = np.empty(numbers.size * _ADDRESS_BYTES + _ROOM, np.uint8)
    write_addresses(numbers, shape.seed, _ALPHABET, int(content.ctypes.data), _ADDRESS_BYTES)
    offsets = np.arange(0, (numbers.size + 1) * _ADDRESS_BYTES, _ADDRESS_BYTES, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), numbers.size, [None, pa.py_buffer(offsets), pa.py_buffer(content)])


def sizes_of(shape: Shape, numbers: Array) -> Array:
    """Return the size of each object in bytes, between 10 and 77 MB. The entry of a committed object states the same.

    No object that is not committed has the size of one that is: it cannot be a hidden twin.
    """
    contents = np.empty(numbers.size, np.int64)
    write_contents(numbers, shape.seed, _CONTENTS, contents)
    is_committed = numbers < shape.ranges * shape.per_range
    sizes: Array = _LEAST_SIZE_BYTES + contents * _SIZE_STEP_BYTES + ~is_committed
    return sizes


def listing_of(shape: Shape, numbers: Array) -> pa.RecordBatch:
    """Return the listing of these objects, with the sizes of their entries and times in the first days of 2026."""
    times = pa.array((_EPOCH_S + numbers // 10_000) * 1_000_000 + 300_000)
    columns = [
        addresses_of(shape, numbers),
        pa.array(sizes_of(shape, numbers)),
        times.view(pa.timestamp("us", tz="UTC")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LISTING_SCHEMA)


def generate(folder: Path, shape: Shape, *, processes: int = 2) -> Namespace:
    """Write a namespace below ``folder``, which must not contain one."""
    began = time.monotonic()
    metadata = folder / "_lakefs"
    metadata.mkdir(parents=True)
    described: list[WrittenTable] = []
    begins = range(0, shape.ranges, _RANGES_PER_TASK)
    with ProcessPoolExecutor(processes) as pool:
        tasks = [
            pool.submit(_write_ranges, shape, metadata, begin, min(begin + _RANGES_PER_TASK, shape.ranges))
            for begin in begins
        ]
        for task in tasks:
            described += task.result()
    commits, heads = _write_commits(shape, metadata, described)
    commits_file = f"_lakefs/retention/gc/commits/run_id={'g' * 20}/commits.csv"
    (folder / commits_file).parent.mkdir(parents=True)
    (folder / commits_file).write_bytes(write_active_commits(commits))
    uncommitted_folder = _write_uncommitted(shape, folder) if shape.staged else ""
    return Namespace(folder, shape, commits_file, heads, uncommitted_folder, time.monotonic() - began)


def _write_commits(
    shape: Shape, metadata: Path, described: list[WrittenTable]
) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Write a metarange for each commit. Return all pairs (commit id, metarange id), and the last commit."""
    current: dict[int, WrittenTable] = {}
    commits = []
    born = 0
    metarange = WrittenTable("", b"", b"", b"", 0, 0)
    for number in range(shape.commits):
        until = max(1, shape.ranges * (number + 1) // shape.commits)
        for range_number in range(born, until):
            current[range_number % shape.slots] = described[range_number]
        if until > born:  # otherwise it has the tree of the previous commit
            metarange = write_metarange([current[slot] for slot in sorted(current)])
            (metadata / metarange.id).write_bytes(metarange.data)
        born = until
        commits.append((hashlib.sha256(b"%d commit %d" % (shape.seed, number)).hexdigest(), metarange.id))
    return commits, (commits[-1][0],)


def _write_uncommitted(shape: Shape, folder: Path) -> str:
    name = f"_lakefs/retention/gc/uncommitted/{'g' * 20}/uncommitted/"
    (folder / name).mkdir(parents=True)
    first = shape.ranges * shape.per_range
    for begin in range(first, first + shape.staged, _FILES_PER_UNCOMMITTED_PAGE):
        numbers = np.arange(begin, min(begin + _FILES_PER_UNCOMMITTED_PAGE, first + shape.staged))
        columns = [addresses_of(shape, numbers), pa.array(_EPOCH_S + numbers // 10_000)]
        page = pa.RecordBatch.from_arrays(columns, schema=UNCOMMITTED_FILE_SCHEMA)
        (folder / name / f"{begin:020}").write_bytes(write_uncommitted(page))
    return name


def main(arguments: list[str]) -> None:
    """Write a namespace, and print its content and the duration as one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for name, default in asdict(Shape()).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = vars(parser.parse_args(arguments))
    namespace = generate(options.pop("folder"), Shape(**options))
    facts = {**asdict(namespace.shape), "distinct": namespace.shape.distinct, "seconds": round(namespace.seconds, 1)}
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
