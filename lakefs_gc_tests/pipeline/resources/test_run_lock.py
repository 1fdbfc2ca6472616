"""Rule 10, on the run records of a real instance."""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from uuid import uuid4

import pytest
from dagster import (
    AssetExecutionContext,
    AssetKey,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    Definitions,
    DynamicPartitionsDefinition,
    ExecuteInProcessResult,
    JobDefinition,
    asset,
    materialize,
)
from dagster import (
    job as op_job,
)

from lakefs_gc.component import build_lakefs_gc_definitions
from lakefs_gc.config import Settings
from lakefs_gc.errors import ConfigurationError, RunInProgressError
from lakefs_gc.pipeline.code_location import build_definitions
from lakefs_gc.pipeline.resources.run_lock import process_tags, refuse_second_run

RUNS = DynamicPartitionsDefinition(name="gc_runs")
ACTIVE = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
AT_REST = [
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.SUCCESS,
    DagsterRunStatus.FAILURE,
    DagsterRunStatus.CANCELED,
]


@asset(partitions_def=RUNS)
def guarded(context: AssetExecutionContext) -> None:
    """An asset that may run once for each repository."""
    refuse_second_run(context)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    with DagsterInstance.local_temp(str(tmp_path)) as opened:
        yield opened


def other_run(instance: DagsterInstance, partition: str, status: DagsterRunStatus) -> str:
    """The record of a run in another process."""
    job = Definitions(assets=[guarded]).resolve_implicit_global_asset_job_def()
    tags = {"dagster/partition": partition} if partition else {}
    return instance.create_run_for_job(job, tags=tags, status=status).run_id


def starts(instance: DagsterInstance, run_id: str, at: float) -> None:
    """Dagster's own event for the run in another process; ``at`` is seconds since 1970."""
    event = DagsterEvent(DagsterEventType.PIPELINE_START.value, "job")
    instance.report_dagster_event(event, run_id, timestamp=at)


def run(instance: DagsterInstance, partition: str) -> ExecuteInProcessResult:
    instance.add_dynamic_partitions("gc_runs", [partition])
    return materialize([guarded], instance=instance, partition_key=partition)


@pytest.mark.parametrize("status", ACTIVE, ids=lambda status: status.value)
@pytest.mark.parametrize("partition", ["lake/other", "lake/one"])
def test_second_run_of_a_repository_is_refused(
    instance: DagsterInstance, status: DagsterRunStatus, partition: str
) -> None:
    run_id = other_run(instance, partition, status)
    with pytest.raises(RunInProgressError, match=f"run {run_id} of lake is in progress") as refused:
        run(instance, "lake/one")
    assert "terminate it in the UI" in refused.value.remedy


def started(instance: DagsterInstance, job: JobDefinition, assets: Collection[str] = (), **more_tags: str) -> str:
    """A run of a job, or of some assets of it, that is in progress elsewhere."""
    tags = {**job.get_tags_for_partition_key("lake/other", None), **more_tags}
    selected = {AssetKey(name) for name in assets} or None
    created = instance.create_run_for_job(job, tags=tags, asset_selection=selected, status=DagsterRunStatus.STARTED)
    return created.run_id


@pytest.mark.parametrize("prefix", ["", "gc__"])
def test_a_forecast_blocks_no_run(instance: DagsterInstance, prefix: str) -> None:
    """It starts by itself after a mark, which a person may sweep at once."""
    embedded = build_lakefs_gc_definitions(key_prefix="gc", settings={})
    definitions = embedded if prefix else build_definitions(Settings())
    for job, blocks in (("gc_forecast", False), ("gc_backup", True)):
        started(instance, definitions.resolve_job_def(prefix + job))
        with pytest.raises(RunInProgressError) if blocks else nullcontext():
            assert run(instance, "lake/one").success


@pytest.mark.parametrize("job", ["gc_mark", "gc_backup", "gc_sweep", "gc_restore"])
def test_no_tag_takes_a_run_out_of_the_check(instance: DagsterInstance, job: str) -> None:
    """A person may add tags to a run, or copy those of a forecast."""
    forecast = build_definitions(Settings()).resolve_job_def("gc_forecast")
    copied = {**forecast.tags, **forecast.get_tags_for_partition_key("lake/other", None)}
    by_hand = {**copied, "lakefs_gc/reads_only": "true"}
    started(instance, build_definitions(Settings()).resolve_job_def(job), **by_hand)
    with pytest.raises(RunInProgressError):
        run(instance, "lake/one")


