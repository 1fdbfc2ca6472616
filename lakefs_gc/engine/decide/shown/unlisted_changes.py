"""Keeps staged objects that the server's list of uncommitted addresses omits (rules 6 and 12).

A list that omits an object looks the same as a list of a branch that does not have it. There are two known causes:

- The list has only addresses that begin with the namespace exactly as the repository spells it. lakeFS reads other
  spellings as the same objects (``S3://...``, ``s3://me@bucket/...``, see ``formats.addresses``).
- A server whose own key-value store fails in the middle of a branch omits the rest of that branch without an error
  (lakeFS 1.84, ``pkg/catalog/gc_write_uncommitted.go``).

Both change the row count: each change of a branch, except a delete, is one row of the list. So the changes of all
branches are counted, with one request for each 1,000. Equal counts are strong evidence, but no proof, that nothing was
omitted: an omitted row and a change that was reverted before the count cancel out, and so do an object that is omitted
or moved and one that it replaces. They show nothing if branches have moved since the list: a change may have been
committed, and another one be new. Nor do they where a mount tells another name of the bucket: rows are omitted there as
a rule.

If the counts show that nothing was omitted, a mark looks no further. A second look looks up each changed path that has
the size of an unreferenced object. If the counts differ or show nothing (imports are staged, or clients are writing),
each changed path is looked up; only those with the size of an unreferenced object if they are too many. If these are
still too many, all objects of such sizes are kept unverified.

The changes are read twice, and counted twice: an object may have been moved to another path in between, or to a new
branch.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import compress, islice
from threading import Event

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.decide.shown.ask_branch import Lookup
from lakefs_gc.engine.decide.shown.lookups import ANY_SIZE, Answers, Riders, TwinSearch, kept_of, try_look_up
from lakefs_gc.engine.decide.shown.value_filter import ValueFilter, filter_of
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import columns_of, local_rows
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.errors import RepositoryNotFoundError
from lakefs_gc.formats.address_readings import is_local
from lakefs_gc.lakefs.models import Change
from lakefs_gc.lakefs.pagination import REPLACEMENT_CHARACTER
from lakefs_gc.storage.concurrency import map_unordered

logger = logging.getLogger(__name__)

_CALLS_AT_ONCE = 16
_CHANGES_AT_ONCE = 1000
_REPLACED = REPLACEMENT_CHARACTER.encode()


class _Changes:
    """The changes of one branch: how many, and the lookups of all of them and of those that sizes do not exclude.

    Both lists end one above ``max_lookups``, which shows that the limit is exceeded. ``sizes`` are those that
    unreferenced objects may have. ``replaced`` counts the changes by their paths, if these have a replaced character.
    """

    def __init__(self, branch: str, max_lookups: int) -> None:
        self.count = 0
        self.every: list[Lookup] = []
        self.alike: list[Lookup] = []
        self.sizes: set[int] = set()
        self.replaced = Counter[str]()
        self._branch, self._limit = branch, max_lookups + 1

    def add(self, changes: list[Change], sizes: pa.Int64Array, are_alike: pa.BooleanArray) -> None:
        """Count these changes; ``are_alike`` says of each whether an unreferenced object may have its size."""
        self.count += len(changes)
        self.replaced.update(change.path for change in changes if REPLACEMENT_CHARACTER in change.path)
        self._extend(self.every, zip(changes, sizes.to_pylist(), strict=True))
        alike = sizes.filter(are_alike)
        if len(alike):
            self.sizes.update(pc.unique(alike).to_pylist())
            selected = compress(changes, are_alike.to_pylist())
            self._extend(self.alike, zip(selected, alike.to_pylist(), strict=True))

    def _extend(self, lookups: list[Lookup], found: Iterable[tuple[Change, int]]) -> None:
        room = self._limit - len(lookups)  # most of millions of changes find none
        lookups += [Lookup(self._branch, change.path.encode(), size, "") for change, size in islice(found, room)]


@dataclass(frozen=True)
class Counting:
    """The count of the changes of all branches."""

    result: Callable[[], list[_Changes]]
    """Counts, or waits for the count, and returns the changes of each branch. Raises what calls of the server raise."""
    read: Callable[[Iterable[str]], list[_Changes]]
    """Reads the changes of these branches now."""


@contextmanager
def counting_changes(
    unreferenced: DataFrame, heads: Iterable[str], search: TwinSearch, *, at_once: bool
) -> Generator[Counting]:
    """Count the changes of the branches ``heads``: ``at_once``, in another thread, or when the result is asked for.

    ``unreferenced`` has a column ``size``. If it has no rows, nothing is counted.
    """
    with driver_errors():
        wanted = filter_of(columns_of(unreferenced, "size"))

    def read(branches: Iterable[str]) -> list[_Changes]:
        return _read(branches, wanted, search, Event())

    if not at_once:
        yield Counting(lambda: read(heads), read)
        return
    stopped = Event()
    executor = ThreadPoolExecutor(1, "changes")
    try:
        yield Counting(executor.submit(_read, heads, wanted, search, stopped).result, read)
    finally:
        stopped.set()
        executor.shutdown(wait=False)


def is_complete(
    listed: int | None, counted: Sequence[_Changes], heads: Mapping[str, str], now: Mapping[str, str], run: GCRun
) -> bool:
    """Return whether the counts show that the server's list of uncommitted addresses omits nothing.

    ``listed`` is how many rows that list has; None if that is unknown. ``heads`` are the branches and their commits
    right before it, and ``now`` those after the count.
    """
    is_equal = sum(changes.count for changes in counted) == listed
    return is_equal and now == heads and not _has_other_names(run)


class OmittedSearch:
    """Looks up changed paths.

    ``list_is_complete``: the counts show that the list omits nothing (``is_complete``), as far as is known now.
    """

    def __init__(self, search: TwinSearch, *, list_is_complete: bool) -> None:
        self._search, self.list_is_complete = search, list_is_complete
        self._answers = Answers()
        self._too_many = set[int]()

    def riders(self, changed: Sequence[_Changes]) -> Riders:
        """Return the lookups that ``look_up`` is about to make for these changes."""
        lookups = None if self.list_is_complete else self._some(changes.every for changes in changed)
        return Riders((lookups or self._some(changes.alike for changes in changed)) or ())

    def look_up(self, changed: Sequence[_Changes], riders: Riders | None = None) -> None:
        """Look up the paths of these changes, or have all objects of their sizes kept if they are too many.

        ``riders`` are those that were on their way with other lookups.
        """
        search, answers, riders = self._search, None, riders or Riders()
        self._answers = self._answers.joined(riders.answers)
        if not self.list_is_complete:
            answers = self._answers_to(changed, [changes.every for changes in changed], riders)
        if answers is None:
            answers = self._answers_to(changed, [changes.alike for changes in changed], riders)
        if answers is not None:
            self._answers = self._answers.joined(answers)
        elif not self.list_is_complete:
            logger.warning(
                "repository %s: more than %s staged changes may refer to an unreferenced object "
                "(safety.max_twin_lookups); all objects of the same sizes are kept unverified",
                search.run.repository,
                f"{search.max_lookups:,}",
            )
            self._too_many.update(*(changes.sizes for changes in changed))

    def _answers_to(
        self, changed: Sequence[_Changes], lookups: Sequence[list[Lookup]], riders: Riders
    ) -> Answers | None:
        """Return the answers to these lookups of each branch; None if they are too many."""
        some = self._some(lookups)
        answers = None if some is None else try_look_up(some - riders.answered, self._search)
        if some is None or answers is None:
            return None
        unknown = answers.unanswered | set(self._that_may_be_another(changed, lookups))
        if unknown and not self.list_is_complete:
            # Nothing is known of the object but what its own entry states, and that may be wrong.
            logger.warning(
                "repository %s: %s staged paths cannot be looked up (of branch %s, for example), so all unreferenced "
                "objects are kept unverified. Commit or reset these paths",
                self._search.run.repository,
                f"{len(unknown):,}",
                min(lookup.branch for lookup in unknown),
            )
            unknown = {replace(lookup, size=ANY_SIZE) for lookup in unknown}
        return Answers(answers.shown, unknown)

    def _that_may_be_another(self, changed: Sequence[_Changes], lookups: Sequence[list[Lookup]]) -> Iterator[Lookup]:
        """Yield the lookups of paths that may not be UTF-8. What the server shows by such a name may be another path.

        It shows bytes that are not UTF-8 as a character, which a path may also have. But it compares the bytes.
        """
        server, repository = self._search.context.server, self._search.run.repository
        for changes, of_branch in zip(changed, lookups, strict=True):
            for lookup in of_branch:
                if _REPLACED in lookup.path:
                    path = lookup.path.decode()
                    if changes.replaced[path] > 1 or not server.is_change(repository, lookup.branch, path):
                        yield lookup

    def _some(self, lookups: Iterable[list[Lookup]]) -> set[Lookup] | None:
        found, search = set[Lookup](), self._search
        for of_branch in lookups:
            found.update(of_branch)
            if len(of_branch) > search.max_lookups or len(found) > search.max_paths:
                return None
        return found

    def kept(self, unreferenced: DataFrame) -> DataFrame:
        """Return which of these objects (columns ``address`` and ``size``) are kept. Columns: ``schemas.KEPT``."""
        spark = self._search.context.spark
        contents = unreferenced.select("address", "size", F.lit("").alias("md5"))
        kept = kept_of(spark, unreferenced, contents, self._answers)
        if not self._too_many:
            return kept
        alike = unreferenced
        if ANY_SIZE not in self._too_many:
            rows = local_rows(spark, [(size,) for size in sorted(self._too_many)], "size long")
            alike = unreferenced.join(rows, "size", "left_semi")
        unverified = alike.join(kept.select("address"), "address", "left_anti")
        return kept.union(unverified.select("address", "size", F.lit(schemas.KEPT_UNVERIFIED).alias("why")))


def _has_other_names(run: GCRun) -> bool:
    """Return whether a mount tells another name of the bucket: the server's list omits objects with that name."""
    return bool(run.server_folders) and not is_local(run.namespace)


