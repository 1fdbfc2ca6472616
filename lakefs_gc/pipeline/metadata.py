"""What a materialization shows in the Dagster UI: numbers that plot over runs, charts and tables for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dagster import MetadataValue, TableColumn, TableColumnConstraints, TableRecord, TableSchema
from pyspark.sql.types import StructType

from lakefs_gc.engine.collect.listing.age_buckets import bytes_by_age
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.units import human_bytes

_BAR_WIDTH = 20

Metadata = dict[str, Any]


_COLUMNS = {
    "address": "Key relative to the storage namespace.",
    "size": "Bytes.",
    "last_modified": "UTC, microseconds.",
    "range_id": "Name of the range's file below _lakefs/.",
    "entries": "How many entries the range must have; null where only its file can say.",
    "repository": "The repository that refers to the address.",
    "reason": "expired: only commits that are not active refer to it.  never_committed: no commit does.",
    "why": "shown_by_a_branch: the server's list leaves it out.  shielded: it may be so, and cannot be told.  "
    "protected_path: a commit has it under a path that is never collected.",
    "outcome": "Of a sweep: deleted, already_gone, resurrected (referenced again since the mark), locked (an object "
    "lock keeps it), not_backed_up (kept: the backup that is demanded has no copy) or failed.  Of a backup: copied, "
    "already_gone or failed.",
    "proof": "What shows that the copy is the same: a checksum, by the stores or by reading.",
    "checksum": "That checksum, with its algorithm.",
    "address_hash": "XXH64 of the address: what is referenced and not stored is known by it.",
    "found_in": "store: nobody refers to it.  not_lakefs: nobody does, and it is at the root under a name that lakeFS "
    "does not give; it is never marked.  Otherwise the stage that refers to what is not in the store.",
    "deleted_by": "The mark of ours whose sweep deleted it; empty: it was lost.",
    "error": "What the store answered when it failed; else empty.",
}


def column_schema(schema: StructType) -> TableSchema:
    """The columns of a DataFrame as Dagster shows them."""
    return TableSchema(
        columns=[
            TableColumn(
                name=field.name,
                type=field.dataType.simpleString(),
                description=_COLUMNS[field.name],
                constraints=TableColumnConstraints(nullable=field.nullable),
            )
            for field in schema.fields
        ]
    )


def stage_metadata(manifest: DatasetManifest, schema: StructType, data_url: str) -> Metadata:
    """Metadata of every stage that leaves a DataFrame: what it holds first, then how it came about.

    Numbers are plain, in bytes and seconds, so that Dagster plots them over the runs.
    """
    metadata: Metadata = {
        "dagster/row_count": manifest.rows,
        "dagster/uri": MetadataValue.text(data_url),
        "dagster/column_schema": column_schema(schema),
    }
    if "size_bytes" in manifest.facts:
        size_bytes = manifest.facts["size_bytes"]
        metadata |= {"size": human_bytes(size_bytes), "bytes": size_bytes}
    ages = bytes_by_age(manifest.facts)
    if ages:
        metadata["bytes_by_age"] = MetadataValue.md(bar_chart(ages, human_bytes))
    shown = {name: value for name, value in manifest.facts.items() if isinstance(value, str | int | float | bool)}
    metadata |= {name: value for name, value in shown.items() if name != "size_bytes" and ": " not in name}
    return metadata | {
        "duration_seconds": (manifest.ended_at - manifest.began_at).total_seconds(),
        "began_at": MetadataValue.timestamp(manifest.began_at),
        "ended_at": MetadataValue.timestamp(manifest.ended_at),
        "materialization_id": manifest.materialization_id,
    }


def bar_chart(values: Mapping[str, float], label: Callable[[float], str]) -> str:
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
