"""Refuses what must not follow in one launch: the approval of its own mark, and the restore of its own backup."""

from __future__ import annotations

from dagster import AssetExecutionContext, AssetKey, AssetRecordsFilter, DagsterInstance, DagsterRun

from lakefs_gc.errors import ApprovalError, BackupError

_BACKFILL_TAGS = ("dagster/backfill", "dagster/root_backfill_id")


def refuse_mark_of_same_launch(context: AssetExecutionContext, mark: AssetKey) -> None:
    """Raise ``ApprovalError`` if the launch that requests this approval also made the mark.

    "Materialize all" is such a launch. So is its re-execution, which Dagster's daemon may start automatically.
    """
    if _is_of_same_launch(context, mark):
        raise ApprovalError(
            f"The mark of {context.partition_key} was made in this run, or in a run that this run re-executes. No "
            "person has reviewed it",
            remedy="review the metadata of mark, then materialize only sweep_approval for this partition. Re-executing "
            "this run approves nothing",
        )


def refuse_backup_of_same_launch(context: AssetExecutionContext, backup: AssetKey) -> None:
    """Raise ``BackupError`` if the launch that requests this restore also made the backup.

    "Materialize all" of the group is such a launch, of a person who wants a backup. A restore would void the approval.
    """
    if _is_of_same_launch(context, backup):
        raise BackupError(
            f"The backup of {context.partition_key} was made in this run, so its objects exist. Nothing was restored",
            remedy="To restore after a sweep, materialize only restore for this partition",
        )


def _is_of_same_launch(context: AssetExecutionContext, asset: AssetKey) -> bool:
    """Return whether the launch of this run also made the newest materialization of an asset in this partition."""
    records = context.instance.fetch_materializations(
        AssetRecordsFilter(asset_key=asset, asset_partitions=[context.partition_key]), limit=1
    ).records
    return bool(records) and not _launch_ids(context.instance, records[0].run_id).isdisjoint(
        _launch_ids_of(context.run)
    )


def _launch_ids(instance: DagsterInstance, run_id: str) -> set[str]:
    run = instance.get_run_by_id(run_id)
    # If the record of the run was deleted, its id may still be the parent or the root of the other run.
    return _launch_ids_of(run) if run else {run_id}


def _launch_ids_of(run: DagsterRun) -> set[str]:
    """Return the ids that a run shares with its re-executions, single or as a backfill."""
    ids = (run.run_id, run.parent_run_id, run.root_run_id, *(run.tags.get(tag) for tag in _BACKFILL_TAGS))
    return {launch_id for launch_id in ids if launch_id}
