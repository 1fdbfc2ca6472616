"""What a materialization shows in the Dagster UI: numbers that plot over runs, charts and tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dagster import MetadataValue, TableColumn, TableRecord, TableSchema
from pyspark.sql.types import StructType

from lakefs_gc.engine.ages import bytes_by_age
from lakefs_gc.engine.dataset import DatasetManifest

_BAR_WIDTH = 30
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

Metadata = dict[str, Any]


def human_bytes(size_bytes: float) -> str:
    """``1536`` as ``1.5 KiB``."""
    value = float(size_bytes)
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def column_schema(schema: StructType) -> TableSchema:
    """The columns of a DataFrame as Dagster shows them."""
    return TableSchema(
        columns=[TableColumn(name=field.name, type=field.dataType.simpleString()) for field in schema.fields]
    )


def stage_metadata(manifest: DatasetManifest, schema: StructType, data_url: str) -> Metadata:
    """Metadata of every stage that leaves a DataFrame."""
    metadata: Metadata = {
        "dagster/row_count": manifest.rows,
        "dagster/uri": MetadataValue.text(data_url),
        "dagster/column_schema": column_schema(schema),
        "duration_seconds": (manifest.ended_at - manifest.began_at).total_seconds(),
        "began_at": MetadataValue.timestamp(manifest.began_at),
        "ended_at": MetadataValue.timestamp(manifest.ended_at),
        "materialization_id": manifest.materialization_id,
    }
    if "size_bytes" in manifest.facts:
        size_bytes = manifest.facts["size_bytes"]
        metadata |= {"bytes": size_bytes, "size": human_bytes(size_bytes)}
    ages = bytes_by_age(manifest.facts)
    if ages:
        metadata["bytes_by_age"] = MetadataValue.md(bar_chart(ages, human_bytes))
    shown = {name: value for name, value in manifest.facts.items() if isinstance(value, str | int | float | bool)}
    metadata |= {name: value for name, value in shown.items() if name not in ("size_bytes",) and ": " not in name}
    return metadata


def bar_chart(values: Mapping[str, float], label: Any) -> str:
    """A bar chart in Markdown, a line for each value."""
    greatest = max(values.values(), default=0) or 1
    widest = max(map(len, values), default=0)
    lines = [
        f"{name:<{widest}}  {'█' * round(_BAR_WIDTH * value / greatest):<{_BAR_WIDTH}}  {label(value)}"
        for name, value in values.items()
    ]
    return "\n".join(["```", *lines, "```"])


def table(rows: Sequence[Mapping[str, str | int | float]]) -> MetadataValue[Any]:
    """A table; the first row says the columns.  Empty: a line that says so."""
    if not rows:
        return MetadataValue.text("nothing")
    return MetadataValue.table(records=[TableRecord(dict(row)) for row in rows])
