"""Looks up what branches show at paths of theirs, and keeps the unreferenced objects that they show."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import reduce
from operator import attrgetter
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakefs_gc.engine.decide.shown.ask_branch import Answer, Budget, BudgetExceededError, Lookup, ask
from lakefs_gc.engine.decide.shown.value_filter import ValueFilter
from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import arrow_schema, known_table, try_url_decode
from lakefs_gc.engine.spark.local_rows import local_rows, rows_of
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.storage.concurrency import map_unordered

logger = logging.getLogger(__name__)

ANY_SIZE = -1
"""In place of the size of an object or entry: it may be of any size."""
CONTENTS = StructType(
    [
        StructField("address", StringType()),
        StructField("size", LongType()),
        StructField("md5", StringType(), False),
    ]
)
"""Objects and their contents. The size may be ``ANY_SIZE``, and the MD5 is empty if it is unknown."""
_CALLS_AT_ONCE = 16
_PATHS_OF_A_PART = 500
_PATHS_PER_LOOKUP = 10
"""The server shows many paths in the time of a lookup, if they are near each other. So try, up to so many."""
_MOST_PATHS = 200_000
"""50 MB of the driver's memory."""


@dataclass(frozen=True)
class HeadPaths:
    """The ranges of heads (columns ``HEAD_RANGES``), and the paths that may show one of the ``unreferenced`` objects.

    What a head consists of never changes.
    """

    unreferenced: DataFrame
    metaranges: frozenset[str]
    ranges: Dataset
    paths: Dataset


@dataclass(frozen=True)
class TwinSearch:
    """What a search needs beside the unreferenced objects.

    The names of its datasets in the workspace begin with ``name``. Entries whose size passes ``any_size`` may hide an
    object of any size; None if there are no such entries.
    """

    context: RunContext
    run: GCRun
    name: str
    any_size: ValueFilter | None
    asks_twice: bool = False
    """Whether the MD5 of an object counts only if the store tells it twice. The answer to a HEAD does not say which
    object it is about, and nothing looks again at what a second look decides."""
    contents: list[Dataset] = field(default_factory=list)
    """Objects whose MD5 was asked for (columns ``CONTENTS``), each in one of them. Several searches may share them."""
    proven: list[Dataset] = field(default_factory=list)
    """Contents of entries at heads (columns ``CONTENTS``) whose MD5 the store states. Several searches may share it."""
    head_paths: list[HeadPaths] = field(default_factory=list)
    """What was read of heads. Several searches may share it."""

    @property
    def max_lookups(self) -> int:
        """The most lookups, each of one path or as much work for the server."""
        return self.context.safety.max_twin_lookups

    @property
    def max_paths(self) -> int:
        """The most paths to try."""
        return max(self.max_lookups, min(self.max_lookups * _PATHS_PER_LOOKUP, _MOST_PATHS))

    def compared(self, sizes: pa.Int64Array) -> pa.Int64Array:
        """Return sizes of entries, with ``ANY_SIZE`` in place of those that pass ``any_size``."""
        return compared_sizes(sizes, self.any_size)

    def keep(
        self,
        stage: str,
        dataframe: DataFrame,
        schema: StructType,
        facts: Mapping[str, int] = MappingProxyType({}),
        *,
        measures: Mapping[str, Column] = MappingProxyType({}),
    ) -> Dataset:
        """Keep a dataset of this search in the workspace."""
        output = StageOutput(dataframe, self.context.clock(), facts, measures)
        return self.context.workspace.keep(self.context.spark, self.run.run_key, f"{self.name}_{stage}", output, schema)


def compared_sizes(sizes: pa.Int64Array, any_size: ValueFilter | None) -> pa.Int64Array:
    """Return sizes of entries, with ``ANY_SIZE`` in place of those that pass ``any_size``."""
    return sizes if any_size is None else pc.if_else(any_size.passes(sizes, None), ANY_SIZE, sizes)


@dataclass(frozen=True)
class Answers:
    """What lookups showed: addresses relative to the namespace, and the lookups without an answer."""

    shown: set[str] = field(default_factory=set)
    unanswered: set[Lookup] = field(default_factory=set)

    def add(self, lookup: Lookup, addresses: tuple[str, ...] | None) -> None:
        """Add the answer to one lookup."""
        if addresses is None:
            self.unanswered.add(lookup)
        else:
            self.shown.update(addresses)

    def joined(self, others: Answers) -> Answers:
        """Return what these and other lookups showed."""
        return Answers(self.shown | others.shown, self.unanswered | others.unanswered)


class Riders:
    """Lookups that are answered on the way if a page that is read for others has their paths."""

    def __init__(self, lookups: Iterable[Lookup] = ()) -> None:
        self.answered = set[Lookup]()
        self.answers = Answers()
        self._of_branch: dict[str, dict[str, Lookup]] = {}
        for lookup in lookups:
            with suppress(UnicodeDecodeError):
                self._of_branch.setdefault(lookup.branch, {})[lookup.path.decode()] = lookup

    def of(self, branch: str) -> Mapping[str, Lookup]:
        """Return those of a branch by their paths."""
        return self._of_branch.get(branch, {})

    def add(self, answered: Iterable[Answer]) -> None:
        """Add these answers."""
        for lookup, addresses in answered:
            self.answered.add(lookup)
            self.answers.add(lookup, addresses)


