"""Remembers, in this process, which ranges the metaranges have that it read.

A small run reads the metaranges of the active commits, and then those of the heads, which are among them. A second look
asks for them several times. A metarange never changes, and those of 1,000 branches take 0.6 s to read from the cache.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

_MOST_NAMES = 500_000
"""The most names of ranges that are remembered: 35 MB."""

_RANGES_OF: dict[tuple[str, str], pa.Table] = {}
_names = 0


def remember_ranges(store_url: str, metarange_id: str, ranges: pa.Table) -> None:
    """Remember what a metarange of the store's folder ``store_url`` has (``ACTIVE_RANGES``), if there is room."""
    global _names
    if (store_url, metarange_id) not in _RANGES_OF and _names + ranges.num_rows <= _MOST_NAMES:
        _RANGES_OF[store_url, metarange_id] = ranges
        _names += ranges.num_rows


def known_ranges(store_url: str, metarange_ids: Iterable[str]) -> dict[str, pa.Table]:
    """Return the ranges of those metaranges that are remembered, with the columns ``ACTIVE_RANGES``."""
    found = ((each, _RANGES_OF.get((store_url, each))) for each in metarange_ids)
    return {metarange_id: ranges for metarange_id, ranges in found if ranges is not None}
