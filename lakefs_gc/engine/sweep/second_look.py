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

from lakefs_gc.engine.collect.references.foreign_references import FILE, FILES, foreign_references
from lakefs_gc.engine.collect.references.uncommitted import begin_uncommitted, uncommitted
from lakefs_gc.engine.decide.marking.checks import protections_from_json
from lakefs_gc.engine.decide.protected_paths import protected_paths
from lakefs_gc.engine.decide.shown.hidden_twins import find_twins, read_heads_ahead
from lakefs_gc.engine.decide.shown.lookups import ANY_SIZE, TwinSearch
from lakefs_gc.engine.decide.shown.shown_objects import Shown, find_shown
from lakefs_gc.engine.decide.shown.value_filter import ValueFilter, every_size
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.run import GCRun, RunContext, refuse_another_repository, refuse_overlaps
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import known_table
from lakefs_gc.engine.spark.local_rows import columns_of, distinct_union
from lakefs_gc.engine.spark.workers import Batches, worker, worker_store
from lakefs_gc.engine.sweep.at_mark import Accepted, SeenAtMark, branches_at_mark, is_small_at_mark, seen_at_mark
from lakefs_gc.engine.sweep.commit_readings import CommitReadings
from lakefs_gc.engine.sweep.look_datasets import LookDatasets
from lakefs_gc.engine.sweep.look_heads import LookHeads
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.errors import InputOrderError
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
        self._datasets = LookDatasets(context, run)
        self._commits = CommitReadings(context, run, self._datasets, seen, accepted)
        # Those of the mark, then those of the last look: what disappeared in between and came back is read once more.
        self._seen_files = [seen.foreign_files] if seen and seen.foreign_files is not None else []
        self._files_of_mark = len(self._seen_files)
        self._found: list[DataFrame] = []
        self._others, self._deleted = set[str](), set[str]()  # repositories
        self._merged = 0
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
            reads_history=self._commits.graph is None,
            on_heads=self._note_heads,
        )

    def _note_heads(self, heads: Heads) -> None:
        self._heads_of_list = heads

    def _begin(self) -> tuple[LookHeads, Dataset]:
        """Begin a look. Return the heads that it sees, and what other repositories refer to."""
        self._datasets.begin_look()
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
        search = TwinSearch(context, run, self._datasets.name("twins"), any_size, asks_twice=True)
        if self._heads_of_list is not None:
            read_heads_ahead(sized, self._heads_of_list, search)
        output = uncommitted(context, run, reads_history=self._commits.graph is None)
        staged = self._datasets.keep("uncommitted", output)
        live = self._commits.read_active(staged)
        shown = self._find_shown(sized, staged, search, look_heads)
        protected = protected_paths(context, run, sized, self._commits.named_metaranges)
        kept = self._datasets.keep("kept", StageOutput(distinct_union((shown.objects, protected)), context.clock()))
        # Once more, and last. What left its commit meanwhile was in those that were read before. What was staged but
        # omitted from the list, and then committed, is in these, also if no branch has them any more.
        committed_meanwhile = self._commits.read_active(staged, "_again")
        self._search_other_heads(sized, staged, search, look_heads, "_again")
        # The same for what was imported elsewhere meanwhile.
        imported_meanwhile = self._read_foreign("_again")
        lacks_repositories = self._lacks_repositories(foreign, imported_meanwhile)
        if self._search_again(sized, search, shown, look_heads, must=lacks_repositories):
            # What was staged on a new branch may be committed or imported elsewhere by now, and the branch deleted.
            self._remember(self._commits.read_active(staged, "_of_new"), imported_meanwhile)
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
        if self._commits.has_history or self._commits.reads_all:
            # Last of all: searching heads and reading other repositories may take minutes, and commits may have become
            # active meanwhile.
            self._remember(*self._commits.read_since(context.server.heads_of(run.repository), staged))
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
            staged = self._datasets.keep("uncommitted", output, f"_again_{number}")
            again = replace(search, name=self._datasets.name(f"twins_again_{number}"))
            shown = self._find_shown(sized, staged, again, look_heads)
            output = StageOutput(shown.objects, context.clock())
            kept = self._datasets.keep("kept", output, f"_again_{number}")
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
                known = self._commits.heads
                searched.update(heads.items(), known.items())
                if not self._commits.reads_all:
                    self._remember(*self._commits.read_since(heads, staged))
                return known

            facts = staged.manifest.facts
            searched.update(facts["heads"].items())
            if facts["heads"] != self._commits.heads and self._commits.has_history and not self._commits.reads_all:
                self._remember(*self._commits.read_since(facts["heads"], staged))
            return find_shown(sized, facts, search, on_heads=read_commits_of)

    def _search_other_heads(
        self, sized: DataFrame, staged: Dataset, search: TwinSearch, look_heads: LookHeads, again: str
    ) -> None:
        """Search the heads that no search has had. The lists of the searches may have been old.

        Those of a branch for which the server says then that it does not exist are searched again, up to three times.
        The commits of these heads are read before each search. What leaves such a branch meanwhile may be in those that
        are read last of all. The heads of that reading are not searched: on a busy server each list has new ones.
        """
        heads = look_heads.unsearched()
        for number in range(_SEARCHES_AGAIN):
            if not heads:
                return
            # Without rules, the last reading has read all commits, and the last of all reads the new ones.
            for each in heads if self._commits.has_history and not self._commits.reads_all else ():
                self._remember(*self._commits.read_since({**self._commits.heads, **each}, staged))
            name = f"_of_other_heads{again}_{number}"
            with look_heads.searching() as searched:
                searched.update(*(each.items() for each in heads))
                paths = find_twins(sized, heads, replace(search, name=f"{search.name}{name}"))
                paths.look_up_again()  # the first answers may be old, too
                output = StageOutput(paths.kept(), self._context.clock())
                self._remember(self._datasets.keep("kept", output, name))
            heads = look_heads.unsearched(heads)

    def _read_foreign(self, again: str = "") -> Dataset:
        """Return the references in files of other repositories that neither the mark nor the last reading has read."""
        context, run, name = self._context, self._run, self._datasets.name(f"{FILES}{again}")
        seen = reduce(DataFrame.union, self._seen_files) if self._seen_files else None
        accepted = self._accepted.others
        output = foreign_references(context, run, name=name, seen=seen, accepted=accepted)
        foreign = self._datasets.keep("foreign_references", output, again)
        if files_id := foreign.manifest.facts["files_id"]:
            files = context.workspace.read(context.spark, run.run_key, name, FILE)
            if files.manifest.materialization_id != files_id:
                raise InputOrderError(
                    f"{name} of run {run.run_key} is not the list of files that this look has read",
                    remedy="Sweep again, and find out what changes files or answers of the workspace (work_url)",
                )
            self._seen_files[self._files_of_mark :] = [files.dataframe]
        return foreign

    def _remember(self, *found: Dataset) -> None:
        """Keep the addresses of these datasets for all later looks."""
        self._found += [dataset.dataframe.select("address") for dataset in found if dataset.manifest.rows]
        if len(self._found) > _MOST_FOUND:
            output = StageOutput(reduce(DataFrame.unionByName, self._found).distinct(), self._context.clock())
            self._merged += 1  # a look may merge more than once, and must not write what it reads
            self._found = [self._datasets.keep(f"found_{self._merged}", output).dataframe]

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
        asked = unknown.repartition(self._context.cores * _TASKS_PER_CORE, "address").mapInArrow(
            _ask_for_size(self._run.store, with_versions), _SIZED
        )
        measures = {"any_size": F.count_if(F.col("size") == ANY_SIZE)}
        output = StageOutput(known.unionByName(asked), self._context.clock(), measures=measures)
        kept = self._datasets.keep("sizes", output, schema=schemas.SIZED)
        unseen = unknown.join(kept.dataframe, "address", "left_anti")
        return kept.dataframe, every_size() if kept.manifest.facts["any_size"] else self._any_size, (unseen,)


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
