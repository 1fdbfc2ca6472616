"""What a person looks at before approving a mark: where the bytes are, and a few of the objects."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.engine.records.mark import Mark, read_part
from lakefs_gc.storage.base import ObjectStore

_LARGEST = 10
_SAMPLE = 10


@dataclass(frozen=True)
class PrefixTotal:
    """Marked objects below one prefix (a slice, or the root)."""

    prefix: str
    objects: int
    size_bytes: int


@dataclass(frozen=True)
class Overview:
    """The prefixes with the most bytes, and the first few marked addresses of the first part that has any."""

    largest_prefixes: tuple[PrefixTotal, ...]
    sample: tuple[dict[str, str | int], ...]


def overview(store: ObjectStore, mark: Mark) -> Overview:
    """Read a mark's parts, one at a time.  Raises ``MarkError`` when a part was changed."""
    objects: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    sample: list[dict[str, str | int]] = []
    for part in mark.parts:
        table = read_part(store, part)
        prefix = pc.replace_substring_regex(table["address"], r"[^/]*$", "")
        grouped = (
            pa.table({"prefix": prefix, "size": table["size"]})
            .group_by("prefix")
            .aggregate([("size", "sum"), ("prefix", "count")])
        )
        for row in grouped.to_pylist():
            objects[row["prefix"]] += row["prefix_count"]
            sizes[row["prefix"]] += row["size_sum"] or 0
        if not sample:
            sample = [_sampled(row) for row in table.slice(0, _SAMPLE).to_pylist()]
    order = sorted(objects, key=lambda prefix: (-sizes[prefix], -objects[prefix], prefix))
    return Overview(
        tuple(PrefixTotal(prefix or "(root)", objects[prefix], sizes[prefix]) for prefix in order[:_LARGEST]),
        tuple(sample),
    )


def _sampled(row: dict[str, object]) -> dict[str, str | int]:
    return {name: value if isinstance(value, int) else str(value) for name, value in row.items() if value is not None}
