"""Which sizes, or sizes and MD5s, there are: of constant size, so that it can be sent to whoever reads many rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from lakefs_gc.engine.spark.workers import Batches, worker

# Values are hashed to 2**24 bits (2 MiB): of a million different sizes, one strange size in 17 passes.
_FILTER_BITS = 24
_GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class ValueFilter:
    """A bit for each value of ``columns`` that there is, hashed; what is not among the values may pass, too."""

    columns: tuple[str, ...]
    bits: bytes

    def may_pass(self, size: pa.Int64Array) -> bool:
        """Whether it is worth while to ask for more than sizes."""
        return "md5" in self.columns or pc.any(self.passes(size, None), min_count=0).as_py()

    def passes(self, size: pa.Int64Array, md5: pa.StringArray | None) -> pa.BooleanArray:
        """Which rows may be among the values; ``md5`` matters only if it is one of the columns."""
        bits = np.frombuffer(self.bits, np.uint8)
        hashed = _hashed([{"size": size, "md5": md5}[name] for name in self.columns])
        return pa.array(
            (bits[hashed >> np.uint64(3)] >> (np.uint64(7) - (hashed & np.uint64(7))).astype(np.uint8)) & 1 > 0
        )


def filter_of(rows: DataFrame) -> ValueFilter | None:
    """For the values of these columns, ``size`` or ``size`` and ``md5``; None when there are no rows.

    Reads the rows once, and brings 2 MiB for each of their partitions to the driver.
    """
    bitmaps = [bytes(row["bitmap"]) for row in rows.mapInArrow(_bitmap(), "bitmap binary").collect()]
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
    """Sizes as they are; of an MD5 all of it, and of what is none the same."""
    if pa.types.is_integer(column.type):
        sizes: np.ndarray[tuple[int], np.dtype[np.uint64]] = column.to_numpy(zero_copy_only=False).astype(np.uint64)
        return sizes
    md5 = pc.if_else(pc.equal(column, ""), "0" * 32, column).cast(pa.binary()).cast(pa.binary(32))
    words = np.frombuffer(md5.buffers()[1], np.uint64).reshape(-1, 4)[md5.offset : md5.offset + len(md5)]
    return reduce(lambda mixed, word: (mixed ^ word) * _GOLDEN_RATIO, words.T)
