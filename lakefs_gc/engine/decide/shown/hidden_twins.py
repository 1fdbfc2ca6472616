"""Keeps hidden twins: objects that a branch shows although the server's uncommitted list omits them (rules 6 and 12).

How a hidden twin arises: a client overwrites a committed path with an object of the same size, ETag, metadata and
content type. For lakeFS that is no change (``pkg/graveler``: the identity of a value does not include its address), so
the new object appears in no diff and in no list of uncommitted addresses. Yet the branch shows the new object, and not
the committed one. Without this stage it would be deleted.

How they are found: a hidden twin has the size and the ETag of the entry that the head of its branch has at the same
path. So each path of a head whose entry has the size of an unreferenced object is looked up through the API, and the
object that the branch shows is kept.

If that takes too many lookups, only paths whose ETag may be that of the object are looked up. Two MD5s can be compared;
an ETag that is not an MD5 (multipart upload, SSE-KMS, set by a client) may belong to any content. Objects for which
there are still too many paths are kept unverified, and counted. A task that meets too many paths returns only their
distinct contents: the heads of 1,000 branches mostly have the same ones.

A client that stages or links an object states its size and ETag, and lakeFS compares only what was stated. So an entry
whose size is not the size of its object (``unmatched.hiding_any_size``) may hide an object of any size: every path with
such a size is looked up. An object whose own entry alone states a wrong size, equal to the right size of the committed
object, is not found.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from lakefs_gc.engine.decide.shown.heads import HEAD_RANGES, Heads, branches_by_metarange, head_ranges_of, locate
from lakefs_gc.engine.decide.shown.value_filter import ValueFilter, filter_of
from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import try_url_decode
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.scale import in_arrow, spread
from lakefs_gc.engine.spark.workers import Batches, driver_errors, worker, worker_store
from lakefs_gc.engine.workspace.range_cache import RangeCache, Row, in_files, read_through
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.errors import ServerError
from lakefs_gc.formats.ranges import read_range
from lakefs_gc.lakefs.pagination import REPLACEMENT_CHARACTER
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.location import StoreLocation

logger = logging.getLogger(__name__)

_PATHS = StructType(
    [
        StructField("range_id", StringType(), False),
        StructField("path", BinaryType()),
        StructField("size", LongType(), False),
        StructField("md5", StringType(), False),
    ]
)
"""Paths of heads. A row without a path is a content (size and MD5) that any number of paths have.

