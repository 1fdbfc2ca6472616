"""Materialization records for the sensor's tests, in a real Dagster instance."""

from __future__ import annotations

from collections.abc import Mapping

from dagster import AssetMaterialization, DagsterInstance

from lakefs_gc.pipeline.partitions import gc_runs


def record_mark(
    instance: DagsterInstance,
    run_key: str,
    *,
    digest: str = "",
    candidates: int = 3,
    policy: str = "immediately",
    delay_hours: float = 0.0,
) -> str:
    """Record a materialization of ``mark``, and return its digest. ``policy``: the sweep policy of the mark."""
    digest = digest or f"sha256:{run_key}"
    metadata: dict[str, str | int | float] = {
        "mark_id": mark_id_of(run_key),
        "digest": digest,
        "dagster/row_count": candidates,
        "sweep_policy": policy,
        "sweep_delay_hours": delay_hours,
    }
    _record(instance, "mark", run_key, metadata)
    return digest


def record_approval(
    instance: DagsterInstance, run_key: str, digest: str, only: str = "", ready_at: float | None = None
) -> None:
    """Record a materialization of ``sweep_approval``; without ``only`` and ``ready_at`` as earlier versions did."""
    metadata: dict[str, str | int | float] = {"mark_id": mark_id_of(run_key), "digest": digest}
    metadata |= ({"only": only} if only else {}) | ({} if ready_at is None else {"ready_at": ready_at})
    _record(instance, "sweep_approval", run_key, metadata)


def record_sweep(instance: DagsterInstance, run_key: str, digest: str, only: str = "") -> None:
    """Record a materialization of ``sweep``; without ``only`` as versions before parts of marks did."""
    metadata: dict[str, str | int | float] = {
        "mark_id": mark_id_of(run_key),
        "digest": digest,
        "dagster/row_count": 3,
    }
    _record(instance, "sweep", run_key, metadata | ({"only": only} if only else {}))


def record_manually(instance: DagsterInstance, asset: str, run_key: str) -> None:
    """Record a materialization without metadata, as the UI's "Report materialization events" does."""
    _record(instance, asset, run_key, {})


def mark_id_of(run_key: str) -> str:
    return f"mark-of-{run_key.partition('/')[2]}"


def _record(instance: DagsterInstance, asset: str, run_key: str, metadata: Mapping[str, str | int | float]) -> None:
    instance.add_dynamic_partitions(str(gc_runs.name), [run_key])
    instance.report_runless_asset_event(AssetMaterialization(asset, partition=run_key, metadata=metadata))
