"""The readings of active commits during a sweep (rule 6)."""

from __future__ import annotations

from collections.abc import Mapping

from lakefs_gc.engine.collect.references.active_ranges import (
    ALL_COMMITS,
    ASK,
    AskForRules,
    active_ranges,
    named_metaranges,
    ranges_since,
)
from lakefs_gc.engine.collect.references.commit_graph import CommitGraph, history_so_far
from lakefs_gc.engine.collect.references.committed import write_addresses
from lakefs_gc.engine.collect.references.own_commits import HEADS
from lakefs_gc.engine.collect.references.range_names import refuse_other_ranges, reports_of
from lakefs_gc.engine.decide.matching.unmatched import refuse_unproved_emptiness
from lakefs_gc.engine.records.check import SERVER_LIST_IS_COMPLETE
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark.local_rows import rows_without
from lakefs_gc.engine.sweep.at_mark import Accepted, SeenAtMark
from lakefs_gc.engine.sweep.look_datasets import LookDatasets
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.errors import SafetyError
from lakefs_gc.formats.gc_rules import GCRules, rules_to_record
from lakefs_gc.lakefs.models import Heads


class CommitReadings:
    """Reads active commits for all looks of one sweep.

    ``graph`` is the history, None before the first reading. ``heads`` are those whose commits were read. ``reads_all``
    says whether the last reading read all commits, because there were no rules.
    """

    def __init__(
        self, context: RunContext, run: GCRun, datasets: LookDatasets, seen: SeenAtMark | None, accepted: Accepted
    ) -> None:
        self._context, self._run, self._datasets, self._accepted = context, run, datasets, accepted
        self.graph: CommitGraph | None = None  # histories only grow, so each look reads only new commits
        self.heads: Heads = {}
        self.reads_all = False
        # Those of the mark, then those of the last reading: what is gone in between and comes back is read once more.
        self._seen_ranges = [seen.ranges] if seen else []
        self._of_mark = len(self._seen_ranges)
        self._read_commit_ids = set[str]()
        self._rules: object = None  # by which commits were read
        self._readings_of_heads = 0

    @property
    def has_history(self) -> bool:
        """Whether the history tells which commits are active. Above ``max_commits``, only a list of the server does."""
        return self.graph is not None and self.graph.complete

    def named_metaranges(self) -> Mapping[str, str]:
        """Return metarange id to commit id for the commits that were read.

        If they are too many, for those of heads and tags, and for some others.
        """
        server, run = self._context.server, self._run
        graph = CommitGraph(0, complete=False) if self.graph is None else self.graph
        tags = () if graph.complete else dict(server.tags(run.repository)).values()
        return named_metaranges(server, run, graph, [*self.heads.values(), *tags])

    def read_since(self, heads: Heads, staged: Dataset) -> list[Dataset]:
        """Read what the rules retain now, with these heads, and did not at the last reading of commits.

        Return the addresses, in at most two datasets.
        """
        context, run, found = self._context, self._run, list[Dataset]()
        rules = context.server.retention_rules(run.repository)
        # Without rules all metadata is listed again: a commit that no branch has is active, too.
        if rules is None or not self.has_history or rules_to_record(rules) != self._rules:
            found.append(self.read_active(staged, self._name_of_reading(), rules=rules))
        # That reading lists the branches itself, and its lists may be old ones, without these heads.
        if rules is None or self.graph is None or not self.has_history:
            return found
        # Also a branch that is gone makes a difference: the default rule may retain its commits for longer.
        if heads == self.heads and (found or not context.safety.protect.tags):  # a tag may be new
            return found
        output = ranges_since(context, run, rules, self.graph, heads, self.heads, self._read_commit_ids)
        again = self._name_of_reading()
        if output is None:
            return found or [self.read_active(staged, again, rules=rules)]
        ranges = self._datasets.keep("active_ranges", output, again)
        return [*found, self._read_unseen(ranges, again)] if ranges.manifest.rows else found

    def _name_of_reading(self) -> str:
        self._readings_of_heads += 1
        return f"_of_heads_{self._readings_of_heads}"

    def read_active(self, staged: Dataset, again: str = "", *, rules: GCRules | AskForRules | None = ASK) -> Dataset:
        """Return the addresses in the active ranges that neither the mark nor the last reading of commits has read."""
        context, run = self._context, self._run
        self.graph = history_so_far(context, run) if self.graph is None else self.graph
        output = active_ranges(context, run, staged, must_exist=False, graph=self.graph, rules=rules)
        ranges = self._datasets.keep("active_ranges", output, again)
        self._refuse_unchecked_commits(ranges)
        facts = ranges.manifest.facts
        self.heads = facts[HEADS]
        self._rules, self._read_commit_ids = facts.get("rules"), set()
        self.reads_all = facts["mode"] == ALL_COMMITS
        live = self._read_unseen(ranges, again)
        if not ranges.manifest.rows or not (self._seen_ranges or live.manifest.rows):
            refuse_unproved_emptiness(context, run)
        self._seen_ranges[self._of_mark :] = [ranges]
        return live

    def _read_unseen(self, ranges: Dataset, again: str) -> Dataset:
        """Return the addresses in those of these ranges that neither the mark nor the last reading has read."""
        context, unseen = self._context, ranges.dataframe
        for seen in self._seen_ranges:
            unseen = rows_without(unseen, seen.dataframe, "range_id")
        name, listed = self._datasets.name(f"committed{again}"), context.workspace.files_of(ranges.manifest)
        addresses = write_addresses(context, self._run, unseen, name, listed=listed)
        output = StageOutput(addresses, context.clock(), in_parts=True, expected=reports_of(unseen))
        read = self._datasets.keep("committed", output, again)
        # Now, because Spark has read their files just before, and a file may have changed since it was written.
        for each in (ranges, *self._seen_ranges):
            refuse_other_ranges(each)
        return read

    def _refuse_unchecked_commits(self, ranges: Dataset) -> None:
        if ranges.manifest.facts["missed_by_rules"] is None and not self._accepted.commits_unchecked:
            raise SafetyError(
                f"The active commits of repository {self._run.repository} were not checked: it has more than "
                "safety.max_commits. Commits that the server omits could lose their objects",
                remedy="Raise safety.max_commits, and sweep again. Or make a new mark: its check "
                f"{SERVER_LIST_IS_COMPLETE} fails, and who approves that mark can override it",
            )
