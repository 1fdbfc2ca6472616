"""The partitions of every asset: ``<repository>/<run>``, one run of one repository."""

from __future__ import annotations

from collections.abc import Mapping

from dagster import AssetExecutionContext, JobDefinition, PartitionedConfig, PartitionsDefinition

from lakefs_gc.engine.run import repository_of
from lakefs_gc.pipeline.names import OWN, Names

gc_runs = OWN.runs

REPOSITORY_TAG = "lakefs_gc/repository"
"""Tag of a Dagster run. ``dagster.yaml`` limits runs to one at a time for each of its values."""


def repository_tags(run_key: str) -> Mapping[str, str]:
    """Return the tags of a run of this partition."""
    return {REPOSITORY_TAG: repository_of(run_key)}


def tags_of_new_partition(job: JobDefinition, run_key: str) -> Mapping[str, str]:
    """Return the tags of a run of ``job`` for a partition that need not exist yet.

    With the partition among its tags, a run is not compared with the partitions that exist. Its first asset adds it
    (``add_own_partition``), once it is not refused. So neither a dry run of the schedule nor a refused run leaves one.
    """
    return job.get_tags_for_partition_key(run_key, None)


def add_own_partition(context: AssetExecutionContext, names: Names) -> None:
    """Add the partition of a run to those that exist, unless it is one of them."""
    partitions = str(names.runs.name)
    if not context.instance.has_dynamic_partition(partitions, context.partition_key):
        context.instance.add_dynamic_partitions(partitions, [context.partition_key])


def repository_config(names: Names) -> PartitionedConfig[PartitionsDefinition[str]]:
    """Return an empty run configuration. It adds the repository's tag to each run of a job."""
    return PartitionedConfig(
        partitions_def=names.runs,
        run_config_for_partition_key_fn=lambda _: {},
        tags_for_partition_key_fn=repository_tags,
    )
