"""The code location: run its jobs in this process, in a real Dagster instance, and read what they show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetRecordsFilter,
    AssetSelection,
    DagsterInstance,
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
from lakefs_gc.pipeline.code_location import build_definitions
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc.pipeline.sweep_sensor import SensorCursor, evaluate

RUN = "lake/first"


def all_assets(settings: str) -> JobDefinition:
    """A job of every asset, as Dagster makes it anew for each run that is not in process."""
    definitions = build_definitions(Settings.model_validate_json(settings))
    job = define_asset_job("all_assets", AssetSelection.all())
    return Definitions.merge(definitions, Definitions(jobs=[job])).resolve_job_def("all_assets")


@dataclass
class CodeLocation:
    """What Dagster loads, and the instance that it runs in."""

    settings: Settings
    definitions: Definitions
    instance: DagsterInstance
    cursor: SensorCursor

    @classmethod
    def of(cls, settings: Settings, instance: DagsterInstance) -> CodeLocation:
        return cls(settings, build_definitions(settings), instance, SensorCursor())

    def run(self, job: str, run_key: str, **ops: dict[str, Any]) -> ExecuteInProcessResult:
        """Run a job for a partition; its failure is in the result."""
        self.instance.add_dynamic_partitions(str(gc_runs.name), [run_key])
        return self.definitions.resolve_job_def(job).execute_in_process(
            run_config={"ops": {op: {"config": config} for op, config in ops.items()}},
            partition_key=run_key,
            instance=self.instance,
            raise_on_error=False,
        )

    def approve(self, run_key: str, **config: Any) -> ExecuteInProcessResult:
        """What somebody does who has looked at the mark of a partition."""
        wanted = AssetRecordsFilter(asset_key=AssetKey("mark"), asset_partitions=[run_key])
        (record,) = self.instance.fetch_materializations(wanted, limit=1).records
        assert record.asset_materialization is not None
        seen = {"digest": values(record.asset_materialization)["digest"], "approved_by": "ada"}
        return self.run("gc_approve", run_key, sweep_approval=seen | config)

    def materialize(self, run_key: str, *assets: str, tags: dict[str, str] | None = None) -> ExecuteInProcessResult:
        """What the Materialize button does with a selection."""
        self.instance.add_dynamic_partitions(str(gc_runs.name), [run_key])
        return self.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            partition_key=run_key,
            instance=self.instance,
            raise_on_error=False,
            asset_selection=[key for key in _keys(self.definitions) if key.path[-1] in assets],
            tags=tags,
        )

    def re_execute(self, run_id: str, **ops: dict[str, Any]) -> JobExecutionResult:
        """What "Re-execute from failure" does, and Dagster's daemon where runs are tried again."""
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
        """One tick of the sensor, and the runs that it asks for."""
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
    """What a run materialized, by asset."""
    return {
        event.asset_key.path[-1]: event.materialization
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None
    }


def values(materialization: AssetMaterialization) -> dict[str, Any]:
    """Metadata as plain values."""
    return {name: value.value for name, value in materialization.metadata.items()}


def failure_of(result: ExecuteInProcessResult | JobExecutionResult, step: str) -> dict[str, Any]:
    """The failure of a step as the UI shows it: its description, and its metadata."""
    assert not result.success
    (event,) = [event for event in result.get_step_failure_events() if event.step_key == step]
    data = event.step_failure_data.user_failure_data
    assert data is not None, event.step_failure_data.error
    return {"description": data.description, **{name: value.value for name, value in data.metadata.items()}}


def assert_numbers_plot(materialization: AssetMaterialization, *names: str) -> None:
    """Dagster plots whole and decimal numbers over runs, and nothing else; and no value is left to machines."""
    for name in names:
        assert isinstance(materialization.metadata[name], IntMetadataValue | FloatMetadataValue), name
    assert not any(isinstance(value, JsonMetadataValue) for value in materialization.metadata.values())