``size`` is ``ANY_SIZE``, and the MD5 empty, if the entry may hide an object of any size.
"""
ANY_SIZE = -1
"""In place of the size of an object or entry: it may be of any size."""
_PATH_BATCH = pa.schema([("range_id", pa.string()), ("path", pa.binary()), ("size", pa.int64()), ("md5", pa.string())])
_CONTENTS = StructType([StructField("address", StringType()), StructField("size", LongType()), _PATHS["md5"]])
_ROWS_TO_SUM = 250_000  # contents, about 15 MB
_CALLS_AT_ONCE = 16
_TASKS_PER_CORE = 4
_FEW_OBJECTS = 3_000  # by as many HEAD requests a small run is slower in its one process than by workers
_MD5 = r"\A[0-9a-f]{32}\z"


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

    @property
    def max_lookups(self) -> int:
        """The most paths to look up."""
        return self.context.safety.max_twin_lookups

    def compared(self, sizes: pa.Int64Array) -> pa.Int64Array:
        """Return sizes of entries, with ``ANY_SIZE`` in place of those that pass ``any_size``."""
        return _compared(sizes, self.any_size)

    def keep(self, stage: str, dataframe: DataFrame, schema: StructType, **measures: Column) -> Dataset:
        output = StageOutput(dataframe, self.context.clock(), measures=measures)
        return self.context.workspace.keep(self.context.spark, self.run.run_key, f"{self.name}_{stage}", output, schema)


def find_twins(unreferenced: DataFrame, heads: Sequence[Heads], search: TwinSearch) -> DataFrame:
    """Return which unreferenced objects are kept, and why. Columns: ``schemas.KEPT``.

    ``unreferenced`` has columns ``address`` and ``size``, which may be ``ANY_SIZE``. It is read several times, so pass
    a DataFrame that is stored. ``heads`` are those of all branches, as they were seen one after the other
    (``shown_objects``).
    """
    spark = search.context.spark
    branches = branches_by_metarange(search.context, search.run, heads)
    if not branches:
        return _none(spark)
    with driver_errors():
        wanted_sizes = unreferenced.select("size")
        sizes = filter_of(wanted_sizes)
        if sizes is None:
            return _none(spark)
        if search.any_size is not None:
            sizes = sizes.including(ANY_SIZE)
            wanted_sizes = wanted_sizes.union(local_rows(spark, [(ANY_SIZE,)], "size long"))
        head_ranges = search.keep("head_ranges", head_ranges_of(search.context, search.run, branches), HEAD_RANGES)
        measures = {"summed": F.count_if(F.col("path").isNull()), "any_size": F.count_if(F.col("size") == ANY_SIZE)}
        same_size = _paths(head_ranges.dataframe, sizes, search).join(wanted_sizes, "size", "left_semi")
        paths = search.keep("paths", same_size.select(*_PATHS.names), _PATHS, **measures)
        if not paths.manifest.rows:
            return _none(spark)
        alike = unreferenced.join(paths.dataframe, "size", "left_semi").withColumn("md5", F.lit(""))
        lookups = _lookups(head_ranges, paths, branches, search.max_lookups)
        if lookups is None:
            contents = search.keep("contents", _with_md5(alike, search), _CONTENTS)
            same_content = _alike(paths.dataframe, contents.dataframe)
            if paths.manifest.facts["summed"]:
                passing = filter_of(same_content.select("size", "md5"))
                if passing is None:
                    return _none(spark)
                same_content = _alike(_paths(head_ranges.dataframe, passing, search), contents.dataframe)
            narrowed = search.keep("paths_of_same_content", same_content, _PATHS, **measures)
            alike = _alike(contents.dataframe, narrowed.dataframe)
            lookups = _lookups(head_ranges, narrowed, branches, search.max_lookups)
        if paths.manifest.facts["any_size"]:
            alike = unreferenced.withColumn("md5", F.lit(""))
        if lookups is None:
            logger.warning(
                "repository %s: more than %s paths may show an unreferenced object "
                "(safety.max_twin_lookups); all objects of the same contents are kept unverified",
                search.run.repository,
                f"{search.max_lookups:,}",
            )
            return alike.select("address", "size", F.lit(schemas.KEPT_UNVERIFIED).alias("why"))
        shown, unanswered = look_up(lookups, search)
        return kept_of(spark, alike, shown, unanswered)


def _none(spark: SparkSession) -> DataFrame:
    return local_rows(spark, [], schemas.KEPT)


# -- paths of heads whose entry has the size of an unreferenced object -----------------------------------------


def _paths(head_ranges: DataFrame, wanted: ValueFilter, search: TwinSearch) -> DataFrame:
    """Return the paths of heads that pass the filter ``wanted``. Columns: ``_PATHS``.

    A size that may hide an object of any size becomes ``ANY_SIZE`` before it is compared with ``wanted``.
    """
    located = locate(search.context, search.run, head_ranges.select("range_id").distinct(), "range_id")
    read = _read_paths(
        search.context.workspace.range_cache, search.context.cores, wanted, search.any_size, search.max_lookups
    )
    return in_files(located, read, _PATHS, search.context.cores)


@worker
def _read_paths(
    batches: Batches, cache: RangeCache, cores: int, wanted: ValueFilter, any_size: ValueFilter | None, most: int
) -> Batches:
    """Yield batches of ``_PATHS``; without paths, only distinct contents, once there are more than ``most`` paths."""
    is_summed = False

    def decode(data: bytes, file: str, row: Row) -> pa.RecordBatch:
        if not wanted.may_pass(_compared(read_range(data, file).column("size"), any_size)):
            return pa.RecordBatch.from_pylist([], schema=_PATH_BATCH)
        entries = read_range(data, file, keys=not is_summed, details=True)
        sizes = _compared(entries.column("size"), any_size)
        md5 = pc.if_else(pc.equal(sizes, ANY_SIZE), "", _md5_of(entries.column("e_tag")))
        paths = pa.nulls(len(sizes), pa.binary()) if is_summed else entries.column("key")
        range_id = pa.repeat("" if is_summed else row["range_id"], len(sizes))
        batch = pa.record_batch([range_id, paths, sizes, md5], schema=_PATH_BATCH)
        return batch.filter(wanted.passes(sizes, md5))

    pending: list[pa.RecordBatch] = []
    rows = 0
    for _, paths in read_through(batches, cache, cores, decode):
        if not paths.num_rows:
            continue
        pending.append(paths)
        rows += paths.num_rows
        if rows <= (_ROWS_TO_SUM if is_summed else most):
            continue
        is_summed = True
        contents = _contents_of(pending)
        if contents.num_rows > _ROWS_TO_SUM // 2:  # few contents repeat, so keeping them would not save memory
            yield contents
            pending, rows = [], 0
        else:
            pending, rows = [contents], contents.num_rows
    yield from [_contents_of(pending)] if is_summed and pending else pending


def _compared(sizes: pa.Int64Array, any_size: ValueFilter | None) -> pa.Int64Array:
    return sizes if any_size is None else pc.if_else(any_size.passes(sizes, None), ANY_SIZE, sizes)


def _contents_of(paths: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the distinct contents of ``paths`` (columns ``_PATHS``), without their paths."""
    contents = pa.Table.from_batches(paths).group_by(["size", "md5"]).aggregate([]).combine_chunks()
    columns = [
        pa.repeat("", contents.num_rows),
        pa.nulls(contents.num_rows, pa.binary()),
        *(contents[name].chunk(0) for name in ("size", "md5")),
    ]
    return pa.record_batch(columns, schema=_PATH_BATCH)


