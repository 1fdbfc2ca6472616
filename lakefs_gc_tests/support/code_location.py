"""The code location: run its jobs in this process, in a real Dagster instance, and read the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetRecordsFilter,
    AssetSelection,
    DagsterInstance,
    DagsterRunStatus,
    Definitions,
    ExecuteInProcessResult,
    FloatMetadataValue,
    IntMetadataValue,
    JobDefinition,
    JobExecutionResult,
    JsonMetadataValue,
    ReexecutionOptions,
    build_reconstructable_job,
    define_asset_job,
    execute_job,
)

from lakefs_gc.config import Settings, SweepSettings
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.pipeline.automation.sweep_sensor import SensorCursor, evaluate
from lakefs_gc.pipeline.code_location import build_definitions
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.refusals import is_refused

RUN = "lake/first"


def all_assets(settings: str) -> JobDefinition:
    """Return a job of all assets, as Dagster creates it again for each run in another process."""
    definitions = build_definitions(Settings.model_validate_json(settings))
    job = define_asset_job("all_assets", AssetSelection.all())
    return Definitions.merge(definitions, Definitions(jobs=[job])).resolve_job_def("all_assets")


@dataclass
class CodeLocation:
    """The definitions that Dagster loads, and the instance that runs them."""

    settings: Settings
    definitions: Definitions
    instance: DagsterInstance
    cursor: SensorCursor

    @classmethod
    def of(cls, settings: Settings, instance: DagsterInstance) -> CodeLocation:
        return cls(settings, build_definitions(settings), instance, SensorCursor())

    def run(self, job: str, run_key: str, **ops: dict[str, Any]) -> ExecuteInProcessResult:
        """Run a job for a partition. A failure is in the result."""
        self.instance.add_dynamic_partitions(str(gc_runs.name), [run_key])
        return self.definitions.resolve_job_def(job).execute_in_process(
            run_config={"ops": {op: {"config": config} for op, config in ops.items()}},
            partition_key=run_key,
            instance=self.instance,
            raise_on_error=False,
        )

    def approve(self, run_key: str, **config: Any) -> ExecuteInProcessResult:
        """Approve the mark of a partition as a person who has reviewed it."""
        wanted = AssetRecordsFilter(asset_key=AssetKey("mark"), asset_partitions=[run_key])
        (record,) = self.instance.fetch_materializations(wanted, limit=1).records
        assert record.asset_materialization is not None
        seen = {"digest": values(record.asset_materialization)["digest"], "approved_by": "ada"}
        return self.run("gc_approve", run_key, sweep_approval=seen | config)

    def marks_what_now(self, run_key: str) -> str:
        """Return what the page of a mark says now, after what happened to the mark since it was made."""
        return str(self.seen_since(run_key)["what_now"])

    def seen_since(self, run_key: str) -> dict[str, Any]:
        """Return what the page of a mark shows of what happened to the mark since it was made."""
        wanted = AssetRecordsFilter(asset_key=AssetKey("mark"), asset_partitions=[run_key])
        (record,) = self.instance.fetch_observations(wanted, limit=1).records
        assert record.event_log_entry.asset_observation is not None
        metadata = record.event_log_entry.asset_observation.metadata
        return {name: getattr(value, "value", value) for name, value in metadata.items()}

    def materialize(self, run_key: str, *assets: str, tags: dict[str, str] | None = None) -> ExecuteInProcessResult:
        """Materialize a selection as the button "Materialize" does."""
        self.instance.add_dynamic_partitions(str(gc_runs.name), [run_key])
        return self.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            partition_key=run_key,
            instance=self.instance,
            raise_on_error=False,
            asset_selection=[key for key in _keys(self.definitions) if key.path[-1] in assets],
            tags=tags,
        )

    def start(self, tags: Mapping[str, str]) -> JobExecutionResult:
        """Run all assets as Dagster's daemon does, for whatever partition the tags name."""
        settings = self.settings.model_dump_json(exclude_unset=True)
        job = build_reconstructable_job(__name__, "all_assets", (settings,))
        with execute_job(job, self.instance, tags=dict(tags)) as result:
            return result

    def re_execute(self, run_id: str, **ops: dict[str, Any]) -> JobExecutionResult:
        """Re-execute a run from its failure, as the button does, and as Dagster's daemon does for run retries."""
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        settings = self.settings.model_dump_json(exclude_unset=True)
        with execute_job(
            build_reconstructable_job(__name__, "all_assets", (settings,)),
            self.instance,
            run_config={"ops": {op: {"config": config} for op, config in ops.items()}},
            tags={"dagster/partition": run.tags["dagster/partition"]},
            reexecution_options=ReexecutionOptions.from_failure(run_id, self.instance),
        ) as result:
            return result

    def sweeps_by_sensor(self, settings: SweepSettings | None = None) -> list[ExecuteInProcessResult]:
        """Return the runs that one tick of the sensor requests."""
        requests, self.cursor, _ = evaluate(
            self.instance, self.cursor, settings or self.settings.sweep, utc_now().timestamp()
        )
        return [
            self.run("gc_sweep", str(request.partition_key), sweep=request.run_config["ops"]["sweep"]["config"])
            for request in requests
        ]


def _keys(definitions: Definitions) -> list[Any]:
    return [spec.key for spec in definitions.resolve_all_asset_specs()]


def materialized(result: ExecuteInProcessResult) -> dict[str, AssetMaterialization]:
    """Return the materializations of a run by asset."""
    return {
        event.asset_key.path[-1]: event.materialization
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None
    }


def values(materialization: AssetMaterialization) -> dict[str, Any]:
    """Return metadata as plain values."""
    return {name: value.value for name, value in materialization.metadata.items()}


def failure_of(result: ExecuteInProcessResult | JobExecutionResult, step: str) -> dict[str, Any]:
    """Return the failure of a step as the UI shows it: its description, and its metadata."""
    assert not result.success
    (event,) = [event for event in result.get_step_failure_events() if event.step_key == step]
    data = event.step_failure_data.user_failure_data
    assert data is not None, event.step_failure_data.error
    return {"description": data.description, **{name: value.value for name, value in data.metadata.items()}}


def refusal_of(result: ExecuteInProcessResult, instance: DagsterInstance, asset: str) -> dict[str, Any]:
    """Return the failure of a run that was refused, which left the asset without a status in its new partition."""
    shown = failure_of(result, result.dagster_run.job_name.removeprefix("gc_"))
    ended = instance.get_run_by_id(result.run_id)
    assert ended is not None
    assert (ended.status, is_refused(ended)) == (DagsterRunStatus.CANCELED, True)
    partition = ended.tags["dagster/partition"]
    statuses = instance.get_status_by_partition(AssetKey(asset), [partition], gc_runs) or {}
    assert statuses.get(partition) is None
    return shown


def assert_numbers_plot(materialization: AssetMaterialization, *names: str) -> None:
    """Assert that all numbers are of a type that Dagster plots over runs."""
    for name in names:
        assert isinstance(materialization.metadata[name], IntMetadataValue | FloatMetadataValue), name
    as_json = {name for name, value in materialization.metadata.items() if isinstance(value, JsonMetadataValue)}
    assert as_json <= {"notification"}, "which is for the sensor"
