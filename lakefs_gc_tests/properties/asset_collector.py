"""A collector whose stages are the real assets, materialized one by one or several in one Dagster run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from dagster import AssetKey, DagsterInstance
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.config import Settings
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.scale import SMALL
from lakefs_gc.engine.spark.session import DEFAULT_SPARK_CONFIG
from lakefs_gc.engine.sweep.second_look import SecondLook
from lakefs_gc.pipeline.code_location import build_definitions
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc_tests.support.collector import STAGES, Collector
from lakefs_gc_tests.support.lake import LakeRepository

OVERRIDABLE = {"share_of_objects", "share_of_bytes", "rules_not_looser", "committed_data_found"}
"""Checks that may fail without an error: in a small repository most objects may be garbage, and users change rules."""
MEANWHILE = {"no_head_object_marked"}
"""Checks that may fail if users work during a run, because a branch references garbage again."""

WARNINGS = {"server_list_is_complete"}
"""Warnings that may occur: the sandbox omits commits by the order of their ids, as lakeFS does."""

MARGIN_SECONDS = 1.5
"""The next run copies the listing of slices that were older than this."""

_QUIET = {"console": {"config": {"log_level": "CRITICAL"}}}


class AssetCollector(Collector):
    """A person who materializes one asset after the other. The environment has the address of the lakeFS server."""

    def __init__(
        self,
        spark: SparkSession,
        repository: LakeRepository,
        instance: DagsterInstance,
        mode: str = "auto",
        objects_per_look: int = 4,
        settings: Settings | None = None,
        *,
        small: bool = False,
    ) -> None:
        super().__init__(spark, repository, settings=settings)
        self._instance = instance
        sweep = self.settings.sweep.model_copy(update={"objects_per_look": objects_per_look, "retry_pause_seconds": 0})
        running = {name: value for name, value in spark.conf.getAll.items() if name in DEFAULT_SPARK_CONFIG}
        if not small:
            running[SMALL] = "false"  # as in a repository that is large enough for an optimized listing
        # Uploads in a test take no time.
        listing = self.settings.listing.model_copy(update={"mode": mode, "margin_hours": MARGIN_SECONDS / 3600})
        self.settings = self.settings.model_copy(update={"sweep": sweep, "spark": running, "listing": listing})
        self._prepare()

    def _prepare(self) -> None:
        self._job = build_definitions(self.settings).resolve_implicit_global_asset_job_def()
        self._instance.add_dynamic_partitions(str(gc_runs.name), [self.run_key])

    def materialize(self, *stages: str) -> None:
        """Materialize all these assets in one Dagster run."""
        if stages:  # Dagster treats an empty selection as all assets
            self._run(*stages)

    def collect_and_mark(self) -> Mark:
        self.materialize(*STAGES)
        return self.mark()

    def mark(self, also_on: Set[str] = frozenset()) -> Mark:
        """Make a mark. Raise ``AssertionError`` for an unexpected failed check. The checks in ``also_on`` may fail."""
        mark_id, passed = self._make_mark()
        mark = self.read_mark(mark_id)
        on = {check.name for check in mark.checks if check.blocks_sweep}
        assert {check.name for check in mark.checks if not check.passed} - on <= WARNINGS | also_on, mark.checks
        assert on <= OVERRIDABLE | MEANWHILE | also_on, [check for check in mark.checks if not check.passed]
        assert passed == (not on)
        return mark

    def _make_mark(self) -> tuple[str, bool]:
        """Make a mark. Return its id, and whether all checks passed."""
        result = self._run("mark", raise_on_error=False)
        if not result.asset_materializations_for_node("mark"):
            result = self._run("mark")  # raises why there is none
        [event] = result.asset_materializations_for_node("mark")
        return str(event.metadata["mark_id"].value), result.success

    def sweep_mark(self, mark: Mark, before_look: Callable[[], object] = lambda: None) -> None:
        """Approve and sweep. ``swept`` gets the outcomes. ``before_look`` is called before each second look."""
        self.give_approval(mark, [check.name for check in mark.checks if not check.passed])
        self.sweep_approved(mark, before_look)

    def give_approval(self, mark: Mark, overrides: Sequence[str]) -> None:
        """Approve a mark as the asset ``sweep_approval`` does."""
        seen = {"mark_id": mark.mark_id, "digest": mark.digest, "approved_by": "ada"}
        self._run("sweep_approval", config=seen | {"overrides": [*overrides], "why": "a test"})

    def sweep_approved(self, mark: Mark, before_look: Callable[[], object] = lambda: None) -> None:
        """Sweep a mark, approved or not. ``swept`` gets the outcomes."""
        with _interleaved(before_look):
            self._run("sweep", config={"mark_id": mark.mark_id})
        rows = self.workspace.read(self.spark, self.run_key, "sweep", schemas.SWEEP).dataframe.collect()
        self.swept = {row["address"]: row["outcome"] for row in rows}
        assert len(self.swept) == len(rows) == mark.candidates

    def _run(self, *assets: str, config: Mapping[str, Any] | None = None, raise_on_error: bool = True) -> Any:
        return self._job.execute_in_process(
            run_config={"ops": {assets[0]: {"config": dict(config)}} if config else {}, "loggers": _QUIET},
            partition_key=self.run_key,
            instance=self._instance,
            raise_on_error=raise_on_error,
            asset_selection=[AssetKey(asset) for asset in assets],
        )


@contextmanager
def _interleaved(before_look: Callable[[], object]) -> Iterator[None]:
    real = SecondLook.__call__

    def look(self: SecondLook, suspects: DataFrame) -> DataFrame:
        before_look()
        return real(self, suspects)

    with patch.object(SecondLook, "__call__", look):
        yield
