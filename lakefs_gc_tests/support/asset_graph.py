"""The expected assets and jobs of the code location."""

from __future__ import annotations

from dagster import AssetSpec, Definitions

# Asset: group, kinds, and dependencies.
GRAPH: dict[str, tuple[str, set[str], set[str]]] = {
    "store_listing": ("collect", {"spark", "s3"}, set()),
    "uncommitted": ("collect", {"spark", "lakefs"}, {"store_listing"}),
    "active_ranges": ("collect", {"spark", "lakefs"}, {"store_listing", "uncommitted"}),
    "committed": ("collect", {"spark", "lakefs"}, {"store_listing", "active_ranges"}),
    "foreign_references": ("collect", {"spark", "lakefs"}, {"store_listing"}),
    "unmatched": (
        "decide",
        {"spark"},
        {"store_listing", "uncommitted", "active_ranges", "committed", "foreign_references"},
    ),
    "missing": ("decide", {"spark"}, {"committed", "store_listing", "uncommitted", "unmatched"}),
    "kept": ("decide", {"spark", "lakefs"}, {"store_listing", "uncommitted", "unmatched", "missing"}),
    "candidates": ("decide", {"spark"}, {"store_listing", "active_ranges", "unmatched", "kept"}),
    "mark": (
        "decide",
        {"lakefs", "parquet"},
        {
            "store_listing",
            "uncommitted",
            "active_ranges",
            "committed",
            "foreign_references",
            "missing",
            "kept",
            "candidates",
        },
    ),
    "forecast": (
        "forecast",
        {"spark", "lakefs"},
        {"store_listing", "uncommitted", "foreign_references", "unmatched", "kept"},
    ),
    "backup": ("undo", {"spark", "s3"}, {"mark"}),
    "sweep_approval": ("delete", {"lakefs"}, {"mark"}),
    "sweep": ("delete", {"spark", "s3"}, {"mark", "sweep_approval"}),
    "restore": ("undo", {"spark", "s3"}, {"backup", "sweep"}),
}
JOBS = {
    "gc_mark": {
        "store_listing",
        "uncommitted",
        "active_ranges",
        "committed",
        "foreign_references",
        "unmatched",
        "missing",
        "kept",
        "candidates",
        "mark",
    },
    "gc_forecast": {"forecast"},
    "gc_backup": {"backup"},
    "gc_approve": {"sweep_approval"},
    "gc_sweep": {"sweep"},
    "gc_restore": {"restore"},
}


def specs(definitions: Definitions) -> dict[str, AssetSpec]:
    """Return the asset specs by asset key."""
    return {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}
