"""A filter of constant size (2 MiB) over object sizes, or over sizes and MD5s, in the manner of a Bloom filter.

``hidden_twins`` and ``unlisted_changes`` send it to workers that read many rows, which then return only rows that may
match an unreferenced object. A row that matches always passes, so the filter can never hide an object that is in use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from lakefs_gc.engine.spark.scale import collect_in_arrow
from lakefs_gc.engine.spark.workers import Batches, worker

# Values are hashed to 2**24 bits (2 MiB): with a million different sizes, one size in 17 passes although it is not
# among them.
_FILTER_BITS = 24
_GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class ValueFilter:
    """One bit for each hash of a value of ``columns``. A value that is not in the filter may pass as well."""

    columns: tuple[str, ...]
    bits: bytes

    def including(self, size_bytes: int) -> ValueFilter:
        """Return this filter of sizes with one more size in it."""
        bits, hashed = bytearray(self.bits), int(_hashed([pa.array([size_bytes], pa.int64())])[0])
        bits[hashed >> 3] |= 0x80 >> (hashed & 7)
        return ValueFilter(self.columns, bytes(bits))

    def may_pass(self, size: pa.Int64Array) -> bool:
        """Return whether any of these sizes may pass; always True for a filter that needs MD5s as well."""
        return "md5" in self.columns or pc.any(self.passes(size, None), min_count=0).as_py()

    def passes(self, size: pa.Int64Array, md5: pa.StringArray | None) -> pa.BooleanArray:
        """Return for each row whether it may be in the filter. ``md5`` is used only if it is one of the columns."""
        bits = np.frombuffer(self.bits, np.uint8)
        hashed = _hashed([{"size": size, "md5": md5}[name] for name in self.columns])
        return pa.array(
            (bits[hashed >> np.uint64(3)] >> (np.uint64(7) - (hashed & np.uint64(7))).astype(np.uint8)) & 1 > 0
        )


def every_size() -> ValueFilter:
    """Return a filter that every size passes."""
    return ValueFilter(("size",), b"\xff" * (1 << _FILTER_BITS - 3))


def no_size() -> ValueFilter:
    """Return a filter that no size passes."""
    return ValueFilter(("size",), bytes(1 << _FILTER_BITS - 3))


def filter_of(rows: DataFrame) -> ValueFilter | None:
    """Return a filter with every row of ``rows`` (columns ``size``, or ``size`` and ``md5``); None if there are none.

    Reads the rows once and brings 2 MiB for each of their partitions to the driver.
    """
    bitmaps = [bytes(row["bitmap"]) for row in collect_in_arrow(rows, _bitmap(), "bitmap binary")]
    if not bitmaps:
        return None
    bits = reduce(np.bitwise_or, (np.frombuffer(bitmap, np.uint8) for bitmap in bitmaps)).tobytes()
    return ValueFilter(tuple(rows.columns), bits)


@worker
def _bitmap(batches: Batches) -> Batches:
    bits = np.zeros(1 << _FILTER_BITS, np.bool_)
    for batch in batches:
        bits[_hashed(batch.columns)] = True
    if bits.any():
        yield pa.record_batch([pa.array([np.packbits(bits).tobytes()], pa.binary())], names=["bitmap"])


def _hashed(columns: Iterable[pa.Array]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    hashed = reduce(np.bitwise_xor, (_numbers(column) for column in columns))
    return (hashed * _GOLDEN_RATIO) >> np.uint64(64 - _FILTER_BITS)


def _numbers(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return sizes unchanged, and for each MD5 a number from all of its characters (an empty MD5 counts as zeros)."""
    if pa.types.is_integer(column.type):
        sizes: np.ndarray[tuple[int], np.dtype[np.uint64]] = column.to_numpy(zero_copy_only=False).astype(np.uint64)
        return sizes
    md5 = pc.if_else(pc.equal(column, ""), "0" * 32, column).cast(pa.binary()).cast(pa.binary(32))
    words = np.frombuffer(md5.buffers()[1], np.uint64).reshape(-1, 4)[md5.offset : md5.offset + len(md5)]
    return reduce(lambda mixed, word: (mixed ^ word) * _GOLDEN_RATIO, words.T)
