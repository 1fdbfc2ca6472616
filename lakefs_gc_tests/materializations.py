"""Materialization records for the sensor's tests, in a real Dagster instance."""

from __future__ import annotations

from dagster import AssetMaterialization, DagsterInstance

from lakefs_gc.partitions import gc_runs


def record_mark(instance: DagsterInstance, run_key: str, *, digest: str = "", candidates: int = 3) -> str:
    """Record that ``mark`` was materialized; its digest."""
    digest = digest or f"sha256:{run_key}"
    metadata: dict[str, str | int] = {"mark_id": mark_id_of(run_key), "digest": digest, "dagster/row_count": candidates}
    _record(instance, "mark", run_key, metadata)
    return digest


def record_approval(instance: DagsterInstance, run_key: str, digest: str) -> None:
    """Record that ``sweep_approval`` was materialized."""
    _record(instance, "sweep_approval", run_key, {"mark_id": mark_id_of(run_key), "digest": digest})


def record_sweep(instance: DagsterInstance, run_key: str, digest: str) -> None:
    """Record that ``sweep`` was materialized."""
    _record(instance, "sweep", run_key, {"mark_id": mark_id_of(run_key), "digest": digest, "dagster/row_count": 3})


def record_by_hand(instance: DagsterInstance, asset: str, run_key: str) -> None:
    """What the UI's "Report materialization events" leaves: no metadata of ours."""
    _record(instance, asset, run_key, {})


def mark_id_of(run_key: str) -> str:
    return f"mark-of-{run_key.partition('/')[2]}"


def _record(instance: DagsterInstance, asset: str, run_key: str, metadata: dict[str, str | int]) -> None:
    instance.add_dynamic_partitions(str(gc_runs.name), [run_key])
    instance.report_runless_asset_event(AssetMaterialization(asset, partition=run_key, metadata=metadata))
