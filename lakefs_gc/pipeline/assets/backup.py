"""Asset ``backup``: copies of what a mark says, outside the namespace, each proved."""

from dagster import AssetExecutionContext, Config, MetadataValue, asset
from pydantic import Field

from lakefs_gc.engine.records.backup_location import open_backup_location
from lakefs_gc.engine.records.stored_marks import mark_of_run
from lakefs_gc.engine.run import checked_store_time
from lakefs_gc.engine.undo import backup as stage
from lakefs_gc.engine.undo.pruning import kept_facts, prune_backups
from lakefs_gc.engine.workspace.workspace import StageOutput
from lakefs_gc.errors import BackupIncompleteError
from lakefs_gc.pipeline.assets.mark import mark
from lakefs_gc.pipeline.failures import failure_of, failures_shown
from lakefs_gc.pipeline.metadata import Metadata, table
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.resources.engine import EngineResource
from lakefs_gc.pipeline.resources.run_lock import refuse_second_run
from lakefs_gc.units import human_bytes


class BackupConfig(Config):
    """What is backed up."""

    mark_id: str = Field(default="", description="The mark; default: the one of this partition.")


@asset(
    partitions_def=gc_runs,
    group_name="undo",
    kinds={"spark", "s3"},
    io_manager_key="parquet",
    deps=[mark],
)
@failures_shown()
def backup(
    context: AssetExecutionContext,
    config: BackupConfig,
    engine: EngineResource,
) -> StageOutput:
    """Copy every marked object to the place of the backups, and prove that each copy is the same.

    Materializing it again goes on where it stopped.  It fails while one object is neither copied nor gone.  At its end
    the repository's backups that are past their time are removed.  `lakefs-gc restore` brings a backup back.
    """
    refuse_second_run(context)
    run_context = engine.context()
    configured, server = run_context.settings, run_context.server
    place = open_backup_location(configured, server)
    # By its clock backups are dated and grow old; pruning on a wrong one would remove them all.
    now = checked_store_time(run_context.open_store(place), configured.safety, run_context.clock)
    found = mark_of_run(context.partition_key, config.mark_id, server, configured, run_context.workspace)
    output, result = stage.backup(run_context, found.store.location, found.mark, place, run_key=context.partition_key)
    metadata = backup_metadata(result)
    try:
        result.raise_if_incomplete()
    except BackupIncompleteError as error:
        error.facts["errors"] = stage.failures(output.dataframe)
        raise failure_of(error, {"errors": table(error.facts["errors"])} | metadata) from error
    pruned = prune_backups(
        run_context.open_store(place),
        found.mark.repository,
        configured.backup.keep_days,
        now,
        lambda namespace: run_context.open_store(configured.reach(namespace)),
    )
    kept = {"old_backups_kept": table([kept_facts(*each) for each in pruned.kept])} if pruned.kept else {}
    context.add_output_metadata(metadata | {"pruned_backups": len(pruned.removed)} | kept)
    return output


def backup_metadata(result: stage.BackupResult) -> Metadata:
    """What the UI shows of a backup."""
    return {
        "outcomes": table(
            [
                {"outcome": name, "objects": objects, "size": human_bytes(result.size_bytes[name])}
                for name, objects in result.objects.items()
            ]
        ),
        "proofs": table([{"proof": proof, "objects": objects} for proof, objects in result.proofs.items()]),
        **{f"{name}_objects": objects for name, objects in result.objects.items()},
        **{f"{name}_bytes": size_bytes for name, size_bytes in result.size_bytes.items()},
        **({"backup_digest": MetadataValue.text(result.backup.digest)} if result.backup else {}),
    }
