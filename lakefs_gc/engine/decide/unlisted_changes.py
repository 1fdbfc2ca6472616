"""Keep what a branch has staged although the server's uncommitted list leaves it out.

That list has the addresses that begin with the namespace as it is spelled.  lakeFS reads others as the same objects
(``S3://...``, ``s3://me@bucket/...``: see ``formats.addresses``), and a server whose own store fails it in the middle
of a branch leaves out the rest without an error (lakeFS 1.84, ``pkg/catalog/gc_write_uncommitted.go``).  Both show in
the numbers: each change of a branch, other than a delete, is one row of the list.

So the changes of all branches are counted, a request for each 1000.  Where there are as many as rows, none was left
out.  Where not (somebody has staged imports, or is at work), each path that has the size of an unreferenced object is
looked up, and what the branch shows is kept; when these are too many, whatever has such a size is kept, as *shielded*.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.decide.hidden_twins import Lookup, TwinSearch, kept_of, look_up
from lakefs_gc.engine.decide.value_filter import ValueFilter, filter_of
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.errors import RepositoryNotFoundError
from lakefs_gc.lakefs.client import Change
from lakefs_gc.storage.concurrency import map_unordered

logger = logging.getLogger(__name__)

_CALLS_AT_ONCE = 16
_CHANGES_AT_ONCE = 1000


@dataclass
class _Changes:
    """Of one branch: how many there are, those to look up, and the sizes of all that may be a suspect's."""

    count: int
    lookups: list[Lookup]
    sizes: set[int]


def find_left_out(suspects: DataFrame, listed: int | None, branches: Iterable[str], search: TwinSearch) -> DataFrame:
    """Which of ``suspects`` (columns ``address``, ``size``) are kept, and why.  Columns: ``schemas.KEPT``.

    ``listed`` is how many rows the server's uncommitted list of these ``branches`` had; None where that is not known.
    """
    spark = search.context.spark
    nothing = local_rows(spark, [], schemas.KEPT)
    with driver_errors():
        wanted = filter_of(suspects.select("size"))
        if wanted is None:
            return nothing
        asked = map_unordered(lambda branch: _changes(branch, wanted, search), branches, _CALLS_AT_ONCE)
        found = [changes for _, changes in asked]
        if sum(changes.count for changes in found) == listed:
            return nothing
        lookups = [lookup for changes in found for lookup in changes.lookups]
        if len(lookups) > search.max_lookups:
            logger.warning(
                "more than %d changes of %s may hide an object that no list has: all such objects are kept",
                search.max_lookups,
                search.run.repository,
            )
            sizes = sorted(set[int]().union(*(changes.sizes for changes in found)))
            alike = suspects.join(local_rows(spark, [(size,) for size in sizes], "size long"), "size", "left_semi")
            return alike.select("address", "size", F.lit(schemas.SHIELDED).alias("why"))
        shown, unanswered = look_up(lookups, search)
        return kept_of(spark, suspects.select("address", "size", F.lit("").alias("md5")), shown, unanswered)


def _changes(branch: str, wanted: ValueFilter, search: TwinSearch) -> _Changes:
    found = _Changes(0, [], set())
    changes = _changes_of(branch, search)
    while some := list(islice(changes, _CHANGES_AT_ONCE)):
        found.count += len(some)
        passes = wanted.passes(pa.array([change.size_bytes for change in some], pa.int64()), None)
        alike = [change for change, may_be in zip(some, passes.to_pylist(), strict=True) if may_be]
        found.sizes.update(change.size_bytes for change in alike)
        room = search.max_lookups + 1 - len(found.lookups)  # one more than may be asked for says that they are too many
        found.lookups += [Lookup(branch, change.path.encode(), change.size_bytes, "") for change in alike[:room]]
    return found


def _changes_of(branch: str, search: TwinSearch) -> Iterator[Change]:
    with suppress(RepositoryNotFoundError):  # the branch was deleted meanwhile
        yield from search.context.server.changes(search.run.repository, branch)
