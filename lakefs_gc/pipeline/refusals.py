"""Ends a refused run so that the assets of its partition keep their statuses.

Dagster shows every asset that a failed run would have materialized as failed, although the run was refused before it
decided, deleted or copied anything. It does not for a canceled run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetSelection,
    DagsterRun,
    DagsterRunStatus,
    RunsFilter,
)
from dagster._core.storage.tags import SCHEDULE_NAME_TAG, SENSOR_NAME_TAG

from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.pipeline.run_records import materialized_by, materialized_until, planned

REFUSED_TAG = "lakefs_gc/refused"
"""Tag of a run that was canceled because it was refused. Its value is the run's id: a run that is executed again has
the tags of the former one."""
_PARTITION_TAG = "dagster/partition"


@contextmanager
def statuses_kept_if_refused(context: AssetExecutionContext, *, made: AssetKey | None = None) -> Iterator[None]:
    """Have Dagster cancel a run that an error in this block refuses. The step fails all the same.

    The block must end before the asset deletes, copies or writes data. The run fails, as any other does,

    - if the partition has no data of ``made``: a new mark that fails must show. Default: the run is canceled in a new
      partition, too;
    - if a sensor or a schedule started it: no person waits for its result, and an approved sweep that is refused must
      show;
    - if an asset of the run has failed there before, because the refusal would hide that;
    - after a transient error, because Dagster may try again;
    - if it has assets that neither wait for this one nor are done, for example those of other people.
    """
    try:
        yield
    except LakeFSGCError as error:
        error.is_refusal = True
        keep_statuses(context, error, made=made)
        raise


def keep_statuses(context: AssetExecutionContext, error: LakeFSGCError, *, made: AssetKey | None = None) -> None:
    """Have Dagster cancel the run that ``error`` refuses, with the exceptions of ``statuses_kept_if_refused``.

    The caller raises the error.
    """
    if error.transient or not _is_as_it_was(context, made):
        return
    instance, run = context.instance, context.run
    instance.add_run_tags(run.run_id, {REFUSED_TAG: run.run_id})
    # Dagster ends a run that is canceling as canceled when a step has failed.
    instance.report_run_canceling(
        run,
        f"This run was refused: {error.message}. It deleted and copied nothing, so it ends as canceled, and the assets "
        f"of {context.partition_key} keep their statuses",
    )


def is_refused(run: DagsterRun) -> bool:
    """Return whether a run ended as canceled because it was refused."""
    return run.tags.get(REFUSED_TAG) == run.run_id


def _is_as_it_was(context: AssetExecutionContext, made: AssetKey | None) -> bool:
    """Return whether a canceled run hides nothing: see ``statuses_kept_if_refused``."""
    instance, own = context.instance, context.run
    if own.tags.keys() & {SENSOR_NAME_TAG, SCHEDULE_NAME_TAG}:
        return False
    if made and not materialized_until(instance, made, context.partition_key):
        return False
    will_make = planned(instance, own.run_id)
    begun_here = AssetSelection.assets(*context.assets_def.keys).downstream()
    waiting = begun_here.resolve(context.job_def.asset_layer.asset_graph)
    if not will_make.keys() <= waiting | materialized_by(instance, own.run_id):
        return False
    failed = instance.get_runs(
        RunsFilter(statuses=[DagsterRunStatus.FAILURE], tags={_PARTITION_TAG: context.partition_key})
    )
    return not any(
        key in will_make and storage_id > materialized_until(instance, key, context.partition_key)
        for run in failed
        for key, storage_id in planned(instance, run.run_id).items()
    )