@pytest.mark.parametrize("more", ["store_listing", "sweep"])
def test_a_run_that_makes_more_than_a_forecast_is_respected(instance: DagsterInstance, more: str) -> None:
    everything = build_definitions(Settings()).resolve_implicit_global_asset_job_def()
    started(instance, everything, ["forecast"])
    assert run(instance, "lake/one").success
    started(instance, everything, ["forecast", more])
    with pytest.raises(RunInProgressError):
        run(instance, "lake/one")


def test_a_run_of_which_nothing_is_recorded_is_respected(instance: DagsterInstance) -> None:
    """It may do anything."""

    @op_job(partitions_def=RUNS)
    def theirs() -> None: ...

    started(instance, theirs, **{"dagster/partition": "lake/other"})
    with pytest.raises(RunInProgressError):
        run(instance, "lake/one")


def test_a_run_whose_process_was_killed_is_in_nobodys_way(instance: DagsterInstance) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    killed = under_way(instance, f"{socket.gethostname()}:{ended.pid}")
    assert run(instance, "lake/one").success
    left = instance.get_run_by_id(killed)
    assert left is not None
    assert left.status is DagsterRunStatus.FAILURE


def test_a_run_of_a_living_process_or_of_another_machine_is_respected(instance: DagsterInstance) -> None:
    for process in (own_tag(), "another-machine:1"):
        under_way(instance, process)
        with pytest.raises(RunInProgressError):
            run(instance, "lake/one")


def test_a_run_that_is_executed_again_is_not_in_the_process_of_the_former_one(instance: DagsterInstance) -> None:
    """The UI copies the tags of a run of the command line, whose process has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    former = f"{uuid4()}@{socket.gethostname()}:{ended.pid}"
    again = started(instance, job_of_guarded(), **{"lakefs_gc/process": former, "dagster/parent_run_id": "former"})
    with pytest.raises(RunInProgressError, match=again):
        run(instance, "lake/one")


RANGE = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end")


@pytest.mark.parametrize("partition", ["lake/other", "lake/one"])
def test_a_run_of_a_range_of_partitions_is_respected(instance: DagsterInstance, partition: str) -> None:
    """Dagster lets a run of one partition name it as a range."""
    instance.add_dynamic_partitions("gc_runs", [partition])
    run_id = instance.create_run_for_job(
        job_of_guarded(), tags=dict.fromkeys(RANGE, partition), status=DagsterRunStatus.STARTED
    ).run_id
    with pytest.raises(RunInProgressError, match=run_id):
        run(instance, "lake/one")
    assert run(instance, "lake-2/one").success


def test_a_run_of_a_range_of_partitions_is_refused(instance: DagsterInstance) -> None:
    """``dagster.yaml`` limits the runs of a repository by a tag that such a run lacks."""
    instance.add_dynamic_partitions("gc_runs", ["lake/one"])
    with pytest.raises(ConfigurationError, match="a range of partitions"):
        materialize([guarded], instance=instance, tags=dict.fromkeys(RANGE, "lake/one"))


def job_of_guarded() -> JobDefinition:
    return Definitions(assets=[guarded]).resolve_implicit_global_asset_job_def()


def under_way(instance: DagsterInstance, process: str) -> str:
    """The record of a run that a process of the command line began."""
    run_id = str(uuid4())
    tags = {"dagster/partition": "lake/other", "lakefs_gc/process": f"{run_id}@{process}"}
    instance.create_run_for_job(job_of_guarded(), run_id=run_id, tags=tags, status=DagsterRunStatus.STARTED)
    return run_id


def own_tag() -> str:
    """This process, as the tag of a run has it."""
    return process_tags("run")["lakefs_gc/process"].removeprefix("run@")


def tag_of(process: subprocess.Popen[str]) -> str:
    """The process that ``began`` started, as the tag of a run has it."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


_SAYS_ITS_TAG = """
import sys
from pathlib import Path
from uuid import uuid4
from lakefs_gc.pipeline.resources.run_lock import process_tags
if Path("/proc/self/comm").exists():
    Path("/proc/self/comm").write_text("a) S 1 (b")
print(process_tags("run")["lakefs_gc/process"].removeprefix("run@"), flush=True)
sys.stdin.read()
"""


@contextmanager
def began(*within: str) -> Iterator[subprocess.Popen[str]]:
    """A process that says its tag, and lives meanwhile; ``within`` is a command that runs it."""
    command = [*within, sys.executable, "-c", _SAYS_ITS_TAG]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process  # leaving closes its input: it ends


in_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="tells processes apart by /proc")


