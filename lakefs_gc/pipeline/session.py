"""Runs the assets in this process, so that the command line, cron and the UI run the same code.

The command line and the demo use the Dagster instance of ``DAGSTER_HOME``, or an ephemeral one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetRecordsFilter,
    AssetSelection,
    Config,
    DagsterInstance,
    Definitions,
    RunConfig,
)
from dagster._core.errors import DagsterAssetCheckFailedError, DagsterExecutionInterruptedError
from py4j.protocol import Py4JError
from pyspark import SparkContext

from lakefs_gc.config import Settings
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.spark.session import is_spark_of_caller
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import InterruptedRunError, LakeFSGCError
from lakefs_gc.pipeline.assets.backup import BackupConfig
from lakefs_gc.pipeline.assets.store_listing import ListingConfig
from lakefs_gc.pipeline.assets.sweep import SweepConfig
from lakefs_gc.pipeline.assets.sweep_approval import ApprovalConfig
from lakefs_gc.pipeline.automation.sweep_sensor import SensorCursor, evaluate
from lakefs_gc.pipeline.code_location import build_definitions
from lakefs_gc.pipeline.instances import configured_instance
from lakefs_gc.pipeline.jobs import gc_approve, gc_backup, gc_mark, gc_sweep
from lakefs_gc.pipeline.partitions import gc_runs, tags_of_new_partition
from lakefs_gc.pipeline.resources.run_lock import process_tags

Facts = dict[str, Any]

_INTERRUPTIONS = (DagsterExecutionInterruptedError, KeyboardInterrupt)
_JAVA_ENDS_WITHIN_SECONDS = 20

# Stages log through Python's logging. Dagster's own event stream stays in its instance.
_QUIET = {"console": {"config": {"log_level": "CRITICAL"}}}


class GCSession:
    """A Dagster instance and the definitions for ``settings``, for runs in this process."""

    def __init__(self, settings: Settings, instance: DagsterInstance) -> None:
        self.settings = settings
        self.instance = instance
        self._definitions: Definitions = build_definitions(settings)

    @classmethod
    @contextmanager
    def open(cls, settings: Settings) -> Iterator[GCSession]:
        """Open a session with the Dagster instance of ``DAGSTER_HOME``.

        Without it, use the instance of ``dagster.yaml`` in the working directory, as ``dagster dev`` does. Without
        both, use an ephemeral instance and a temporary workspace. Raises ``ConfigurationError`` if ``DAGSTER_HOME`` is
        not a folder.
        """
        is_theirs = is_spark_of_caller()
        with configured_instance() as configured:
            if configured is not None:
                yield cls(settings, configured)
                return
            with TemporaryDirectory(prefix="lakefs-gc-") as folder, DagsterInstance.ephemeral() as instance:
                work_url = settings.work_url or f"file://{folder}/work"
                try:
                    yield cls(settings.model_copy(update={"work_url": work_url}), instance)
                except (InterruptedRunError, KeyboardInterrupt):
                    if not is_theirs:
                        _stop_spark()  # otherwise its tasks write into the folder while it is removed
                    raise

    def mark(
        self,
        run_key: str,
        *,
        min_age_hours: float | None = None,
        unsafe_min_age: bool = False,
        only: Scope = Scope.all,
    ) -> Facts:
        """Run ``gc_mark`` and return the metadata of the mark. Raises what the stages raise.

        A mark with a failed check is returned as well, although its Dagster run failed.
        """
        config = ListingConfig(min_age_hours=min_age_hours, unsafe_min_age=unsafe_min_age, only=only)
        try:
            return self.materialize(gc_mark.name, run_key, {"store_listing": config})["mark"]
        except DagsterAssetCheckFailedError:
            wanted = AssetRecordsFilter(asset_key=AssetKey("mark"), asset_partitions=[run_key])
            [record] = self.instance.fetch_materializations(wanted, limit=1).records
            return _plain(record.asset_materialization)

    def approve(self, run_key: str, config: ApprovalConfig) -> Facts:
        """Materialize ``sweep_approval`` and return its metadata. Raises ``MarkError`` or ``ApprovalError``."""
        return self.materialize(gc_approve.name, run_key, {"sweep_approval": config})["sweep_approval"]

    def backup(self, run_key: str, config: BackupConfig) -> Facts:
        """Run ``gc_backup`` and return the metadata of the backup. Raises what the stage raises."""
        return self.materialize(gc_backup.name, run_key, {"backup": config})["backup"]

    def sweep(self, run_key: str, config: SweepConfig) -> Facts:
        """Run ``gc_sweep`` and return the metadata of the sweep. Raises what the stages raise."""
        return self.materialize(gc_sweep.name, run_key, {"sweep": config})["sweep"]

    def sweep_approved(self) -> None:
        """Evaluate the sensor ``sweep_after_mark`` once, without a cursor, and run the sweeps that it requests.

        Raises what the stages raise.
        """
        for request in evaluate(self.instance, SensorCursor(), self.settings.sweep, utc_now().timestamp()).requests:
            config = SweepConfig(**request.run_config["ops"]["sweep"]["config"])
            self.sweep(str(request.partition_key), config)

    def materialize(
        self,
        job: str,
        run_key: str,
        config: Mapping[str, Config],
        *,
        run_id: str | None = None,
        selection: AssetSelection | None = None,
    ) -> dict[str, Facts]:
        """Run a job for one partition, and return the metadata of each materialization as plain values, by asset.

        ``run_id`` is the id of the Dagster run; default: a new one. ``selection`` is of assets of the job; default:
        all. Raises what the stages raise, and ``InterruptedRunError`` on Ctrl-C and SIGTERM.
        """
        run_id = run_id or str(uuid4())
        definition = self._definitions.resolve_job_def(job)
        selected = selection.resolve(self._definitions.resolve_asset_graph()) if selection else ()
        if job != gc_mark.name:  # whose first asset adds it
            self.instance.add_dynamic_partitions(str(gc_runs.name), [run_key])
        try:
            result = definition.execute_in_process(
                run_config=RunConfig(ops=dict(config), loggers=_QUIET),
                instance=self.instance,
                tags={**tags_of_new_partition(definition, run_key), **process_tags(run_id)},
                run_id=run_id,
                asset_selection=list(selected) or None,
            )
        except BaseException as error:
            # The signal may have ended Java, too. The interruption is then the cause of a clean-up error.
            if any(isinstance(cause, _INTERRUPTIONS) for cause in _causes(error)):
                raise InterruptedRunError(
                    f"{job} of {run_key} was interrupted",
                    remedy="run the command again: it continues with the unfinished work, and starts a mark anew",
                ) from None
            cause = _cause(error)
            if cause is error:
                raise
            raise cause from None
        return {
            event.asset_key.path[-1]: _plain(event.materialization)
            for event in result.get_asset_materialization_events()
            if event.asset_key is not None
        }


def _stop_spark() -> None:
    """Stop Spark if it runs in this process, and wait until Java ends, which ends after the tasks' writers."""
    context = SparkContext._active_spark_context
    if context is None:
        return
    gateway: Any = context._gateway
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # the signal may have ended Java, too
    with suppress(Py4JError, OSError):
        context.stop()
    process = getattr(gateway, "proc", None)  # None if spark-submit started Java
    if process is not None:
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        with suppress(OSError):
            process.stdin.close()  # Java ends when its input closes
        with suppress(TimeoutExpired):
            process.wait(_JAVA_ENDS_WITHIN_SECONDS)


def _plain(materialization: AssetMaterialization | None) -> Facts:
    """Return the metadata of a materialization as plain values."""
    metadata = materialization.metadata if materialization else {}
    return {name: getattr(value, "value", None) for name, value in metadata.items()}


def _cause(error: BaseException) -> BaseException:
    """Return the ``LakeFSGCError`` that caused an error of Dagster, or the error itself."""
    return next((cause for cause in _causes(error) if isinstance(cause, LakeFSGCError)), error)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its causes, and the errors that were being handled when they were raised."""
    seen: set[int] = set()
    following: list[BaseException | None] = [error]
    while following:
        current = following.pop()
        if current is None or id(current) in seen:  # Dagster links some of its errors in a circle
            continue
        seen.add(id(current))
        yield current
        following += (current.__context__, current.__cause__)
