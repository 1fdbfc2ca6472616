"""Read and write ranges and metaranges as records: one object for each row that ``formats`` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakefs_gc.formats.entry import decode_value
from lakefs_gc.formats.ranges import read_metarange
from lakefs_gc.formats.sstable.reader import read_pairs
from lakefs_gc.formats.sstable.table_writer import WrittenTable
from lakefs_gc.sandbox.state.records import Record


@dataclass(frozen=True)
class RangeInfo:
    """A range of a metarange: its id, the keys of its first and last record, and what its writer counted."""

    id: str
    min_key: bytes
    max_key: bytes
    count: int
    estimated_size_bytes: int

    def as_written(self) -> WrittenTable:
        """Return the facts about a stored range that the writer of a metarange needs."""
        return WrittenTable(self.id, b"", self.min_key, self.max_key, self.count, self.estimated_size_bytes)


def read_range_records(data: bytes, *, file: str) -> Sequence[Record]:
    """Yield the records of a range, ascending. Raise ``CorruptFileError``."""
    pairs = read_pairs(data, file)
    return [
        Record(key, *decode_value(value, file=file))
        for key, value in zip(pairs["key"].to_pylist(), pairs["value"].to_pylist(), strict=True)
    ]


def read_metarange_ranges(data: bytes, *, file: str) -> Sequence[RangeInfo]:
    """Return the ranges of a metarange, ascending. Raise ``CorruptFileError``."""
    return [
        RangeInfo(row["range_id"], row["min_key"], row["max_key"], row["entries"], row["estimated_size"])
        for row in read_metarange(data, file).to_pylist()
    ]
