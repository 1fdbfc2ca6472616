"""Evaluates the checks for a mark that lakeFS's own Spark client made, before its sweep (rules 8 and 12).

That client evaluates no checks. So every stage runs once, as for a mark of lakefs-gc, with the marked objects in place
of the candidates. The sweep then needs an approval for each check that fails, as for any other mark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark.sql import functions as F

from lakefs_gc.engine.collect.listing.existence import only_existing
from lakefs_gc.engine.collect.listing.foreign_names import NAMED_AT_ROOT, unrecognized_name_facts, whole_bucket_measures
from lakefs_gc.engine.collect.listing.store_listing import store_listing
from lakefs_gc.engine.collect.references.active_ranges import active_ranges
from lakefs_gc.engine.collect.references.committed import committed
from lakefs_gc.engine.collect.references.foreign_references import foreign_references
from lakefs_gc.engine.collect.references.uncommitted import uncommitted
from lakefs_gc.engine.decide.kept import kept
from lakefs_gc.engine.decide.marking.checks import evaluate
from lakefs_gc.engine.decide.marking.evidence import gather_evidence
from lakefs_gc.engine.decide.matching.unmatched import LONGEST_UPLOAD, UNLISTED_WRONG_SIZES, hiding_any_size, unmatched
from lakefs_gc.engine.decide.missing import missing
from lakefs_gc.engine.decide.shown.value_filter import ValueFilter
from lakefs_gc.engine.records.check import Check
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_objects import read_marked
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.scale import in_arrow, spread
from lakefs_gc.engine.sweep.at_mark import Accepted
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.formats.candidate_addresses import UPLOAD_PART_REGEX

_TASKS_PER_CORE = 4


class ClientMarkFindings(NamedTuple):
    """The facts of a client's mark that a mark of lakefs-gc records itself.

    ``accepted`` names the repositories that the checks name as unread. ``named_at_root`` is the result of
    ``foreign_names.named_at_root``, and ``any_size`` that of ``unmatched.hiding_any_size``.
    """

    checks: tuple[Check, ...]
    accepted: Accepted
    named_at_root: str
    any_size: ValueFilter | None


@dataclass(frozen=True)
class ClientMarkChecks:
    """Evaluates the checks; the fields are what the stages need beside the mark and the run."""

    context: RunContext

    def evaluate(self, run: GCRun, mark: Mark, accepted: Accepted) -> ClientMarkFindings:
        """Run the stages, and return the checks of ``mark`` and the other facts that its sweep needs.

        ``nothing_newer_than_cutoff`` uses the cutoff of ``run``, because the client's cutoff may be seconds before its
        mark. Raises what the stages raise.
        """
        # A separate run key: the partition of the sweep may hold the stages of another mark.
        run = replace(run, run_key=f"{run.repository}/checks-of-{mark.mark_id}")
        context = self.context

        def keep(stage: str, compute: Callable[[], StageOutput]) -> Dataset:
            return context.workspace.keep(context.spark, run.run_key, stage, compute(), schemas.BY_STAGE[stage])

        listed = keep("store_listing", lambda: store_listing(context, run, of_other_mark=True))
        run = GCRun.of(listed.manifest)
        staged = keep("uncommitted", lambda: uncommitted(context, run))
        ranges = keep("active_ranges", lambda: active_ranges(context, run, staged))
        live = keep("committed", lambda: committed(context, run, ranges))
        foreign = keep("foreign_references", lambda: foreign_references(context, run))
        unreferenced = keep(
            "unmatched",
            lambda: unmatched(
                context,
                run,
                listing=listed,
                uncommitted=staged,
                active_ranges=ranges,
                committed=live,
                foreign_references=foreign,
            ),
        )
        lost = keep(
            "missing",
            lambda: missing(context, run, listing=listed, uncommitted=staged, committed=live, unmatched=unreferenced),
        )
        spared = keep("kept", lambda: kept(context, run, uncommitted=staged, unmatched=unreferenced, missing=lost))
        marked = keep("candidates", lambda: self._marked(run, mark, listed, unreferenced, spared))
        evidence = gather_evidence(
            context,
            run,
            listing=listed,
            uncommitted=staged,
            active_ranges=ranges,
            committed=live,
            foreign_references=foreign,
            kept=spared,
            missing=lost,
            candidates=marked,
            mark_id=mark.mark_id,
        )
        facts = foreign.manifest.facts
        named = replace(
            accepted.others, unreadable=frozenset(facts["unreadable"]), not_asked=frozenset(facts["not_asked"])
        )
        return ClientMarkFindings(
            evaluate(evidence, context.safety),
            replace(accepted, others=named),
            unreferenced.manifest.facts[NAMED_AT_ROOT],
            hiding_any_size(unreferenced, lost.manifest.facts.get(UNLISTED_WRONG_SIZES)),
        )

    def _marked(self, run: GCRun, mark: Mark, listed: Dataset, unreferenced: Dataset, spared: Dataset) -> StageOutput:
        """Return the marked objects that exist, in place of the candidates. Columns: ``schemas.CANDIDATES``.

        The store is asked for each that the listing lacks: what exists must be in the checks, whoever overlooked it.
        """
        began_at = self.context.clock()
        marked = read_marked(self.context.spark, run.store, mark).select("address").distinct()
        found = listed.dataframe.join(marked, "address", "left_semi")
        lacking = marked.join(listed.dataframe, "address", "left_anti")
        asked = spread(lacking, self.context.cores * _TASKS_PER_CORE, "address")
        overlooked = in_arrow(asked, only_existing(run.store), schemas.STORE_LISTING)
        # A part of an upload counts as newer than it is: the upload may be in progress, and then no list has it.
        is_part = F.col("address").rlike(UPLOAD_PART_REGEX)
        newest = F.max(
            F.when(is_part, F.col("last_modified") + F.lit(LONGEST_UPLOAD)).otherwise(F.col("last_modified"))
        )
        return StageOutput(
            dataframe=found.unionByName(overlooked).withColumn("reason", F.lit(schemas.NEVER_COMMITTED)),
            began_at=began_at,
            facts={"cutoff": run.cutoff.isoformat(), **unrecognized_name_facts(unreferenced)},
            measures={
                "size_bytes": F.sum("size"),
                "newest_us": F.unix_micros(newest),
                **whole_bucket_measures(run),
            },
            inputs={
                **unreferenced.manifest.inputs,
                "unmatched": unreferenced.manifest.materialization_id,
                "kept": spared.manifest.materialization_id,
            },
        )