@in_proc
@pytest.mark.parametrize("mounted", [["--mount-proc"], []], ids=["proc of its own", "the outer proc"])
def test_a_run_of_another_container_is_respected(instance: DagsterInstance, mounted: list[str]) -> None:
    """It has our host name, and its numbers are those of another PID namespace: whether it lives cannot be seen."""
    container = ["unshare", "-rpf", *mounted]
    if not shutil.which("unshare") or subprocess.run([*container, "true"], check=False).returncode:
        pytest.skip("no PID namespace of our own: user namespaces are not allowed here")
    with began(*container) as process:
        tag = tag_of(process)
        assert tag.startswith(f"{socket.gethostname()}:1:")
        for number in ("1", "4194304"):  # one that is alive here, and one that cannot be
            run_id = under_way(instance, tag.replace(":1:", f":{number}:", 1))
            with pytest.raises(RunInProgressError, match=run_id) as refused:
                run(instance, "lake/one")
            assert "Force termination immediately" in refused.value.remedy
            assert f"dagster run delete {run_id}" in refused.value.remedy
            instance.delete_run(run_id)


@in_proc
def test_a_run_of_another_boot_is_respected(instance: DagsterInstance) -> None:
    with began() as process:
        tag = tag_of(process)
    under_way(instance, f"{tag.rpartition(':')[0]}:00000000-0000-0000-0000-000000000000")
    with pytest.raises(RunInProgressError):
        run(instance, "lake/one")


@in_proc
def test_a_process_that_has_the_number_of_a_killed_one_is_another(instance: DagsterInstance) -> None:
    host, number, start, *place = own_tag().split(":")
    killed = under_way(instance, ":".join([host, number, str(int(start) - 1), *place]))
    assert run(instance, "lake/one").success
    left = instance.get_run_by_id(killed)
    assert left is not None
    assert left.status is DagsterRunStatus.FAILURE


@in_proc
def test_a_living_process_is_known_by_its_start_whatever_its_name(instance: DagsterInstance) -> None:
    with began() as process:
        tag = tag_of(process)
        assert int(tag.split(":")[2]) >= int(own_tag().split(":")[2])
        under_way(instance, tag)
        with pytest.raises(RunInProgressError):
            run(instance, "lake/one")
    assert run(instance, "lake/one").success, "it has ended"


@pytest.mark.parametrize("status", AT_REST, ids=lambda status: status.value)
def test_runs_that_wait_or_ended_are_in_nobodys_way(instance: DagsterInstance, status: DagsterRunStatus) -> None:
    other_run(instance, "lake/other", status)
    assert run(instance, "lake/one").success


@pytest.mark.parametrize("partition", ["lake-2/one", "pond/one", ""])
def test_other_repositories_are_in_nobodys_way(instance: DagsterInstance, partition: str) -> None:
    other_run(instance, partition, DagsterRunStatus.STARTED)
    assert run(instance, "lake/one").success


def test_of_two_runs_the_older_goes_on(instance: DagsterInstance) -> None:
    """Two that start at once do not refuse each other: the one that was stored first wins."""
    checked: list[str] = []

    @asset(partitions_def=RUNS)
    def first(context: AssetExecutionContext) -> None:
        other_run(instance, "lake/younger", DagsterRunStatus.STARTED)
        refuse_second_run(context)
        checked.append(context.run.run_id)

    instance.add_dynamic_partitions("gc_runs", ["lake/one"])
    assert materialize([first], instance=instance, partition_key="lake/one").success
    assert checked


def test_of_two_runs_the_one_that_started_first_goes_on(instance: DagsterInstance) -> None:
    """Though it was stored later: the other one waited in the queue meanwhile."""
    checked: list[str] = []

    @asset(partitions_def=RUNS)
    def waited(context: AssetExecutionContext) -> None:
        other = other_run(instance, "lake/other", DagsterRunStatus.NOT_STARTED)
        own = instance.get_run_record_by_id(context.run.run_id)
        assert own is not None
        assert own.start_time is not None
        starts(instance, other, own.start_time - 60)
        with pytest.raises(RunInProgressError, match=f"run {other} of lake is in progress"):
            refuse_second_run(context)
        checked.append(other)

    instance.add_dynamic_partitions("gc_runs", ["lake/one"])
    assert materialize([waited], instance=instance, partition_key="lake/one").success
    assert checked


def test_a_run_that_was_stored_first_and_started_second_is_in_nobodys_way(instance: DagsterInstance) -> None:
    """It is the one to be refused, when it looks."""
    other = other_run(instance, "lake/other", DagsterRunStatus.NOT_STARTED)
    starts(instance, other, time.time() + 60)
    assert run(instance, "lake/one").success
