"""A collector that a test drives stage by stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefs_gc.config import SafetyParameters, Settings, SweepSettings
from lakefs_gc.engine.collect.listing.listing_counts import FIRST_SLICE
from lakefs_gc.engine.collect.listing.store_listing import store_listing
from lakefs_gc.engine.collect.references.active_ranges import active_ranges
from lakefs_gc.engine.collect.references.committed import committed
from lakefs_gc.engine.collect.references.foreign_references import foreign_references
from lakefs_gc.engine.collect.references.uncommitted import uncommitted
from lakefs_gc.engine.decide.candidates import candidates
from lakefs_gc.engine.decide.kept import kept
from lakefs_gc.engine.decide.marking.checks import evaluate
from lakefs_gc.engine.decide.marking.evidence import gather_evidence
from lakefs_gc.engine.decide.marking.write_mark import write_mark
from lakefs_gc.engine.decide.matching.unmatched import unmatched
from lakefs_gc.engine.decide.missing import missing
from lakefs_gc.engine.records.approval import approve
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_parts import read_part
from lakefs_gc.engine.records.stored_marks import read_mark
from lakefs_gc.engine.run import GCRun, RunContext, begin_run, new_run_key
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.sweep.at_mark import Accepted, any_size_at_mark
from lakefs_gc.engine.sweep.outcomes import SweepResult
from lakefs_gc.engine.sweep.second_look import SecondLook, second_look_at
from lakefs_gc.engine.sweep.sweep import Look, sweep
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.engine.workspace.workspace import Clock, Dataset, StageOutput, Workspace, utc_now
from lakefs_gc.formats.candidate_addresses import has_unrecognized_name
from lakefs_gc.formats.ids import new_reversed_id
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.scaled_spark import ScaledSpark

STAGES = (
    "store_listing",
    "uncommitted",
    "active_ranges",
    "committed",
    "foreign_references",
    "unmatched",
    "missing",
    "kept",
    "candidates",
)
CORES = 1
"""As the stages see it: few tasks for little data."""


class Collector:
    """One run over a repository, stage by stage; each stage is kept in the workspace, as in production.

    ``server`` is a client of the sandbox itself, or of a proxy before it.
    """

    runs_are_small: ClassVar[bool] = True
    """Whether this process does the work of few objects, as in the runs of users. Tests marked ``executors``: false."""

    def __init__(
        self,
        spark: SparkSession,
        repository: LakeRepository,
        *,
        server: LakeFSClient | None = None,
        safety: SafetyParameters | None = None,
        settings: Settings | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self.spark, self.repository, self.clock = spark, repository, clock
        self.server = server or LakeFSClient(repository.lake.credentials)
        self.settings = settings or repository.lake.settings
        self.safety = safety or self.settings.safety
        self.workspace = Workspace(
            self.settings.resolved_work_url(), max_range_cache_bytes=self.settings.max_range_cache_bytes
        )
        self.run_key = new_run_key(repository.name, utc_now())
        self.only = Scope.all
        """Which candidates the next run marks."""
        self.swept: dict[str, str] = {}
        """Address to outcome, of the last sweep."""
        self.errors: dict[str, str] = {}
        """Address to error, of the last sweep."""

    # -- the stages

    def begin(self) -> GCRun:
        """The run, begun anew."""
        return begin_run(self.context, self.run_key, self.only)

    @property
    def context(self) -> RunContext:
        """What the stages work with."""
        return self.context_with()

    def context_with(self, **changes: object) -> RunContext:
        """The same with other settings."""
        return RunContext(
            compute=ScaledSpark(self.spark, CORES, self.runs_are_small),
            connect=lambda: self.server,
            settings=self.settings.model_copy(update={"safety": self.safety, **changes}),
            workspace=self.workspace,
            clock=self.clock,
            open_store=open_store,
        )

    @property
    def run(self) -> GCRun:
        """The run that the listing began."""
        return GCRun.of(self.workspace.manifest(self.run_key, "store_listing"))

    def output(self, stage: str) -> StageOutput:
        """A stage, not computed yet, from what is in the workspace."""
        context = self.context
        if stage == "store_listing":
            return store_listing(context, self.begin())
        if stage == "uncommitted":
            return uncommitted(context, self.run)
        if stage == "active_ranges":
            return active_ranges(context, self.run, self.dataset("uncommitted"))
        if stage == "committed":
            return committed(context, self.run, self.dataset("active_ranges"))
        if stage == "foreign_references":
            return foreign_references(context, self.run)
        if stage == "unmatched":
            return unmatched(
                context,
                self.run,
                listing=self.dataset("store_listing"),
                uncommitted=self.dataset("uncommitted"),
                active_ranges=self.dataset("active_ranges"),
                committed=self.dataset("committed"),
                foreign_references=self.dataset("foreign_references"),
            )
        if stage == "missing":
            return missing(
                context,
                self.run,
                listing=self.dataset("store_listing"),
                uncommitted=self.dataset("uncommitted"),
                committed=self.dataset("committed"),
                unmatched=self.dataset("unmatched"),
            )
        if stage == "kept":
            return kept(
                context,
                self.run,
                uncommitted=self.dataset("uncommitted"),
                unmatched=self.dataset("unmatched"),
                missing=self.dataset("missing"),
            )
        return candidates(
            context,
            self.run,
            listing=self.dataset("store_listing"),
            active_ranges=self.dataset("active_ranges"),
            unmatched=self.dataset("unmatched"),
            kept=self.dataset("kept"),
        )

    def materialize(self, *stages: str) -> None:
        """Compute stages and keep them."""
        for stage in stages:
            self.workspace.write(self.spark, self.run_key, stage, self.output(stage))

    def collect(self, *, until: str = "candidates", before: Mapping[str, Callable[[], object]] | None = None) -> None:
        """All stages in order; ``before`` has what else happens just before a stage begins."""
        for stage in STAGES[: STAGES.index(until) + 1]:
            if before and stage in before:
                before[stage]()
            self.materialize(stage)

    def dataset(self, stage: str) -> Dataset:
        return self.workspace.read(self.spark, self.run_key, stage, schemas.BY_STAGE[stage])

    def manifest(self, stage: str) -> DatasetManifest:
        return self.workspace.manifest(self.run_key, stage)

    def addresses(self, stage: str) -> set[str]:
        """The addresses of a stage that is kept."""
        return {row["address"] for row in self.dataset(stage).dataframe.select("address").collect()}

    # -- the mark and what comes after

    def mark(self) -> Mark:
        """Write the mark of the candidates that are there."""
        mark_id = str(self.manifest("uncommitted").facts["run_id"])
        stages = set(STAGES) - {"store_listing", "unmatched"}
        evidence = gather_evidence(
            self.context,
            self.run,
            **{stage: self.dataset(stage) for stage in stages},
            listing=self.dataset("store_listing"),
            mark_id=mark_id,
        )
        foreign = self.manifest("foreign_references").facts
        mark = write_mark(
            self.run,
            candidates=self.dataset("candidates"),
            counts={stage: self.manifest(stage).rows for stage in STAGES[:4]},
            mark_id=mark_id,
            checks=evaluate(evidence, self.safety),
            rules=self.manifest("active_ranges").facts.get("rules"),
            repositories={*self.run.repositories, *foreign["repositories"]},
            unreadable=foreign["unreadable"],
            not_asked=foreign["not_asked"],
            mounts=foreign["mounts"],
            protections=evidence.protections,
            first_slice=str(self.manifest("store_listing").facts.get(FIRST_SLICE) or ""),
        )
        self.workspace.record_mark(self.run_key, mark.mark_id, mark.digest)
        return mark

    def collect_and_mark(self) -> Mark:
        self.collect()
        return self.mark()

    def mark_objects(self, *keys: str) -> Mark:
        """A mark of these objects, without the stages that find them; any names at the root are the repository's."""
        run = self.begin()
        found = self.repository.store.stat_many(keys)
        rows = [(key, found[key].size_bytes, found[key].last_modified, schemas.NEVER_COMMITTED) for key in keys]
        output = StageOutput(
            self.spark.createDataFrame(rows, schemas.CANDIDATES),
            self.clock(),
            {
                "cutoff": run.cutoff.isoformat(),
                "expired": 0,
                "expired_bytes": 0,
                "named_at_root": next(filter(has_unrecognized_name, keys), ""),
            },
            {"size_bytes": F.sum("size")},
        )
        self.workspace.write(self.spark, self.run_key, "candidates", output)
        mark_id = new_reversed_id(utc_now())
        return write_mark(run, candidates=self.dataset("candidates"), counts={}, mark_id=mark_id)

    def approve(self, mark: Mark, only: Scope = Scope.all) -> None:
        approve(
            self.repository.store,
            mark,
            mark.digest,
            by="test",
            via="test",
            now=utc_now(),
            age=timedelta(0),
            safety=self.safety,
            only=only,
        )

    def read_mark(self, mark_id: str) -> Mark:
        return read_mark(self.repository.store, self.repository.name, self.repository.namespace, mark_id)

    def sweep(
        self,
        mark: Mark,
        *,
        live: Iterable[str] | None = None,
        look: Look | None = None,
        begin_look: Callable[[], None] = lambda: None,
        known_restores: frozenset[str] = frozenset(),
        sleep: Callable[[float], None] = time.sleep,
        not_backed_up: DataFrame | None = None,
        named_at_root: str = "",
        overrides: Iterable[str] = (),
        only: Scope = Scope.all,
        small: bool | None = None,
        **settings: float,
    ) -> SweepResult:
        """Delete, in a run of its own, as the asset does.  ``swept`` has the outcome of each object.

        Looks again first, unless ``live`` says what is referenced.  ``overrides`` are the checks that the approval
        overrides.  ``settings`` are of ``SweepSettings``.  Whether the sweep is ``small`` is up to the look, if nothing
        is said.
        """
        run = self.begin()
        if live is not None:
            referenced = self._frame(live)
            look = lambda suspects: referenced  # noqa: E731
        if look is None:
            look = second = self.second_look(run, mark, overrides)
            begin_look = second.begin
        output, result = sweep(
            self.context_with(sweep=SweepSettings.model_validate({"retry_pause_seconds": 0, **settings})),
            run,
            mark,
            look,
            known_restores=known_restores,
            not_backed_up=not_backed_up,
            named_at_root=named_at_root,
            only=only,
            is_small=isinstance(look, SecondLook) and look.is_small if small is None else small,
            begin_look=begin_look,
            sleep=sleep,
        )
        self.workspace.write(self.spark, self.run_key, "sweep", output)
        rows = self.dataset("sweep").dataframe.collect()
        self.swept = {row["address"]: row["outcome"] for row in rows}
        self.errors = {row["address"]: row["error"] for row in rows}
        if len(self.swept) != len(rows):
            raise ValueError("an object has more than one outcome")
        return result

    def second_look(self, run: GCRun, mark: Mark, overrides: Iterable[str] = ()) -> SecondLook:
        accepted = Accepted.of(mark, set(overrides))
        return second_look_at(self.context, run, mark, accepted, any_size_at_mark(self.context, mark))

    def _frame(self, addresses: Iterable[str]) -> DataFrame:
        return self.spark.createDataFrame([(address,) for address in addresses], schemas.UNCOMMITTED)


def marked(repository: LakeRepository, mark: Mark) -> set[str]:
    """The addresses of a mark."""
    return {address for part in mark.parts for address in read_part(repository.store, part)["address"].to_pylist()}


def counts(result: SweepResult) -> dict[str, int]:
    """Objects by outcome, those that there are."""
    return {name: outcome.objects for name, outcome in result.outcomes.items() if outcome.objects}
