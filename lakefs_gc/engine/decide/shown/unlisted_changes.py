"""Keeps staged objects that the server's list of uncommitted addresses omits (rules 6 and 12).

A list that omits an object looks the same as a list of a branch that does not have it. There are two known causes:

- The list has only addresses that begin with the namespace exactly as the repository spells it. lakeFS reads other
  spellings as the same objects (``S3://...``, ``s3://me@bucket/...``, see ``formats.addresses``).
- A server whose own key-value store fails in the middle of a branch omits the rest of that branch without an error
  (lakeFS 1.84, ``pkg/catalog/gc_write_uncommitted.go``).

Both change the row count: each change of a branch, except a delete, is one row of the list. So the changes of all
branches are counted, with one request for each 1,000. Equal counts are strong evidence, but no proof, that nothing was
omitted: an omitted row and a change that was reverted before the count cancel out (docs/known-limits.md). They show
nothing if branches have moved since the list: a change may have been committed, and another one be new. Nor do they
where a mount tells another name of the bucket: rows are omitted there as a rule.

If equal counts show nothing, or the counts differ (imports are staged, or clients are writing), the changes are read
again, and each path that was changed at either time is looked up: an object may have been moved to another path in
between, or to a new branch, or committed. The object that the branch shows is kept. If there are too many paths, only
those whose size is that of an unreferenced object are looked up. If these are still too many, all objects of such sizes
are kept unverified.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import compress, islice
from threading import Event

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.decide.shown.hidden_twins import ANY_SIZE, Lookup, TwinSearch, kept_of, look_up
from lakefs_gc.engine.decide.shown.value_filter import ValueFilter, filter_of
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.errors import RepositoryNotFoundError
from lakefs_gc.formats.addresses import is_local
from lakefs_gc.lakefs.models import Change
from lakefs_gc.storage.concurrency import map_unordered

logger = logging.getLogger(__name__)

_CALLS_AT_ONCE = 16
_CHANGES_AT_ONCE = 1000


class _Changes:
    """The changes of one branch: how many, and the lookups of all of them and of those that sizes do not exclude.

    Both lists end one above ``max_lookups``, which shows that the limit is exceeded. ``sizes`` are those that
    unreferenced objects may have.
    """

    def __init__(self, branch: str, max_lookups: int) -> None:
        self.count = 0
        self.every: list[Lookup] = []
        self.alike: list[Lookup] = []
        self.sizes: set[int] = set()
        self._branch, self._limit = branch, max_lookups + 1

    def add(self, changes: list[Change], sizes: pa.Int64Array, are_alike: pa.BooleanArray) -> None:
        """Count these changes; ``are_alike`` says of each whether an unreferenced object may have its size."""
        self.count += len(changes)
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
    """The count of the changes of all branches. ``wanted`` are the sizes of unreferenced objects; None without any."""

    wanted: ValueFilter | None
    result: Callable[[], list[_Changes]]
    """Counts, or waits for the count, and returns the changes of each branch. Raises what calls of the server raise."""


@contextmanager
def counting_changes(
    unreferenced: DataFrame, heads: Iterable[str], search: TwinSearch, *, at_once: bool
) -> Generator[Counting]:
    """Count the changes of the branches ``heads``: ``at_once``, in another thread, or when the result is asked for.

    ``unreferenced`` has a column ``size``. If it has no rows, nothing is counted.
    """
    with driver_errors():
        wanted = filter_of(unreferenced.select("size"))
    if not at_once:
        yield Counting(wanted, lambda: _read(heads, wanted, search, Event()))
        return
    search.context.server  # noqa: B018 - made here, where nothing else makes it at the same time
    stopped = Event()
    executor = ThreadPoolExecutor(1, "changes")
    try:
        yield Counting(wanted, executor.submit(_read, heads, wanted, search, stopped).result)
    finally:
        stopped.set()
        executor.shutdown(wait=False)


def find_omitted(
    unreferenced: DataFrame,
    listed: int | None,
    heads: Mapping[str, str],
    search: TwinSearch,
    counting: Counting,
) -> DataFrame:
    """Return which unreferenced objects are kept, and why. Columns: ``schemas.KEPT``.

    ``unreferenced`` has columns ``address`` and ``size``. ``listed`` is how many rows the server's list of uncommitted
    addresses has; None if that is unknown. ``heads`` are the branches and their commits right before that list.
    ``counting`` is of ``counting_changes`` with these objects, and at least these branches, after that list.
    """
    spark = search.context.spark
    nothing = local_rows(spark, [], schemas.KEPT)
    wanted = counting.wanted
    if wanted is None:
        return nothing
    with driver_errors():
        counted = counting.result()
        now = search.context.server.heads_of(search.run.repository)
        is_equal = sum(changes.count for changes in counted) == listed
        if is_equal and now == dict(heads) and not _has_other_names(search.run):
            return nothing
        seen = [*counted, *_read({**heads, **now}, wanted, search, Event())]
        lookups = list(dict.fromkeys(lookup for changes in seen for lookup in changes.every))
        if len(lookups) > search.max_lookups:
            lookups = list(dict.fromkeys(lookup for changes in seen for lookup in changes.alike))
        if len(lookups) > search.max_lookups:
            logger.warning(
                "repository %s: more than %s staged changes may refer to an unreferenced object "
                "(safety.max_twin_lookups); all objects of the same sizes are kept unverified",
                search.run.repository,
                f"{search.max_lookups:,}",
            )
            sizes = sorted(set[int]().union(*(changes.sizes for changes in seen)))
            alike = unreferenced
            if ANY_SIZE not in sizes:
                rows = local_rows(spark, [(size,) for size in sizes], "size long")
                alike = unreferenced.join(rows, "size", "left_semi")
            return alike.select("address", "size", F.lit(schemas.KEPT_UNVERIFIED).alias("why"))
        shown, unanswered = look_up(lookups, search)
        return kept_of(spark, unreferenced.select("address", "size", F.lit("").alias("md5")), shown, unanswered)


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