def _read(heads: Iterable[str], wanted: ValueFilter | None, search: TwinSearch, stopped: Event) -> list[_Changes]:
    """Return the changes of each branch; none if nothing is ``wanted``. Raise ``CancelledError`` once ``stopped``."""
    if wanted is None:
        return []
    with closing(
        map_unordered(lambda branch: _changes(branch, wanted, search, stopped), heads, _CALLS_AT_ONCE)
    ) as read:
        return [changes for _, changes in read]


def _changes(branch: str, wanted: ValueFilter, search: TwinSearch, stopped: Event) -> _Changes:
    changes = _Changes(branch, search.max_lookups)
    listed = _changes_of(branch, search, stopped)
    while chunk := list(islice(listed, _CHANGES_AT_ONCE)):
        sizes = search.compared(pa.array([change.size_bytes for change in chunk], pa.int64()))
        changes.add(chunk, sizes, pc.or_(wanted.passes(sizes, None), pc.equal(sizes, ANY_SIZE)))
    return changes


def _changes_of(branch: str, search: TwinSearch, stopped: Event) -> Iterator[Change]:
    if stopped.is_set():
        raise CancelledError
    with suppress(RepositoryNotFoundError):  # the branch was deleted meanwhile
        for change in search.context.server.changes(search.run.repository, branch):
            if stopped.is_set():  # the caller failed; a part of the changes must not pass for all
                raise CancelledError
            yield change
