"""Marks as lakeFS's own Spark client writes them, in each of its layouts."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq

from lakefs_gc.formats.report import Summary
from lakefs_gc.storage.base import ObjectStore

CUTOFF = datetime(2026, 6, 1, tzinfo=UTC)
UNIFIED = "_lakefs/retention/gc/unified/m1/"
UNCOMMITTED = "_lakefs/retention/gc/uncommitted/m1/"
COMMITTED = "_lakefs/retention/gc/addresses/mark_id=m1/"


def write_client_mark(
    store: ObjectStore,
    layout: str,
    *parts: list[str],
    success: bool = True,
    said: int | None = None,
    cutoff: datetime = CUTOFF,
) -> None:
    """Write a mark as lakeFS's client writes it: Spark's own files with one column."""
    folder = layout if layout == COMMITTED else f"{layout}deleted/"
    for number, addresses in enumerate(parts):
        buffer = io.BytesIO()
        pq.write_table(pa.table({"address": pa.array(addresses, pa.string())}), buffer, compression="snappy")
        store.put(f"{folder}part-{number:05}-c0ffee.snappy.parquet", buffer.getvalue())
    store.put(f"{folder}_SUCCESS", b"")
    if layout != COMMITTED:
        count = sum(map(len, parts)) if said is None else said
        store.put(f"{layout}summary.json", Summary("m1", success, "s", cutoff, cutoff, count).to_json())
