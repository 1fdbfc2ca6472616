"""A run that is refused leaves the statuses of a complete partition as they were, and no failure disappears."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetSelection,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    Definitions,
    DynamicPartitionsDefinition,
    JobDefinition,
    asset,
    build_reconstructable_job,
    define_asset_job,
    execute_job,
    multiprocess_executor,
)
from dagster._core.storage.partition_status_cache import AssetPartitionStatus

from lakefs_gc.errors import ClockSkewError, LakeFSGCError, ServerUnavailableError
from lakefs_gc.pipeline.refusals import REFUSED_TAG, is_refused, statuses_kept_if_refused
from lakefs_gc.pipeline.ui.failures import failures_shown
from lakefs_gc_tests.docs.generate import ROOT

RUN = "lake/first"
FINE = ""
REFUSED = ClockSkewError.__name__
UNAVAILABLE = ServerUnavailableError.__name__
RUNS = DynamicPartitionsDefinition(name="gc_runs")
ERRORS: dict[str, LakeFSGCError] = {
    REFUSED: ClockSkewError("the clocks differ"),
    UNAVAILABLE: ServerUnavailableError("no answer"),
}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    with DagsterInstance.local_temp(str(tmp_path), overrides={"telemetry": {"enabled": False}}) as opened:
        yield opened


@asset(partitions_def=RUNS)
@failures_shown()
def first(context: AssetExecutionContext) -> None:
    """Begins a run, unless a tag of the run says that it is refused."""
    with statuses_kept_if_refused(context, made=context.asset_key):
        if error := ERRORS.get(context.run.tags.get("refused", FINE)):
            raise error


@asset(partitions_def=RUNS, deps=[first])
@failures_shown()
def second(context: AssetExecutionContext) -> None:
    """Follows, unless a tag of the run says that it is refused, or fails afterwards. A person starts it."""
    with statuses_kept_if_refused(context):
        if "second_refused" in context.run.tags:
            raise ClockSkewError("the clocks differ")
    if "fails" in context.run.tags:
        raise ClockSkewError("the clocks differ")


@asset(partitions_def=RUNS, deps=[second])
def another(context: AssetExecutionContext) -> None:
    """Is of no interest to the job ``begin``."""
    raise ClockSkewError("it always fails")


@asset(partitions_def=RUNS)
def unrelated() -> None:
    """Waits for no other, and comes after them."""


def begin() -> JobDefinition:
    """The job whose steps run in processes of their own, as Dagster's default is."""
    jobs = [define_asset_job("begin", AssetSelection.assets("first", "second"))]
    return Definitions([first, second], jobs=jobs, executor=multiprocess_executor).resolve_job_def("begin")


def run(instance: DagsterInstance, *assets: str, **tags: str) -> DagsterRun:
    """Run assets in this process, and return the run as it ended."""
    instance.add_dynamic_partitions("gc_runs", [RUN])
    result = (
        Definitions([first, second, another, unrelated])
        .resolve_implicit_global_asset_job_def()
        .execute_in_process(
            instance=instance,
            partition_key=RUN,
            tags=tags,
            raise_on_error=False,
            asset_selection=[AssetKey(name) for name in assets or ("first", "second")],
        )
    )
    ended = instance.get_run_by_id(result.run_id)
    assert ended is not None
    return ended


def statuses(instance: DagsterInstance) -> list[AssetPartitionStatus | None]:
    """Return the statuses that the UI shows for ``first`` and ``second``."""
    found = []
    for name in ("first", "second"):
        of_asset = instance.get_status_by_partition(AssetKey(name), [RUN], RUNS)
        found.append(of_asset[RUN] if of_asset else None)
    return found


MADE = [AssetPartitionStatus.MATERIALIZED] * 2


def test_a_refused_run_leaves_a_complete_partition_as_it_was(instance: DagsterInstance) -> None:
    assert run(instance).is_success
    refused = run(instance, refused=REFUSED)
    assert (refused.status, is_refused(refused)) == (DagsterRunStatus.CANCELED, True)
    assert statuses(instance) == MADE
    (said,) = [
        str(record.event_log_entry.get_dagster_event().message)
        for record in instance.get_records_for_run(refused.run_id, of_type=DagsterEventType.RUN_CANCELING).records
    ]
    assert "was refused: the clocks differ" in said