def try_look_up(lookups: Collection[Lookup] | None, search: TwinSearch, riders: Riders | None = None) -> Answers | None:
    """Return what branches show at these paths; None for None, or if they take more than ``search.max_lookups``.

    Up to ``search.max_lookups`` paths are always looked up. Raises what a lookup raises.
    """
    if lookups is None:
        return None
    budget = Budget(search.max_lookups if len(lookups) > search.max_lookups else None)
    try:
        return look_up(lookups, search, budget, riders)
    except BudgetExceededError:
        return None


def look_up(lookups: Collection[Lookup], search: TwinSearch, budget: Budget, riders: Riders | None = None) -> Answers:
    """Return what branches show at these paths. Raises ``BudgetExceededError``, and what a lookup raises."""
    found, riders = Answers(), riders or Riders()
    server, run = search.context.server, search.run

    def asked(part: list[Lookup]) -> tuple[list[Answer], list[Answer]]:
        return ask(part, server, run, budget, riders.of(part[0].branch))

    answers = map_unordered(asked, _parts(lookups), _CALLS_AT_ONCE)
    done = 0
    with RUN_PROGRESS.step("twins_lookups"), closing(answers):
        for part, (answered, on_the_way) in answers:
            RUN_PROGRESS.count("paths", done, total=len(lookups))
            done += len(part)
            riders.add(on_the_way)
            for lookup, addresses in answered:
                found.add(lookup, addresses)
    logger.info(
        "repository %s: looked up %s paths, %s without an answer",
        search.run.repository,
        f"{len(lookups):,}",
        f"{len(found.unanswered):,}",
    )
    return found


def _parts(lookups: Iterable[Lookup]) -> Iterator[list[Lookup]]:
    """Yield the lookups of each branch, in the order of the paths, in parts that are asked at the same time."""
    of_branch: dict[str, list[Lookup]] = {}
    for lookup in lookups:
        of_branch.setdefault(lookup.branch, []).append(lookup)
    for part in of_branch.values():
        part.sort(key=attrgetter("path"))
        for begin in range(0, len(part), _PATHS_OF_A_PART):
            yield part[begin : begin + _PATHS_OF_A_PART]


def kept_of(spark: SparkSession, unreferenced: DataFrame, alike: DataFrame, answers: Answers) -> DataFrame:
    """Return which objects a branch shows or may show, and why. Columns: ``schemas.KEPT``.

    Any of the ``unreferenced`` (columns ``address`` and ``size``) may be shown. Of those that are ``alike`` (columns
    ``CONTENTS``), a lookup without an answer may show those of its size and MD5.
    """
    if not answers.shown and not answers.unanswered:
        return local_rows(spark, [], schemas.KEPT)
    table = known_table(unreferenced)
    if table is not None and not answers.unanswered and not pc.any(_may_be_shown_otherwise(table["address"])).as_py():
        shown = table.filter(pc.is_in(table["address"], pa.array(answers.shown, pa.string()))).select(
            ["address", "size"]
        )
        why = pa.repeat(schemas.SHOWN_BY_BRANCH, shown.num_rows)
        return rows_of(spark, shown.append_column(arrow_schema(schemas.KEPT).field("why"), why), schemas.KEPT)
    addresses = F.broadcast(local_rows(spark, [(address,) for address in answers.shown], "shown string"))
    read_otherwise = unreferenced.where(_as_shown("address") != F.col("address"))
    kept = (
        unreferenced.join(addresses, F.col("address") == F.col("shown"), "left_semi")
        .union(read_otherwise.join(addresses, _as_shown("address") == F.col("shown"), "left_semi"))
        .select("address", "size", F.lit(schemas.SHOWN_BY_BRANCH).alias("why"))
    )
    if not answers.unanswered:
        return kept
    contents = {(lookup.size, lookup.md5) for lookup in answers.unanswered}
    unknown = local_rows(spark, sorted(contents), "size long, md5 string")
    may_be_shown = alike if any(size == ANY_SIZE for size, _ in contents) else same_contents(alike, unknown)
    unverified = may_be_shown.join(kept.select("address"), "address", "left_anti")
    return kept.union(unverified.select("address", "size", F.lit(schemas.KEPT_UNVERIFIED).alias("why")))


def _may_be_shown_otherwise(addresses: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return of which addresses ``_as_shown`` may give another text."""
    return pc.match_substring_regex(addresses, "[%?#]")


def _as_shown(address: str) -> Column:
    """Return an address as a lakeFS server that parses full addresses as URLs shows it: decoded, without its query."""
    path = F.regexp_extract(address, "^[^?#]*", 0)
    return F.coalesce(try_url_decode(F.regexp_replace(path, r"\+", "%2B")), F.col(address))


def same_contents(these: DataFrame, those: DataFrame) -> DataFrame:
    """Return the rows of ``these`` whose content may be that of a row of ``those``.

    Both have columns ``size`` and ``md5``. Contents may be the same if the sizes are equal and the MD5s are equal or at
    least one of them is unknown (empty). All rows of ``these`` with ``ANY_SIZE`` are returned.
    """
    any_size = these.where(F.col("size") == ANY_SIZE)
    same_md5 = these.join(those.where("md5 != ''").select("size", "md5"), ["size", "md5"], "left_semi")
    any_md5 = these.where("md5 = ''").join(those.select("size"), "size", "left_semi")
    against_any = these.join(those.where("md5 = ''").select("size"), "size", "left_semi")
    columns = these.columns
    return reduce(
        DataFrame.union, (rows.select(*columns) for rows in (same_md5, any_md5, against_any, any_size))
    ).distinct()
