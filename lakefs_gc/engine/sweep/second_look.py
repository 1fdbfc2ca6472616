"""Rule 6: before a sweep, and while it is under way, look again at everything that is referenced.

Between a mark and its sweep a revert, a new branch, a longer retention or a copy can bring an object back.  The stages
that fed the mark run once more, in the same order, and whatever they find is not deleted.  A range that was read for
the mark has nothing of the mark in it, so only ranges that were not are read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakefs_gc.engine.collect.references.active_ranges import active_ranges
from lakefs_gc.engine.collect.references.commit_graph import CommitGraph
from lakefs_gc.engine.collect.references.committed import write_addresses
from lakefs_gc.engine.collect.references.foreign_references import (
    FILE,
    FILES,
    AcceptedUnknown,
    foreign_references,
)
from lakefs_gc.engine.collect.references.uncommitted import uncommitted
from lakefs_gc.engine.decide.hidden_twins import TwinSearch, find_twins
from lakefs_gc.engine.decide.protected_paths import protected_paths
from lakefs_gc.engine.decide.unlisted_changes import find_left_out
from lakefs_gc.engine.decide.unmatched import refuse_unproved_emptiness
from lakefs_gc.engine.records.check import OTHER_REPOSITORIES_WERE_READ, SERVER_LIST_IS_COMPLETE
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.errors import InputOrderError, SafetyError
from lakefs_gc.storage.location import StoreLocation

logger = logging.getLogger(__name__)

_TASKS_PER_CORE = 4
_MOST_FOUND = 8
"""DataFrames of what looks have found, before they are made one: a plan must not grow with the number of looks."""
_SIZED = "address string, size long"


@dataclass(frozen=True)
class Accepted:
    """What a person accepted as unknown when approving a mark.

    ``commits_unchecked``: the approval overrides ``SERVER_LIST_IS_COMPLETE``.
    """

    others: AcceptedUnknown
    commits_unchecked: bool

    @classmethod
    def of(cls, mark: Mark, overrides: Collection[str]) -> Accepted:
        """For a mark, by the names of the checks that its approval overrides."""
        others_unread = OTHER_REPOSITORIES_WERE_READ in overrides
        others = AcceptedUnknown(others_unread, mark.unreadable, mark.not_asked)
        return cls(others, SERVER_LIST_IS_COMPLETE in overrides)


@dataclass(frozen=True)
class SeenAtMark:
    """What was read for a mark: its ranges, and the metadata files of other repositories."""

    ranges: DataFrame
    foreign_files: DataFrame | None


def seen_at_mark(context: RunContext, mark: Mark) -> SeenAtMark | None:
    """What need not be read again; None when nothing proves that this very mark was made from it.

    Ranges that were read for a mark hold none of its objects only if the mark is still the one that was made then: its
    digest must be the one that the workspace recorded.  A mark whose files were rewritten names its run all the same.
    """
    spark, workspace = context.spark, context.workspace
    if "run_key" not in mark.run:
        return None
    run_key = mark.run["run_key"]
    if not workspace.has_made(run_key, mark.mark_id, mark.digest):
        logger.info("mark %s was not made with this workspace: every active range is read again", mark.mark_id)
        return None
    try:
        ranges = workspace.read(spark, run_key, "active_ranges", schemas.ACTIVE_RANGES)
        foreign = workspace.manifest(run_key, "foreign_references")
        files = workspace.read(spark, run_key, FILES, FILE) if foreign.facts["files_id"] else None
    except InputOrderError as error:
        logger.info("every active range is read again: %s", error.message)
        return None
    inputs = {"active_ranges": ranges.manifest, "foreign_references": foreign}
    if any(mark.inputs.get(stage) != manifest.materialization_id for stage, manifest in inputs.items()):
        return None
    if files is not None and files.manifest.materialization_id != foreign.facts["files_id"]:
        return None
    return SeenAtMark(ranges.dataframe.select("range_id"), files.dataframe if files else None)


class SecondLook:
    """Looks, as often as it is asked, each time at what no look before has seen.

    What one look found is kept alive in all later ones.  ``accepted`` is what a person accepted as unknown: anything
    else that cannot be looked at ends the sweep.
    """

    def __init__(
        self,
        context: RunContext,
        run: GCRun,
        seen: SeenAtMark | None,
        accepted: Accepted,
    ) -> None:
        self._context, self._run, self._accepted = context, run, accepted
        # For the mark, and by the last look: what went away in between and came back is read once more.
        self._seen_ranges = [seen.ranges] if seen else []
        self._seen_files = [seen.foreign_files] if seen and seen.foreign_files is not None else []
        self._of_mark = len(self._seen_ranges), len(self._seen_files)
        self._graph = CommitGraph(context.safety.max_commits)  # histories only grow: each look reads what is new
        self._found: list[DataFrame] = []
        self._looks = 0

    def __call__(self, suspects: DataFrame) -> DataFrame:
        """Every address that is referenced now, and may be one of ``suspects``.  Columns: ``address``, not distinct.

        ``suspects`` (columns ``address`` and ``size``, which may be null) are stored.  Raises what the stages raise,
        and ``SafetyError`` for what cannot be looked at and was not accepted.
        """
        context, run = self._context, self._run
        self._looks += 1
        staged = self._keep("uncommitted", uncommitted(context, run))
        ranges = self._keep(
            "active_ranges",
            active_ranges(context, run, staged, must_exist=False, graph=self._graph),
        )
        self._refuse_unchecked_commits(ranges)
        unseen = ranges.dataframe
        for seen in self._seen_ranges:
            unseen = unseen.join(seen, "range_id", "left_anti")
        listed = context.workspace.files_of(ranges.manifest)
        written = write_addresses(context, run, unseen, self._name("committed"), listed=listed)
        live = self._keep("committed", StageOutput(written, context.clock(), in_parts=True))
        if not ranges.manifest.rows or not (self._seen_ranges or live.manifest.rows):
            refuse_unproved_emptiness(context, run)
        foreign = self._keep(
            "foreign_references",
            foreign_references(
                context,
                run,
                name=self._name(FILES),
                seen=reduce(DataFrame.union, self._seen_files) if self._seen_files else None,
                accepted=self._accepted.others,
            ),
        )
        search = TwinSearch(context, run, self._name("twins"))
        sized = self._sized(suspects)
        facts = staged.manifest.facts
        twins = find_twins(sized, facts["heads"], search)
        left_out = find_left_out(sized, facts["listed"], facts["heads"], search)
        protected = protected_paths(context, run, sized)
        kept = self._keep("kept", StageOutput(twins.unionByName(left_out).unionByName(protected), context.clock()))
        self._seen_ranges[self._of_mark[0] :] = [ranges.dataframe.select("range_id")]
        if foreign.manifest.facts["files_id"]:
            files = context.workspace.read(context.spark, run.run_key, self._name(FILES), FILE)
            self._seen_files[self._of_mark[1] :] = [files.dataframe]
        # What is staged, too: a server whose own store fails it in the middle of a branch leaves out the rest.
        self._remember(staged, live, foreign)
        seen_now = (kept.dataframe.select("address"), *self._found)
        return reduce(DataFrame.unionByName, seen_now)

    def _refuse_unchecked_commits(self, ranges: Dataset) -> None:
        if ranges.manifest.facts["missed_by_rules"] is None and not self._accepted.commits_unchecked:
            raise SafetyError(
                f"the active commits of {self._run.repository} were not checked: it has more than safety.max_commits, "
                "and commits that the server omits could be lost",
                remedy=f"raise safety.max_commits, or approve the mark with an override of {SERVER_LIST_IS_COMPLETE}",
            )

    def _remember(self, *found: Dataset) -> None:
        self._found += [dataset.dataframe.select("address") for dataset in found if dataset.manifest.rows]
        if len(self._found) > _MOST_FOUND:
            output = StageOutput(reduce(DataFrame.unionByName, self._found).distinct(), self._context.clock())
            self._found = [self._keep_as(self._name("found"), output).dataframe]

    def _sized(self, suspects: DataFrame) -> DataFrame:
        """A mark that another tool made has no sizes: then the store is asked."""
        known = suspects.where(F.col("size").isNotNull()).select("address", "size")
        unknown = suspects.where(F.col("size").isNull()).select("address")
        if unknown.isEmpty():
            return known
        asked = unknown.repartition(self._context.cores * _TASKS_PER_CORE).mapInArrow(
            _ask_for_size(self._run.store), _SIZED
        )
        output = StageOutput(known.unionByName(asked), self._context.clock())
        kept = self._keep_as(self._name("sizes"), output, schemas.SIZED)
        return kept.dataframe

    def _keep(self, stage: str, output: StageOutput) -> Dataset:
        return self._keep_as(self._name(stage), output, schemas.BY_STAGE[stage])

    def _keep_as(self, name: str, output: StageOutput, schema: StructType | str | None = None) -> Dataset:
        return self._context.workspace.keep(self._context.spark, self._run.run_key, name, output, schema)

    def _name(self, stage: str) -> str:
        return f"look_{self._looks}_{stage}"


@worker
def _ask_for_size(batches: Batches, store: StoreLocation) -> Batches:
    for batch in batches:
        found = worker_store(store).stat_many(batch.column("address").to_pylist())
        sizes = pa.array([info.size_bytes for info in found.values()], pa.int64())
        yield pa.record_batch([pa.array(list(found), pa.string()), sizes], names=["address", "size"])
