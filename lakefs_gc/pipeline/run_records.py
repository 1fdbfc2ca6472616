"""What Dagster has recorded about the assets of a run."""

from __future__ import annotations

from collections.abc import Mapping

from dagster import AssetKey, AssetRecordsFilter, DagsterEventType, DagsterInstance


def planned(instance: DagsterInstance, run_id: str) -> Mapping[AssetKey, int]:
    """Return the assets that a run would materialize, with the storage ids of the records that say so.

    Dagster writes these records when it creates the run, before the run starts.
    """
    records = instance.get_records_for_run(run_id, of_type=DagsterEventType.ASSET_MATERIALIZATION_PLANNED).records
    return {record.asset_key: record.storage_id for record in records if record.asset_key}


def materialized_by(instance: DagsterInstance, run_id: str) -> set[AssetKey]:
    """Return the assets that a run has materialized."""
    records = instance.get_records_for_run(run_id, of_type=DagsterEventType.ASSET_MATERIALIZATION).records
    return {record.asset_key for record in records if record.asset_key}


def materialized_until(instance: DagsterInstance, key: AssetKey, partition: str) -> int:
    """Return the storage id of the newest materialization of an asset in a partition. 0 if there is none."""
    wanted = AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    records = instance.fetch_materializations(wanted, limit=1).records
    return records[0].storage_id if records else 0
