"""Ranges, metaranges, dumps of refs, and their compression, compiled and interpreted."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa

from lakefs_gc.errors import (
    CorruptFileError,
    CorruptRangeError,
)
from lakefs_gc.formats import (
    ranges,
)
from lakefs_gc.formats.sstable import reader as sstable
from lakefs_gc.formats.sstable import snappy
from lakefs_gc_tests.fuzz import interpreted, tables
from lakefs_gc_tests.fuzz.targets.target import FILE, REFUSED, Finding, Target, agree, rows_of
from lakefs_gc_tests.golden import golden_files


def _golden(kind: str, *names: str, largest: int = 6000) -> list[bytes]:
    files = golden_files("formats")
    found = [
        content
        for path, content in sorted(files.items())
        if path.endswith(".sst") and f"/{kind}-" in path and any(name in path for name in names)
    ]
    return [content for content in found if len(content) <= largest]


_TABLES = ("esti-unified/", "address-types", "metadata-and-unicode", "old-layout/", "one-entry", "zero-", "long-keys")


def _ranges() -> list[bytes]:
    return _golden("range", *_TABLES)


def _metaranges() -> list[bytes]:
    return _golden("metarange", *_TABLES, "many-blocks")


def _some_ranges() -> list[bytes]:
    return _golden("range", "address-types", "one-entry", "metadata-and-unicode", largest=3000)


def _dumps_of_refs() -> list[bytes]:
    return [content for kind in ("branch", "commit", "tag") for content in _golden(f"range-{kind}", "no-rules/")]


def _range_rows(data: bytes) -> list[tuple[Any, ...]]:
    batch = ranges.read_range(data, FILE, keys=True, details=True)
    batch.validate(full=True)
    times = batch["last_modified"].cast(pa.int64())
    names = ("key", "address", "address_type", "size")
    columns = [*(batch[name] for name in names), times, batch["e_tag"], batch["content_type"]]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _read_range(data: bytes) -> Any:
    rows = _range_rows(data)
    # Without keys and details, other loops run.
    plain = ranges.read_range(data, FILE)
    agree(plain["address"].to_pylist(), [row[1] for row in rows], "addresses with and without details")
    return rows


def _forged_range(data: bytes) -> Any:
    """Read a range with corrected checksums, and compare it with the decoders of single messages."""
    forged = tables.with_right_checksums(data)
    rows = _range_rows(forged)
    try:
        by_hand = tables.rows_by_hand(forged)
    except CorruptFileError as error:
        raise Finding(f"the kernel accepts what plain Python refuses: {error}") from None
    agree(rows, by_hand, "the kernel and plain Python")
    return None


def _forged_metarange(data: bytes) -> Any:
    return rows_of(ranges.read_metarange(tables.with_right_checksums(data), FILE))


def _interpreted_range(data: bytes) -> Any:
    interpreted.forget_buffers()
    return len(_range_rows(data))


def _interpreted_pairs(data: bytes) -> Any:
    interpreted.forget_buffers()
    return len(sstable.read_pairs(data, FILE))


_LARGEST_CONTENT = 1 << 16


def _snappy(data: bytes) -> Any:
    """Decompress two bytes of size and a body, and compare the result with Snappy's own decoder."""
    if len(data) < 2:
        return REFUSED
    size, body = int.from_bytes(data[:2], "little"), data[2:]
    source = interpreted.NUMPY.frombuffer(body + b"\xaa" * snappy.SLACK_BYTES, np.uint8)
    guarded = np.full(size + snappy.SLACK_BYTES + 64, 0x55, np.uint8)
    target = interpreted.NUMPY.frombuffer(guarded.data, np.uint8, size + snappy.SLACK_BYTES)
    # As in compiled callers, because Python's own numbers would not wrap around.
    start: Any = np.int64(source.ctypes.data)
    accepted = bool(snappy.decompress(start, start + len(body), cast(Any, np.int64(target.ctypes.data)), size))
    if not (guarded[size + snappy.SLACK_BYTES :] == 0x55).all():
        raise Finding("written behind the target")
    header = b"" if size else b"\0"
    rest = size
    while rest:
        header += bytes([rest & 0x7F | (0x80 if rest > 0x7F else 0)])
        rest >>= 7
    try:
        theirs: bytes | None = pa.Codec("snappy").decompress(header + body, size, asbytes=True)
    except (pa.ArrowException, OSError):
        theirs = None
    ours = guarded[:size].tobytes() if accepted else None
    agree(ours, theirs, "our decoder of Snappy and Google's")
    return ours


def _interpreted_snappy(data: bytes) -> Any:
    interpreted.forget_buffers()
    return _snappy(data)


def _snappy_seeds() -> list[bytes]:
    contents = [b"", b"a", b"abcdefgh" * 40, bytes(range(256)) * 3, b"data/slice/id,signature" * 7 + b"x" * 100]
    seeds = []
    for content in contents:
        compressed = bytes(pa.Codec("snappy").compress(content))
        behind_length = next(i for i, byte in enumerate(compressed) if byte < 0x80) + 1
        seeds.append(len(content).to_bytes(2, "little") + compressed[behind_length:])
    return seeds


TARGETS = (
    Target("range", _read_range, _ranges, (CorruptRangeError,), sealed=True),
    Target("range_forged", _forged_range, _ranges, (CorruptRangeError,)),
    Target("range_interpreted", _interpreted_range, _some_ranges, (CorruptRangeError,), interpreted=True),
    Target("metarange", lambda data: rows_of(ranges.read_metarange(data, FILE)), _metaranges, sealed=True),
    Target("metarange_forged", _forged_metarange, _metaranges, (CorruptRangeError,)),
    Target("pairs", lambda data: rows_of(sstable.read_pairs(data, FILE)), _dumps_of_refs, sealed=True),
    Target("pairs_interpreted", _interpreted_pairs, _some_ranges, (CorruptRangeError,), interpreted=True),
    Target("snappy", _snappy, _snappy_seeds),
    Target("snappy_interpreted", _interpreted_snappy, _snappy_seeds, interpreted=True),
)