def _md5_of(e_tags: pa.StringArray) -> pa.StringArray:
    """Return each ETag that may be an MD5, in lower case; an empty string for all others."""
    plain = pc.utf8_lower(pc.utf8_trim(e_tags, '"'))
    return pc.if_else(pc.match_substring_regex(plain, _MD5), plain, "")


# -- which of these paths to look up ---------------------------------------------------------------------------


def _with_md5(unreferenced: DataFrame, search: TwinSearch) -> DataFrame:
    """Return each object with the MD5 of its content; empty if the store does not know it. Columns: ``_CONTENTS``."""
    tasks = search.context.cores * _TASKS_PER_CORE
    asked = spread(unreferenced.select("address", "size"), tasks)
    return in_arrow(asked, _ask_for_md5(search.run.store), _CONTENTS, fits=_few, tasks=tasks)


def _few(asked: pa.Table) -> bool:
    return bool(asked.num_rows <= _FEW_OBJECTS)


@worker
def _ask_for_md5(batches: Batches, store: StoreLocation) -> Batches:
    for batch in batches:
        addresses = batch.column("address")
        known = worker_store(store).content_md5(addresses.to_pylist())
        md5 = pa.array([known.get(address, "") for address in addresses.to_pylist()], pa.string())
        yield pa.record_batch([addresses, batch.column("size"), md5], names=_CONTENTS.names)


def _alike(these: DataFrame, those: DataFrame) -> DataFrame:
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


@dataclass(frozen=True)
class Lookup:
    """A path of a branch to look up. ``size`` and ``md5`` (empty if unknown) are those of the object it may show."""

    branch: str
    path: bytes
    size: int
    md5: str


