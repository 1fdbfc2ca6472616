"""The Parquet files of a mark: writing, reading and summarizing the marked objects, without Spark."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.engine.records.mark import Mark, MarkPart
from lakefs_gc.errors import MarkError
from lakefs_gc.formats.parquet import parquet_bytes, read_columns
from lakefs_gc.formats.report import ReportPaths
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.units import EPOCH

Array = np.ndarray[Any, np.dtype[Any]]

PART_SCHEMA = pa.schema(
    [
        pa.field("address", pa.string(), nullable=False),
        pa.field("size", pa.int64()),
        pa.field("last_modified", pa.timestamp("us", tz="UTC")),
        pa.field("reason", pa.string()),
    ]
)
_OPTIONAL = ("size", "last_modified", "reason")
"""Columns that lakeFS's own client does not write."""
_LARGEST = 10
_SAMPLE = 5


def part_keys(store: ObjectStore, layout: ReportPaths) -> list[str]:
    """Return the keys of the Parquet files of a mark, in order."""
    keys = (key for batch in store.list(layout.deleted) for key in batch.column("address").to_pylist())
    return sorted(key for key in keys if key.endswith(".parquet"))


def part_content(marked: pa.Table) -> bytes:
    """Return a file for ``deleted/``: the column that lakeFS's client reads, and the facts of each object."""
    return parquet_bytes(marked.combine_chunks().to_batches()[0], compression="snappy")


def read_part(store: ObjectStore, part: MarkPart) -> pa.Table:
    """Return the verified rows of a file of a mark, with the columns ``PART_SCHEMA``: null what is not recorded.

    Raise ``MarkError`` if the file was changed after it was marked.
    """
    content = store.read(part.key)
    if hashlib.sha256(content).hexdigest() != part.sha256:
        raise MarkError(f"{part.key} was changed after the mark was made", remedy="Do not sweep this mark. Mark again")
    return part_rows(content, part.key)


def part_rows(content: bytes, file: str) -> pa.Table:
    """Return the rows of a Parquet file of a mark, with the columns of ``read_part``. Raise ``CorruptFileError``."""
    return read_columns(content, PART_SCHEMA, file, optional=_OPTIONAL)


@dataclass(frozen=True)
class PrefixTotal:
    """The number and the bytes of marked objects below one prefix (a slice, or the root)."""

    prefix: str
    objects: int
    size_bytes: int


@dataclass(frozen=True)
class Overview:
    """The prefixes with the most bytes, and the first marked objects of each reason.

    An object of the sample has an ``address`` and, if known, ``size``, ``last_modified`` and ``reason``. An object of
    ``MarkFacts.sample`` may also have ``path``, ``commit_id``, ``branch``, ``rule`` and ``expired_on`` (``PathGroup``).
    """

    largest_prefixes: tuple[PrefixTotal, ...]
    sample: tuple[dict[str, str | int], ...]


def overview(store: ObjectStore, mark: Mark) -> Overview:
    """Summarize a mark, with one part in memory at a time. Raise ``MarkError`` if a part was changed."""
    objects: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    sample: dict[str | None, list[dict[str, str | int]]] = {}
    for part in mark.parts:
        table = read_part(store, part)
        # Arrow would import pandas to group, to make an array or a value, and to convert a time: 0.2 s of `show`.
        prefixes, group_of = _encoded(pc.replace_substring_regex(table["address"], r"[^/]*$", ""))
        group_sizes = np.zeros(len(prefixes), np.int64)
        np.add.at(group_sizes, group_of, _filled(table["size"]))
        objects.update(dict(zip(prefixes, np.bincount(group_of, minlength=len(prefixes)).tolist(), strict=True)))
        sizes.update(dict(zip(prefixes, group_sizes.tolist(), strict=True)))
        reasons, reason_of = _encoded(table["reason"])
        for number, reason in enumerate(reasons):
            if reason not in sample:
                sample[reason] = [_sampled(table, int(row)) for row in np.flatnonzero(reason_of == number)[:_SAMPLE]]
    order = sorted(objects, key=lambda prefix: (-sizes[prefix], -objects[prefix], prefix))
    return Overview(
        tuple(PrefixTotal(prefix or "(root)", objects[prefix], sizes[prefix]) for prefix in order[:_LARGEST]),
        tuple(row for _, rows in sorted(sample.items(), key=lambda one: one[0] or "") for row in rows),
    )


def _encoded(column: pa.ChunkedArray) -> tuple[list[Any], Array]:
    """Return the different values of a column, and the number of its value for each row."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), np.from_dlpack(encoded.indices)


def _filled(sizes: pa.ChunkedArray) -> Array:
    """Return sizes in bytes, 0 for those that are not recorded."""
    known = pc.fill_null(sizes, 0) if sizes.null_count else sizes
    return np.from_dlpack(known.combine_chunks())


def _sampled(marked: pa.Table, row: int) -> dict[str, str | int]:
    """Return what is recorded of a marked object."""
    one = marked.slice(row, 1)
    index = one.schema.get_field_index("last_modified")
    [facts] = one.set_column(index, "last_modified", one["last_modified"].cast(pa.int64())).to_pylist()
    if facts["last_modified"] is not None:
        facts["last_modified"] = str(EPOCH + timedelta(microseconds=facts["last_modified"]))
    return {name: value for name, value in facts.items() if value is not None}
