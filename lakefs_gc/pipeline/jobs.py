"""The jobs: decide, back up, approve, delete, restore."""

from __future__ import annotations

from dagster import AssetSelection, define_asset_job, in_process_executor

from lakefs_gc.pipeline.names import OWN
from lakefs_gc.pipeline.partitions import repository_config

gc_mark = define_asset_job(
    "gc_mark",
    AssetSelection.groups("collect", "decide"),
    config=repository_config(OWN),
    executor_def=in_process_executor,
    description="List the store, read all references, and mark the unreferenced objects. Deletes nothing.",
)

gc_approve = define_asset_job(
    "gc_approve",
    AssetSelection.assets("sweep_approval"),
    config=repository_config(OWN),
    executor_def=in_process_executor,
    description="Approve a mark. Materializing sweep_approval in the UI does the same.",
)

gc_forecast = define_asset_job(
    "gc_forecast",
    AssetSelection.assets("forecast"),
    config=repository_config(OWN),
    executor_def=in_process_executor,
    description="Compute what other retention rules would free, and what each branch holds, from the data of a run.",
)

gc_backup = define_asset_job(
    "gc_backup",
    AssetSelection.assets("backup"),
    config=repository_config(OWN),
    executor_def=in_process_executor,
    description="Copy the objects of a mark to the backup location, and verify each copy.",
)

gc_sweep = define_asset_job(
    "gc_sweep",
    AssetSelection.assets("sweep"),
    config=repository_config(OWN),
    executor_def=in_process_executor,
    description="Delete the objects of an approved mark, after reading the references again.",
)

gc_restore = define_asset_job(
    "gc_restore",
    AssetSelection.assets("restore"),
    config=repository_config(OWN),
    executor_def=in_process_executor,
    description="Copy the objects of a backup to where they were, and verify each of them. Overwrites nothing.",
)

FORECAST_INPUTS = AssetSelection.assets("forecast").upstream(include_self=False)
"""The assets of ``gc_mark`` that a forecast needs. They write no mark."""

JOBS = (gc_mark, gc_forecast, gc_backup, gc_approve, gc_sweep, gc_restore)
