"""What a materialization shows in the Dagster UI: numbers that Dagster plots over runs, charts and tables."""

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
    "entries": "Expected number of entries of the range. Null if only its file records it.",
    "repository": "The repository that refers to the address.",
    "reason": "expired: only inactive commits refer to it. never_committed: no commit refers to it.",
    "why": "shown_by_a_branch: a branch shows it although the server's list omits it. shielded: kept unverified, "
    "because it could not be looked up. protected_path: a commit has it under a path that is never collected.",
    "outcome": "Of a sweep: deleted, already_gone, resurrected (referenced again since the mark), locked (an object "
    "lock keeps it), not_backed_up (kept: the required backup has no copy) or failed. Of a backup: copied, "
    "already_gone or failed.",
    "proof": "How the copy was verified: by a checksum from the stores, or by reading both objects.",
    "checksum": "The checksum, with its algorithm.",
    "held_by": "What holds the objects: none (only retention rules), head, staged, other_repository, kept, protected, "
    "listed (by the server, end unknown), never_collected; or unreadable, a metadata file that could not be read.",
    "branch": "Index of the only branch whose head has the objects. Null: several, or none.",
    "ages": "For each class of rules, the days since the commit was superseded that shows the objects last.",
    "new_days": "Whole days by which the objects are newer than the cutoff. Negative: older.",
    "unseen": "Whether a metadata file that no visible commit names has the objects.",
    "file": "The metadata file below _lakefs/ that could not be read. Otherwise null.",
    "objects": "Number of objects.",
    "size_bytes": "Bytes.",
    "address_hash": "XXH64 of the address. It identifies addresses that are referenced but not in the store.",
    "found_in": "store: nothing refers to it. not_lakefs: nothing refers to it, and it is at the root with a name that "
    "lakeFS did not generate, so it is never marked. Otherwise: the stage that refers to the missing object.",
    "deleted_by": "The mark of lakefs-gc whose sweep deleted it. Empty: lost for another reason.",
    "error": "The store's error if the operation failed. Otherwise empty.",
}


def column_schema(schema: StructType) -> TableSchema:
    """Return the columns of a DataFrame as Dagster shows them."""
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
    """Return the metadata of a stage that writes a DataFrame: first its contents, then how it was computed.

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
    """Return a bar chart in Markdown, one line for each value."""
    greatest = max(values.values(), default=0) or 1
    widest = max(map(len, values), default=0)
    lines = [
        f"{name:<{widest}}  {'█' * round(_BAR_WIDTH * value / greatest):<{_BAR_WIDTH}}  {label(value)}"
        for name, value in values.items()
    ]
    return "\n".join(["```", *lines, "```"])


def table(rows: Sequence[Mapping[str, str | int | float]]) -> MetadataValue[Any]:
    """Return a table whose columns are those of the first row, or the text "none" without rows."""
    if not rows:
        return MetadataValue.text("none")
    return MetadataValue.table(records=[TableRecord(dict(row)) for row in rows])