def test_it_does_so_if_its_steps_have_processes_of_their_own(instance: DagsterInstance) -> None:
    assert run(instance).is_success
    tags = {"dagster/partition": RUN, "refused": REFUSED}
    # Dagster's processes do not look for modules in the working directory by themselves.
    job = build_reconstructable_job(__name__, "begin", reconstructor_working_directory=str(ROOT))
    with execute_job(job, instance, tags=tags) as result:
        assert not result.success
        ended = instance.get_run_by_id(result.run_id)
    assert ended is not None
    assert ended.status is DagsterRunStatus.CANCELED
    assert statuses(instance) == MADE


def test_a_run_with_assets_that_do_not_wait_fails(instance: DagsterInstance) -> None:
    """Their failure, or their data, must not disappear behind the refusal."""
    assert run(instance).is_success
    refused = run(instance, "first", "second", "unrelated", refused=REFUSED)
    assert (refused.status, is_refused(refused)) == (DagsterRunStatus.FAILURE, False)


def test_a_run_that_is_executed_again_is_not_refused_by_the_tag_of_the_former(instance: DagsterInstance) -> None:
    assert run(instance).is_success
    former = run(instance, refused=REFUSED).tags
    again = run(instance, **{**former, "refused": FINE, "fails": "yes"})
    assert REFUSED_TAG in again.tags
    assert not is_refused(again)


def test_a_refused_run_of_a_new_partition_fails(instance: DagsterInstance) -> None:
    """It may be a run of the schedule, and the sensors of people read failed runs."""
    refused = run(instance, refused=REFUSED)
    assert refused.status is DagsterRunStatus.FAILURE
    assert REFUSED_TAG not in refused.tags


@pytest.mark.parametrize("tag", ["dagster/sensor_name", "dagster/schedule_name"])
def test_a_refused_run_that_nobody_watches_fails(instance: DagsterInstance, tag: str) -> None:
    assert run(instance).is_success
    assert run(instance, refused=REFUSED, **{tag: "sweep_after_mark"}).status is DagsterRunStatus.FAILURE


@pytest.mark.parametrize("looked_at", [False, True])
def test_a_refusal_does_not_hide_that_an_asset_has_failed(instance: DagsterInstance, looked_at: bool) -> None:
    assert run(instance, fails="yes").status is DagsterRunStatus.FAILURE
    before = [AssetPartitionStatus.MATERIALIZED, AssetPartitionStatus.FAILED]
    assert not looked_at or statuses(instance) == before  # Dagster stores what it has shown
    assert run(instance, refused=REFUSED).status is DagsterRunStatus.FAILURE
    assert statuses(instance)[1] is AssetPartitionStatus.FAILED
    # It is no longer so once the assets were made.
    assert run(instance).is_success
    assert run(instance, refused=REFUSED).status is DagsterRunStatus.CANCELED
    assert statuses(instance) == MADE


def test_a_refusal_of_what_a_person_starts_is_not_red_in_a_new_partition_either(instance: DagsterInstance) -> None:
    assert run(instance, "first").is_success
    refused = run(instance, "second", second_refused="yes")
    assert (refused.status, is_refused(refused)) == (DagsterRunStatus.CANCELED, True)
    assert statuses(instance) == [AssetPartitionStatus.MATERIALIZED, None]
    # It failed after it began: neither is that hidden, nor is it hidden by a later refusal.
    assert run(instance, "second", fails="yes").status is DagsterRunStatus.FAILURE
    assert run(instance, "second", second_refused="yes").status is DagsterRunStatus.FAILURE
    assert statuses(instance)[1] is AssetPartitionStatus.FAILED


def test_what_the_run_made_before_the_refusal_is_not_hidden(instance: DagsterInstance) -> None:
    """ "Materialize all" makes a backup, and its restore is refused."""
    refused = run(instance, second_refused="yes")
    assert (refused.status, is_refused(refused)) == (DagsterRunStatus.CANCELED, True)
    assert statuses(instance) == [AssetPartitionStatus.MATERIALIZED, None]


def test_failures_of_other_assets_do_not_matter(instance: DagsterInstance) -> None:
    assert run(instance).is_success
    assert run(instance, "another").status is DagsterRunStatus.FAILURE
    assert run(instance, refused=REFUSED).status is DagsterRunStatus.CANCELED


def test_a_run_that_dagster_may_try_again_fails(instance: DagsterInstance) -> None:
    assert run(instance).is_success
    assert run(instance, refused=UNAVAILABLE).status is DagsterRunStatus.FAILURE