def _lookups(
    head_ranges: Dataset, paths: Dataset, branches: Mapping[str, list[str]], max_lookups: int
) -> list[Lookup] | None:
    """Return a lookup for each path on each branch whose head has it; None if they are more than ``max_lookups``."""
    if paths.manifest.facts["summed"]:
        return None
    in_heads = head_ranges.dataframe.join(paths.dataframe, "range_id")
    rows = in_heads.select("metarange_id", "path", "size", "md5").limit(max_lookups + 1)
    lookups = (
        Lookup(branch, bytes(row["path"]), row["size"], row["md5"])
        for row in rows.collect()
        for branch in branches[row["metarange_id"]]
    )
    limited = list(islice(lookups, max_lookups + 1))
    return limited if len(limited) <= max_lookups else None


# -- the lookups -----------------------------------------------------------------------------------------------


def look_up(lookups: list[Lookup], search: TwinSearch) -> tuple[set[str], list[Lookup]]:
    """Return the addresses that branches show, relative to the namespace, and the lookups without an answer."""
    shown: set[str] = set()
    unanswered: list[Lookup] = []
    answers = map_unordered(lambda lookup: _ask(lookup, search), lookups, _CALLS_AT_ONCE)
    with RUN_PROGRESS.step("twins_lookups"):
        for number, (lookup, addresses) in enumerate(answers):
            RUN_PROGRESS.count("paths", number, total=len(lookups))
            if addresses is None:
                unanswered.append(lookup)
            else:
                shown.update(addresses)
    logger.info(
        "repository %s: looked up %s paths, %s without an answer",
        search.run.repository,
        f"{len(lookups):,}",
        f"{len(unanswered):,}",
    )
    return shown, unanswered


def _ask(lookup: Lookup, search: TwinSearch) -> tuple[str, ...] | None:
    """Return the addresses that the branch may show; empty if they are none of this namespace; None if unknown."""
    try:
        path = lookup.path.decode()
    except UnicodeDecodeError:
        return None  # the API cannot name a path that is not UTF-8
    try:
        url = search.context.server.shown_address(search.run.repository, lookup.branch, path)
    except ServerError as error:
        if error.facts.get("status") == 410:
            return None  # the entry is marked as deleted, and the answer does not include its address
        raise
    if not url:
        # The server shows a path that is not UTF-8 with this character, and cannot find it by that name.
        return None if REPLACEMENT_CHARACTER in path else ()
    return search.run.known_folders.keys_of(url)


def kept_of(spark: SparkSession, alike: DataFrame, shown: set[str], unanswered: list[Lookup]) -> DataFrame:
    """Return the rows of ``alike`` (columns ``_CONTENTS``) that a branch shows or may show. Columns: ``schemas.KEPT``.

    ``shown`` and ``unanswered`` are the results of ``look_up``.
    """
    addresses = local_rows(spark, [(address,) for address in shown], "shown string")
    is_shown = (F.col("address") == F.col("shown")) | (_as_shown("address") == F.col("shown"))
    kept = alike.join(F.broadcast(addresses), is_shown, "left_semi").select(
        "address", "size", F.lit(schemas.SHOWN_BY_BRANCH).alias("why")
    )
    if not unanswered:
        return kept
    unknown = local_rows(spark, [(lookup.size, lookup.md5) for lookup in unanswered], "size long, md5 string")
    may_be_shown = alike if any(lookup.size == ANY_SIZE for lookup in unanswered) else _alike(alike, unknown)
    unverified = may_be_shown.join(kept.select("address"), "address", "left_anti")
    return kept.union(unverified.select("address", "size", F.lit(schemas.KEPT_UNVERIFIED).alias("why")))


def _as_shown(address: str) -> Column:
    """Return an address as a lakeFS server that parses full addresses as URLs shows it: decoded, without its query."""
    path = F.regexp_extract(address, "^[^?#]*", 0)
    return F.coalesce(try_url_decode(F.regexp_replace(path, r"\+", "%2B")), F.col(address))
