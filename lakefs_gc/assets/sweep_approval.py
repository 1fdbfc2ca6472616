"""Asset ``sweep_approval``: a person says that a mark may be swept."""

import getpass

from dagster import (
    AssetExecutionContext,
    AssetRecordsFilter,
    Config,
    MaterializeResult,
    MetadataValue,
    ResourceParam,
    asset,
)
from pydantic import Field

from lakefs_gc.assets.mark import mark
from lakefs_gc.engine.approval import approve
from lakefs_gc.engine.dataset import utc_now
from lakefs_gc.errors import ApprovalError
from lakefs_gc.failures import failures_shown
from lakefs_gc.marked import mark_of_run
from lakefs_gc.metadata import human_bytes
from lakefs_gc.partitions import gc_runs
from lakefs_gc.resources.io_manager import SparkParquetIOManager
from lakefs_gc.resources.lakefs import LakeFSResource
from lakefs_gc.resources.settings import SettingsResource


class ApprovalConfig(Config):
    """What is approved."""

    mark_id: str = Field(default="", description="The mark; default: the one of this partition.")
    digest: str = Field(
        default="",
        description="The digest that was looked at, from the metadata of the mark.  Default: the one the mark has now.",
    )
    approved_by: str = Field(default="", description="Who approves; default: the user that runs Dagster.")
    overrides: list[str] = Field(
        default_factory=list, description="Brakes of this mark, by name, that do not keep it from being swept."
    )
    why: str = Field(default="", description="The reason for the overrides: it is recorded with the approval.")
    approved_via: str = Field(default="dagster", description="How it is approved: recorded with the approval.")


@asset(partitions_def=gc_runs, group_name="delete", kinds={"lakefs"}, deps=[mark])
@failures_shown()
def sweep_approval(
    context: AssetExecutionContext,
    config: ApprovalConfig,
    lakefs: LakeFSResource,
    settings: SettingsResource,
    parquet: ResourceParam[SparkParquetIOManager],
) -> MaterializeResult[None]:
    """Approve the sweep of this partition's mark, as it is now.

    The approval is void as soon as the mark has another digest.  Materialize it by itself, after a look at the mark.
    """
    _refuse_unseen_mark(context)
    found = mark_of_run(context.partition_key, config.mark_id, lakefs.server(), settings.get(), parquet.work_place)
    approval = approve(
        found.store,
        found.mark,
        config.digest or found.mark.digest,
        by=config.approved_by or context.run.tags.get("user") or getpass.getuser(),
        via=config.approved_via,
        now=utc_now(),
        overrides=dict.fromkeys(config.overrides, config.why),
    )
    return MaterializeResult(
        metadata={
            "mark_id": approval.mark_id,
            "digest": approval.digest,
            "approved_by": approval.approved_by,
            "approved_at": MetadataValue.timestamp(approval.approved_at),
            "overrides": ", ".join(approval.overrides) or "none",
            "why": config.why,
            "objects": found.mark.candidates,
            "size": human_bytes(found.mark.candidate_bytes or 0),
        }
    )


def _refuse_unseen_mark(context: AssetExecutionContext) -> None:
    """Raise ``ApprovalError`` when this very run made the mark: "Materialize all" is nobody's look at it."""
    records = context.instance.fetch_materializations(
        AssetRecordsFilter(asset_key=mark.key, asset_partitions=[context.partition_key]), limit=1
    ).records
    if records and records[0].run_id == context.run.run_id:
        raise ApprovalError(
            f"the mark of {context.partition_key} was made in this run, and nobody has looked at it",
            remedy="look at the metadata of mark, then materialize sweep_approval alone for this partition",
        )
