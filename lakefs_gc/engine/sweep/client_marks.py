"""The checks of a mark that lakeFS's own client made: that client has none, so they are made when it is swept.

All stages run once, as for a mark of lakefs-gc, and the marked objects take the place of the candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark.sql import functions as F

from lakefs_gc.engine.collect.listing.root_names import NAMED_AT_ROOT, facts_of_strangers
from lakefs_gc.engine.collect.listing.store_listing import store_listing
from lakefs_gc.engine.collect.references.active_ranges import active_ranges
from lakefs_gc.engine.collect.references.committed import committed
from lakefs_gc.engine.collect.references.foreign_references import foreign_references
from lakefs_gc.engine.collect.references.uncommitted import uncommitted
from lakefs_gc.engine.decide.checks import evaluate
from lakefs_gc.engine.decide.evidence import gather_evidence
from lakefs_gc.engine.decide.kept import kept
from lakefs_gc.engine.decide.missing import missing
from lakefs_gc.engine.decide.unmatched import LONGEST_UPLOAD, unmatched
from lakefs_gc.engine.records.check import Check
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_objects import read_marked
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.sweep.second_look import Accepted
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.formats.addresses import UPLOAD_PART_REGEX


class ClientMarkFindings(NamedTuple):
    """What the stages say of a client's mark, which a mark of ours has in itself.

    ``accepted`` names the repositories of the checks, ``named_at_root`` is as ``strangers.named_at_root``.
    """

    checks: tuple[Check, ...]
    accepted: Accepted
    named_at_root: str


@dataclass(frozen=True)
class ClientMarkChecks:
    """The checks of a client's mark."""

    context: RunContext

    def evaluate(self, run: GCRun, mark: Mark, accepted: Accepted) -> ClientMarkFindings:
        """The checks of ``mark``, as they are now, and what else its sweep goes by.

        Raises what the stages raise.
        ``nothing_newer_than_cutoff`` goes by the cutoff of ``run``: the client's own may be seconds old.
        """
        # A run of its own: the partition of the sweep may hold the stages of another mark.
        run = replace(run, run_key=f"{run.repository}/checks-of-{mark.mark_id}")
        context = self.context

        def keep(stage: str, compute: Callable[[], StageOutput]) -> Dataset:
            return context.workspace.keep(context.spark, run.run_key, stage, compute(), schemas.BY_STAGE[stage])

        listed = keep("store_listing", lambda: store_listing(context, run))
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
            lambda: missing(context, run, uncommitted=staged, committed=live, unmatched=unreferenced),
        )
        spared = keep("kept", lambda: kept(context, run, uncommitted=staged, unmatched=unreferenced))
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
        )

    def _marked(self, run: GCRun, mark: Mark, listed: Dataset, unreferenced: Dataset, spared: Dataset) -> StageOutput:
        """The marked objects that exist, in the place of the candidates.  Columns: ``schemas.CANDIDATES``."""
        began_at = self.context.clock()
        marked = read_marked(self.context.spark, run.store, mark).select("address").distinct()
        # Parts of uploads that may be under way count as younger than they are: no list has them.
        is_part = F.col("address").rlike(UPLOAD_PART_REGEX)
        newest = F.max(
            F.when(is_part, F.col("last_modified") + F.lit(LONGEST_UPLOAD)).otherwise(F.col("last_modified"))
        )
        return StageOutput(
            dataframe=listed.dataframe.join(marked, "address", "left_semi").withColumn(
                "reason", F.lit(schemas.NEVER_COMMITTED)
            ),
            began_at=began_at,
            facts={"cutoff": run.cutoff.isoformat(), **facts_of_strangers(unreferenced)},
            measures={"size_bytes": F.sum("size"), "newest_us": F.unix_micros(newest)},
            inputs={
                **unreferenced.manifest.inputs,
                "unmatched": unreferenced.manifest.materialization_id,
                "kept": spared.manifest.materialization_id,
            },
        )
