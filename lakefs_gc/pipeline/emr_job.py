"""Runs in a job on EMR: runs the assets that Dagster requested, and reports each of them to Dagster.

The Pipes context brings the partition, the settings and the run configuration. The reports contain what Dagster records
for the same assets in one process, so the UI shows the same in both cases.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
from dagster import (
    BoolMetadataValue,
    Config,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    EventLogEntry,
    FloatMetadataValue,
    IntMetadataValue,
    JsonMetadataValue,
    MarkdownMetadataValue,
    MetadataValue,
    PathMetadataValue,
    TableColumn,
    TableMetadataValue,
    TableSchemaMetadataValue,
    TextMetadataValue,
    TimestampMetadataValue,
)
from dagster._core.errors import DagsterAssetCheckFailedError
from dagster_pipes import (
    PipesContext,
    PipesMappingParamsLoader,
    PipesMetadataValue,
    PipesS3ContextLoader,
    PipesS3MessageWriter,
    open_dagster_pipes,
)

from lakefs_gc.config import Settings
from lakefs_gc.errors import ConfigurationError, LakeFSGCError
from lakefs_gc.pipeline.assets.backup import BackupConfig
from lakefs_gc.pipeline.assets.forecast import ForecastConfig
from lakefs_gc.pipeline.assets.restore import RestoreConfig
from lakefs_gc.pipeline.assets.store_listing import ListingConfig
from lakefs_gc.pipeline.assets.sweep import SweepConfig
from lakefs_gc.pipeline.session import GCSession

_CONFIGURED: dict[str, tuple[str, type[Config]]] = {
    "gc_mark": ("store_listing", ListingConfig),
    "gc_forecast": ("forecast", ForecastConfig),
    "gc_backup": ("backup", BackupConfig),
    "gc_sweep": ("sweep", SweepConfig),
    "gc_restore": ("restore", RestoreConfig),
}
"""For each job the asset that takes the run configuration. Approving is not a job, because a person approves."""

_MESSAGES_SECONDS = 5

_PLAIN: dict[type[MetadataValue[Any]], str] = {
    BoolMetadataValue: "bool",
    FloatMetadataValue: "float",
    IntMetadataValue: "int",
    JsonMetadataValue: "json",
    MarkdownMetadataValue: "md",
    PathMetadataValue: "path",
    TextMetadataValue: "text",
    TimestampMetadataValue: "timestamp",
}


def run_job(job: str) -> None:
    """Run a job for the Dagster that started this process.

    Raises ``ConfigurationError`` if Dagster did not start it and for an unknown job, and what the stages raise. A mark
    with a failed check does not raise: Dagster receives the checks and fails the run.
    """
    if not PipesMappingParamsLoader(os.environ).is_dagster_pipes_process():
        raise ConfigurationError(
            "this process was not started by Dagster Pipes, so it cannot report its results",
            remedy="run `lakefs-gc mark` or `sweep` instead. On EMR, check that the job's driver gets its environment "
            "variables: it needs deploy mode cluster",
        )
    if job not in _CONFIGURED:
        raise ConfigurationError(f"Unknown job {job!r}", remedy=f"pass one of {', '.join(_CONFIGURED)}")
    client = boto3.client("s3")
    loader, writer = PipesS3ContextLoader(client), PipesS3MessageWriter(client, interval=_MESSAGES_SECONDS)
    with (
        open_dagster_pipes(context_loader=loader, message_writer=writer) as pipes,
        _log_forwarded(pipes),
        DagsterInstance.ephemeral() as instance,
    ):
        reporter = Reporter(pipes)
        instance.add_event_listener(pipes.run_id, reporter.on_event)
        session = GCSession(Settings.model_validate(pipes.get_extra("settings")), instance)
        asset, config = _CONFIGURED[job]
        try:
            session.materialize(
                job, pipes.partition_key, {asset: config(**pipes.get_extra("config"))}, run_id=pipes.run_id
            )
        except DagsterAssetCheckFailedError:
            pass
        except LakeFSGCError as error:
            reporter.report_error(error)
            raise


class Reporter:
    """Sends the events of a run to Dagster as Pipes messages."""

    def __init__(self, pipes: PipesContext) -> None:
        self._pipes = pipes
        self._failure_metadata: Mapping[str, MetadataValue[Any]] = {}

    def on_event(self, entry: EventLogEntry) -> None:
        """Report a materialization or the result of a check."""
        event = entry.dagster_event
        if event is None:
            return
        if event.event_type is DagsterEventType.ASSET_MATERIALIZATION:
            materialization = event.step_materialization_data.materialization
            self._pipes.report_asset_materialization(
                metadata=pipes_metadata(materialization.metadata),
                asset_key=materialization.asset_key.to_escaped_user_string(),
            )
        elif event.event_type is DagsterEventType.ASSET_CHECK_EVALUATION:
            check = event.asset_check_evaluation_data
            self._pipes.report_asset_check(
                check_name=check.check_name,
                passed=check.passed,
                severity=check.severity.value,
                metadata=pipes_metadata(check.metadata),
                asset_key=check.asset_key.to_escaped_user_string(),
            )
        elif event.event_type is DagsterEventType.STEP_FAILURE:
            self._failure_metadata = _failure_metadata(event)

    def report_error(self, error: LakeFSGCError) -> None:
        """Report why the job failed, so that Dagster shows the same error as for a run in its own process."""
        facts = json.loads(json.dumps(error.facts, default=str))
        failure = {
            "error": type(error).__name__,
            "message": error.message,
            "remedy": error.remedy,
            "facts": facts,
            "is_refusal": error.is_refusal,
            "metadata": pipes_metadata(self._failure_metadata),
        }
        self._pipes.report_custom_message({"failure": failure})


def _failure_metadata(event: DagsterEvent) -> Mapping[str, MetadataValue[Any]]:
    failure = event.step_failure_data.user_failure_data
    return failure.metadata if failure else {}


def pipes_metadata(metadata: Mapping[str, MetadataValue[Any]]) -> dict[str, PipesMetadataValue]:
    """Return metadata in the form of Pipes messages. Dagster converts it back to equal metadata."""
    return {name: _pipes_value(value) for name, value in metadata.items()}


def _pipes_value(value: MetadataValue[Any]) -> PipesMetadataValue:
    if isinstance(value, TableMetadataValue):
        records = [dict(record.data) for record in value.records]
        raw = {"records": records, "schema": [_column(column) for column in value.schema.columns]}
        return {"type": "table", "raw_value": raw}
    if isinstance(value, TableSchemaMetadataValue):
        return {"type": "table_schema", "raw_value": {"columns": [_column(c) for c in value.schema.columns]}}
    kind: Any = _PLAIN.get(type(value), "text")
    return {"type": kind, "raw_value": value.value if type(value) in _PLAIN else str(value.value)}


def _column(column: TableColumn) -> dict[str, Any]:
    constraints = column.constraints
    return {
        "name": column.name,
        "type": column.type,
        "description": column.description,
        "tags": dict(column.tags),
        "constraints": {
            "nullable": constraints.nullable,
            "unique": constraints.unique,
            "other": list(constraints.other or ()),
        },
    }


@contextmanager
def _log_forwarded(pipes: PipesContext) -> Iterator[None]:
    """Send the log of the stages to Dagster while the job runs."""
    logger = logging.getLogger("lakefs_gc")
    handlers = list(pipes.log.handlers)
    for handler in handlers:
        handler.setLevel(logging.INFO)
        logger.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
