"""The second look: reads everything that is referenced again, right before and during a sweep (rule 6).

Between a mark and its sweep, a revert, a new branch, a longer retention or a copy can make an object referenced again.
The stages that fed the mark run once more, in the same order, and no object that they return is deleted. A range that
was read for the mark refers to no marked object, so only other ranges are read. What cannot be read ends the sweep,
unless the approval accepts it (rule 12).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakefs_gc.engine.collect.references.active_ranges import (
    ALL_COMMITS,
    ASK,
    AskForRules,
    active_ranges,
    ranges_since,
)
from lakefs_gc.engine.collect.references.commit_graph import CommitGraph, history_so_far
from lakefs_gc.engine.collect.references.committed import write_addresses
from lakefs_gc.engine.collect.references.foreign_references import FILE, FILES, foreign_references
from lakefs_gc.engine.collect.references.own_commits import HEADS
from lakefs_gc.engine.collect.references.uncommitted import begin_uncommitted, uncommitted
from lakefs_gc.engine.decide.marking.checks import protections_from_json
from lakefs_gc.engine.decide.matching.unmatched import (
    refuse_unproved_emptiness,
)
from lakefs_gc.engine.decide.protected_paths import protected_paths
from lakefs_gc.engine.decide.shown.hidden_twins import find_twins, read_heads_ahead
from lakefs_gc.engine.decide.shown.lookups import ANY_SIZE, TwinSearch
from lakefs_gc.engine.decide.shown.shown_objects import Shown, find_shown
from lakefs_gc.engine.decide.shown.value_filter import ValueFilter, every_size
from lakefs_gc.engine.records.check import SERVER_LIST_IS_COMPLETE
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.run import GCRun, RunContext, refuse_another_repository, refuse_overlaps
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import known_table
from lakefs_gc.engine.spark.local_rows import columns_of, distinct_union, rows_without
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.engine.sweep.at_mark import Accepted, SeenAtMark, branches_at_mark, is_small_at_mark, seen_at_mark
from lakefs_gc.engine.sweep.look_heads import LookHeads
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.errors import InputOrderError, SafetyError
from lakefs_gc.formats.gc_rules import GCRules, rules_to_record
from lakefs_gc.lakefs.models import Heads
from lakefs_gc.storage.location import StoreLocation

logger = logging.getLogger(__name__)

_TASKS_PER_CORE = 4
_MOST_FOUND = 8
"""How many DataFrames of references to keep before they are merged: Spark's plan must not grow with every look."""
_SEARCHES_AGAIN = 3
"""On a server where branches are created all the time, there would always be a new one."""
_SIZED = "address string, size long"


def second_look_at(
    context: RunContext, run: GCRun, mark: Mark, accepted: Accepted, any_size: ValueFilter | None
) -> SecondLook:
    """Return the second look of a sweep. What protected commits and paths at the mark still protects them.

    The server must list the other repositories that the mark records, and the branches that this workspace recorded for
    it, except deleted ones.
    """
    recorded = protections_from_json(mark.run.get("protections"))
    safety = context.safety.model_copy(update={"protect": context.safety.protect.joined(recorded)})
    context = context.with_safety(safety)
    # In the run, so that each reading expects them: the client forgets a repository for which it once got a 404.
    run = replace(run, repositories=tuple(sorted({*run.repositories, *mark.repositories})))
    is_small = is_small_at_mark(context, mark)
    context.compute.scale(is_small)  # before anything is read: a small run reads into this process
    seen = seen_at_mark(context, run, mark)
    branches = branches_at_mark(context, mark)
    return SecondLook(context, run, seen, accepted, any_size, branches=branches, is_small=is_small and seen is not None)


class SecondLook:
    """Takes second looks during one sweep. Each call reads only what no earlier look has read.

    An address that one look returns stays in the results of all later ones. ``accepted`` is what the approval accepts
    as unknown. Anything else that cannot be read ends the sweep. ``any_size`` is for ``TwinSearch``. ``branches`` are
    those that the mark saw. ``is_small`` says whether the sweep can be a small run (``scale``).
    """

    def __init__(
        self,
        context: RunContext,
        run: GCRun,
        seen: SeenAtMark | None,
        accepted: Accepted,
        any_size: ValueFilter | None,
        *,
        branches: frozenset[str] = frozenset(),
        is_small: bool = False,
    ) -> None:
        self._context, self._run, self._accepted, self._any_size = context, run, accepted, any_size
        self._branches, self.is_small = branches, is_small
        # Those of the mark, then those of the last look: what disappeared in between and came back is read once more.
        self._seen_ranges = [seen.ranges] if seen else []
        self._seen_files = [seen.foreign_files] if seen and seen.foreign_files is not None else []
        self._of_mark = len(self._seen_ranges), len(self._seen_files)
        self._graph: CommitGraph | None = None  # histories only grow, so each look reads only new commits
        self._heads: Heads = {}  # whose commits were read
        self._read_commit_ids = set[str]()
        self._rules: object = None  # by which they were read
        self._read_all_commits = False
        self._readings_of_heads = 0
        self._found: list[DataFrame] = []
        self._others, self._deleted = set[str](), set[str]()  # repositories
        self._merged = 0
        self._looks = 0
        self._begun: tuple[LookHeads, Dataset] | None = None
        self._heads_of_list: Heads | None = None

    def begin(self) -> None:
        """Begin the next look, as far as it needs no objects: have the server begin its list.

        In a small run, this process reads the heads while it waits for the list.
        """
        self._begun = self._begin()
        begin_uncommitted(
            self._context,
            self._run,
            reads_history=self._graph is None,
            on_heads=self._note_heads,
        )

    def _note_heads(self, heads: Heads) -> None:
        self._heads_of_list = heads

    def _begin(self) -> tuple[LookHeads, Dataset]:
        """Begin a look. Return the heads that it sees, and what other repositories refer to."""
        self._looks += 1
        self._heads_of_list = None
        context, run = self._context, self._run
        look_heads = LookHeads(context.server, run.repository)
        refuse_another_repository(context.server, run)
        context.server.expect_branches(run.repository, self._branches)
        # Other repositories first: an object that leaves one for a branch before this reading is in the list that
        # follows. If it replaces a staged entry, the number of changes stays the same, and nothing else shows it.
        return look_heads, self._read_foreign()

    def __call__(self, objects: DataFrame) -> DataFrame:
        """Return every address that is referenced now and may be one of ``objects``. Column: ``address``.

        ``objects`` (columns ``address`` and ``size``, which may be null) are the objects to delete. They are read
        several times, so pass a DataFrame that is stored. The result may have an address several times.

        Raises what the stages raise, and ``SafetyError`` for what cannot be read and is not accepted.
        """
        context, run = self._context, self._run
        (look_heads, foreign), self._begun = self._begun or self._begin(), None
        sized, any_size, unseen_objects = self._sized(objects)
        search = TwinSearch(context, run, self._name("twins"), any_size, asks_twice=True)
        if self._heads_of_list is not None:
            read_heads_ahead(sized, self._heads_of_list, search)
        staged = self._keep("uncommitted", uncommitted(context, run, reads_history=self._graph is None))
        live = self._read_commits(staged)
        shown = self._find_shown(sized, staged, search, look_heads)
        protected = protected_paths(context, run, sized)
        kept = self._keep("kept", StageOutput(distinct_union((shown.objects, protected)), context.clock()))
        # Once more, and last. What left its commit meanwhile was in those that were read before. What was staged but
        # omitted from the list, and then committed, is in these, also if no branch has them any more.
        committed_meanwhile = self._read_commits(staged, "_again")
        self._search_other_heads(sized, staged, search, look_heads, "_again")
        # The same for what was imported elsewhere meanwhile.
        imported_meanwhile = self._read_foreign("_again")
        lacks_repositories = self._lacks_repositories(foreign, imported_meanwhile)
        if self._search_again(sized, search, shown, look_heads, must=lacks_repositories):
            # What was staged on a new branch may be committed or imported elsewhere by now, and the branch deleted.
            self._remember(self._read_commits(staged, "_of_new"), imported_meanwhile)
            self._search_other_heads(sized, staged, search, look_heads, "_of_new")
            imported_meanwhile = self._read_foreign("_meanwhile")
        # Staged addresses as well: a later list may omit some, if the server's own store fails in the middle of it.
        self._remember(staged, live, foreign, committed_meanwhile, imported_meanwhile)
        refuse_another_repository(context.server, run)
        others = context.server.other_repositories(run.repository)
        # The relative addresses of a repository that was created meanwhile in this namespace are read by no stage.
        refuse_overlaps(context.server.repository(run.repository), others, context.settings)
        facts = imported_meanwhile.manifest.facts
        if not facts["switched_off"] and any(facts["repositories"].get(o.name) != o.identity for o in others):
            # The list of the last reading may have been an old one, e.g. of a cache.
            self._remember(self._read_foreign("_of_new"))
        if self._has_history or self._read_all_commits:
            # Last of all: reading other repositories may take minutes, and commits may have become active meanwhile.
            self._read_commits_since(context.server.heads_of(run.repository), staged)
        seen_now = (kept.dataframe.select("address"), *unseen_objects, *self._found)
        return reduce(DataFrame.unionByName, seen_now)

    def _lacks_repositories(self, foreign: Dataset, again: Dataset) -> bool:
        """Return whether a look's first reading lacks repositories that the mark, the run or an earlier look knew.

        One that the first and the last reading of a look lack is deleted: it is not missed until it is listed again.

        The answer that such a repository does not exist may be wrong, of a replica that is behind. An object that left
        it before it was deleted may be only where this look had read before.
        """
        if foreign.manifest.facts["switched_off"]:
            return False
        listed = foreign.manifest.facts["repositories"].keys()
        listed_again = again.manifest.facts["repositories"].keys()
        lacked = {*self._run.repositories, *self._others} - listed - self._deleted
        self._others |= listed | listed_again
        self._deleted = (self._deleted | lacked) - listed - listed_again
        return bool(lacked)

    def _search_again(
        self, sized: DataFrame, search: TwinSearch, shown: Shown, look_heads: LookHeads, *, must: bool
    ) -> bool:
        """Look at all branches again if it ``must``, or some were not searched. Keep what they have.

        Return whether it did so.

        Such a branch was created meanwhile, or missing in the list, or did not exist when it was asked for. All are
        looked at, because what it had may have been moved to one that was searched before. A name that is in no list is
        asked for again: one 404 proves nothing. It is forgotten after the third.
        """
        context, run = self._context, self._run
        searched = shown.branches
        for number in range(_SEARCHES_AGAIN):
            is_whole = shown.is_whole and context.server.known_branches(run.repository) <= searched
            if is_whole and (number or not must):
                return number > 0
            output = uncommitted(context, run, reads_history=False)
            staged = self._keep_as(self._name(f"uncommitted_again_{number}"), output, schemas.BY_STAGE["uncommitted"])
            again = replace(search, name=self._name(f"twins_again_{number}"))
            shown = self._find_shown(sized, staged, again, look_heads)
            output = StageOutput(shown.objects, context.clock())
            kept = self._keep_as(self._name(f"kept_again_{number}"), output, schemas.BY_STAGE["kept"])
            self._remember(staged, kept)
            searched |= shown.branches
        return True

    def _find_shown(self, sized: DataFrame, staged: Dataset, search: TwinSearch, look_heads: LookHeads) -> Shown:
        """Return what branches show. Before each search, read the commits of heads whose commits were not read.

        An object may leave the commit of a branch that was created since, or that a replica did not list, for a path
        that the search has looked up. The branch may be deleted before commits are read again.
        """
        with look_heads.searching() as searched:

            def read_commits_of(heads: Heads) -> Heads:
                known = self._heads
                searched.update(heads.items(), known.items())
                if not self._read_all_commits:
                    self._read_commits_since(heads, staged)
                return known

            facts = staged.manifest.facts
            searched.update(facts["heads"].items())
            if facts["heads"] != self._heads and self._has_history and not self._read_all_commits:
                self._read_commits_since(facts["heads"], staged)
            return find_shown(sized, facts, search, on_heads=read_commits_of)

    def _search_other_heads(
        self, sized: DataFrame, staged: Dataset, search: TwinSearch, look_heads: LookHeads, again: str
    ) -> None:
        """Search the heads that no search has had. The lists of the searches may have been old.

        Those of a branch for which the server says then that it does not exist are searched again, up to three times.
        The commits of these heads are read before each search, and commits once more after it: what left such a branch
        meanwhile may be in them. The heads of that reading are not searched: on a busy server each list has new ones.
        """
        heads = look_heads.unsearched()
        for number in range(_SEARCHES_AGAIN):
            if not heads:
                return
            # Without rules, the last reading has read all commits, and the one that follows reads the new ones.
            for each in heads if self._has_history and not self._read_all_commits else ():
                self._read_commits_since({**self._heads, **each}, staged)
            name = f"of_other_heads{again}_{number}"
            with look_heads.searching() as searched:
                searched.update(*(each.items() for each in heads))
                paths = find_twins(sized, heads, replace(search, name=f"{search.name}_{name}"))
                paths.look_up_again()  # the first answers may be old, too
                output = StageOutput(paths.kept(), self._context.clock())
                self._remember(self._keep_as(self._name(f"kept_{name}"), output, schemas.BY_STAGE["kept"]))
            if self._has_history or self._read_all_commits:
                self._read_commits_since(self._context.server.heads_of(self._run.repository), staged)
            heads = look_heads.unsearched(heads)

    @property
    def _has_history(self) -> bool:
        """Whether the history tells which commits are active. Above ``max_commits``, only a list of the server does."""
        return self._graph is not None and self._graph.complete

    def _read_commits_since(self, heads: Heads, staged: Dataset) -> None:
        """Read what the rules retain now, with these heads, and did not at the last reading of commits."""
        context, run, known, graph = self._context, self._run, self._heads, self._graph
        rules, output = context.server.retention_rules(run.repository), None
        # Without rules all metadata is listed again: a commit that no branch has is active, too.
        if rules is not None and graph is not None and rules_to_record(rules) == self._rules:
            # Also a branch that is gone makes a difference: the default rule may retain its commits for longer.
            if heads == known and not context.safety.protect.tags:  # a tag may be new
                return
            output = ranges_since(context, run, rules, graph, heads, known, self._read_commit_ids)
        self._readings_of_heads += 1
        again = f"_of_heads_{self._readings_of_heads}"
        if output is None:
            self._remember(self._read_commits(staged, again, rules=rules))
            return
        ranges = self._keep_as(self._name(f"active_ranges{again}"), output, schemas.ACTIVE_RANGES)
        if ranges.manifest.rows:
            self._remember(self._read_unseen(ranges, again))

    def _read_commits(self, staged: Dataset, again: str = "", *, rules: GCRules | AskForRules | None = ASK) -> Dataset:
        """Return the addresses in the active ranges that neither the mark nor the last reading of commits has read."""
        context, run = self._context, self._run
        self._graph = history_so_far(context, run) if self._graph is None else self._graph
        output = active_ranges(context, run, staged, must_exist=False, graph=self._graph, rules=rules)
        ranges = self._keep_as(self._name(f"active_ranges{again}"), output, schemas.ACTIVE_RANGES)
        self._refuse_unchecked_commits(ranges)
        facts = ranges.manifest.facts
        self._heads = facts[HEADS]
        self._rules, self._read_commit_ids = facts.get("rules"), set()
        self._read_all_commits = facts["mode"] == ALL_COMMITS
        live = self._read_unseen(ranges, again)
        if not ranges.manifest.rows or not (self._seen_ranges or live.manifest.rows):
            refuse_unproved_emptiness(context, run)
        self._seen_ranges[self._of_mark[0] :] = [ranges.dataframe]
        return live

    def _read_unseen(self, ranges: Dataset, again: str) -> Dataset:
        """Return the addresses in those of these ranges that neither the mark nor the last reading has read."""
        context, unseen = self._context, ranges.dataframe
        for seen in self._seen_ranges:
            unseen = rows_without(unseen, seen, "range_id")
        name, listed = self._name(f"committed{again}"), context.workspace.files_of(ranges.manifest)
        addresses = write_addresses(context, self._run, unseen, name, listed=listed)
        output = StageOutput(addresses, context.clock(), in_parts=True)
        return self._keep_as(name, output, schemas.BY_STAGE["committed"])

    def _read_foreign(self, again: str = "") -> Dataset:
        """Return the references in files of other repositories that neither the mark nor the last reading has read."""
        context, run, name = self._context, self._run, self._name(f"{FILES}{again}")
        seen = reduce(DataFrame.union, self._seen_files) if self._seen_files else None
        accepted = self._accepted.others
        output = foreign_references(context, run, name=name, seen=seen, accepted=accepted)
        schema = schemas.BY_STAGE["foreign_references"]
        foreign = self._keep_as(self._name(f"foreign_references{again}"), output, schema)
        if files_id := foreign.manifest.facts["files_id"]:
            files = context.workspace.read(context.spark, run.run_key, name, FILE)
            if files.manifest.materialization_id != files_id:
                raise InputOrderError(
                    f"{name} of run {run.run_key} is not the list of files that this look has read",
                    remedy="Sweep again, and find out what changes files or answers of the workspace (work_url)",
                )
            self._seen_files[self._of_mark[1] :] = [files.dataframe]
        return foreign

    def _refuse_unchecked_commits(self, ranges: Dataset) -> None:
        if ranges.manifest.facts["missed_by_rules"] is None and not self._accepted.commits_unchecked:
            raise SafetyError(
                f"The active commits of repository {self._run.repository} were not checked: it has more than "
                "safety.max_commits. Commits that the server omits could lose their objects",
                remedy="Raise safety.max_commits, and sweep again. Or make a new mark: its check "
                f"{SERVER_LIST_IS_COMPLETE} fails, and who approves that mark can override it",
            )

    def _remember(self, *found: Dataset) -> None:
        """Keep the addresses of these datasets for all later looks."""
        self._found += [dataset.dataframe.select("address") for dataset in found if dataset.manifest.rows]
        if len(self._found) > _MOST_FOUND:
            output = StageOutput(reduce(DataFrame.unionByName, self._found).distinct(), self._context.clock())
            self._merged += 1  # a look may merge more than once, and must not write what it reads
            self._found = [self._keep_as(self._name(f"found_{self._merged}"), output).dataframe]

    def _sized(self, objects: DataFrame) -> tuple[DataFrame, ValueFilter | None, tuple[DataFrame, ...]]:
        """Return ``objects`` with their sizes, the sizes of entries that may hide one of any size, and unseen objects.

        The store is asked where the mark, made by another tool, has no size. An object that does not exist is omitted,
        unless its versions are to be deleted: then its size is ``ANY_SIZE``, and any entry may hide it. Nobody searched
        for an omitted object. So it counts as referenced: should it exist after all when the sweep asks, it is kept.
        """
        if (table := known_table(objects)) is not None and not table["size"].null_count:
            return columns_of(objects, "address", "size"), self._any_size, ()
        known = objects.where(F.col("size").isNotNull()).select("address", "size")
        unknown = objects.where(F.col("size").isNull()).select("address")
        if unknown.isEmpty():
            return known, self._any_size, ()
        with_versions = self._context.settings.sweep.delete_versions
        asked = unknown.repartition(self._context.cores * _TASKS_PER_CORE).mapInArrow(
            _ask_for_size(self._run.store, with_versions), _SIZED
        )
        measures = {"any_size": F.count_if(F.col("size") == ANY_SIZE)}
        output = StageOutput(known.unionByName(asked), self._context.clock(), measures=measures)
        kept = self._keep_as(self._name("sizes"), output, schemas.SIZED)
        unseen = unknown.join(kept.dataframe, "address", "left_anti")
        return kept.dataframe, every_size() if kept.manifest.facts["any_size"] else self._any_size, (unseen,)

    def _keep(self, stage: str, output: StageOutput) -> Dataset:
        return self._keep_as(self._name(stage), output, schemas.BY_STAGE[stage])

    def _keep_as(self, name: str, output: StageOutput, schema: StructType | str | None = None) -> Dataset:
        return self._context.workspace.keep(self._context.spark, self._run.run_key, name, output, schema)

    def _name(self, stage: str) -> str:
        return f"look_{self._looks}_{stage}"


@worker
def _ask_for_size(batches: Batches, store: StoreLocation, with_versions: bool) -> Batches:
    for batch in batches:
        addresses = batch.column("address").to_pylist()
        # Twice, in another order: the answer to a HEAD does not say which object it is about (``hidden_twins``).
        first, again = (
            {address: info.size_bytes for address, info in worker_store(store).stat_many(each).items()}
            for each in (addresses, addresses[::-1])
        )
        sizes = first if first == again else dict.fromkeys(first | again, ANY_SIZE)
        if with_versions:
            sizes = dict.fromkeys(addresses, ANY_SIZE) | sizes
        columns = [pa.array(list(sizes), pa.string()), pa.array(list(sizes.values()), pa.int64())]
        yield pa.record_batch(columns, names=["address", "size"])
