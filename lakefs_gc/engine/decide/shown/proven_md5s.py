"""Which ETags of entries are MD5s of the content: those that the store states for an object of such an entry.

32 hexadecimal digits may be anything. A copy within lakeFS has the ETag of its source (``pkg/catalog``: ``CopyEntry``),
and that of an object encrypted with SSE-KMS is no MD5. A client that stages an object states what it likes. If such an
entry hides a twin, the MD5 of the twin is another one, and comparing the two would lose it.

Entries of one size and ETag have one content, so one of their objects is asked for. An object outside the namespace (an
import) cannot be.
"""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.decide.shown.contents import md5s_of
from lakefs_gc.engine.decide.shown.heads import locate_ranges
from lakefs_gc.engine.decide.shown.lookups import ANY_SIZE, CONTENTS, TwinSearch, compared_sizes
from lakefs_gc.engine.decide.shown.value_filter import ValueFilter, filter_of
from lakefs_gc.engine.spark.local_rows import columns_of, local_rows, rows_without
from lakefs_gc.engine.spark.workers import Batches, worker
from lakefs_gc.engine.workspace.range_cache import RangeCache, Row, in_files, read_through
from lakefs_gc.formats.plain_addresses import are_only_keys
from lakefs_gc.formats.ranges import read_range
from lakefs_gc.formats.sstable.reader import TableData, opened
from lakefs_gc.lakefs.known_folders import KnownFolders

logger = logging.getLogger(__name__)

_MD5 = r"\A[0-9a-f]{32}\z"
_CONTENT = "size long, md5 string not null"


def md5_of_e_tags(e_tags: pa.StringArray) -> pa.StringArray:
    """Return each ETag that may be an MD5, in lower case; an empty string for all others."""
    plain = pc.utf8_lower(pc.utf8_trim(e_tags, '"'))
    return pc.if_else(pc.match_substring_regex(plain, _MD5), plain, "")


def unproven_contents(head_ranges: DataFrame, contents: DataFrame, search: TwinSearch) -> DataFrame:
    """Return the sizes and ETags of entries of these ranges that may not be compared with ``contents``.

    ``head_ranges`` has columns ``HEAD_RANGES``; ``contents`` (columns ``CONTENTS``) are the unreferenced objects. Of
    entries that have the size and the MD5 of one of them nothing is asked: they are looked up. Columns: ``size`` and
    ``md5``.
    """
    spark = search.context.spark
    known = contents.where("md5 != ''")
    sizes = filter_of(columns_of(known, "size"))
    if sizes is None:  # no MD5 is compared
        return local_rows(spark, [], _CONTENT)
    run, context = search.run, search.context
    read = _read_stated(context.workspace.range_cache, context.cores, sizes, search.any_size, run.known_folders)
    entries = in_files(locate_ranges(context, run, head_ranges), read, CONTENTS, context.cores)
    entries = entries.join(known.select("size").distinct(), "size", "left_semi")
    entries = rows_without(entries, known, "size", "md5")
    for proven in search.proven:
        entries = rows_without(entries, proven.dataframe, "size", "md5")
    one_of_each = entries.groupBy("size", "md5").agg(F.min("address").alias("address")).select(*CONTENTS.names)
    stated = search.keep("stated_md5s", one_of_each, CONTENTS)
    inside = stated.dataframe.where(F.col("address").isNotNull())
    of_store = md5s_of(inside.select("address", "size").distinct(), search).select("address", "md5")
    same = inside.join(of_store, ["address", "md5"], "left_semi").select(*CONTENTS.names)
    new = search.keep("proven_md5s", same, CONTENTS)
    search.proven.append(new)
    logger.info(
        "repository %s: the ETags of %s of %s contents at heads are MD5s",
        run.repository,
        f"{new.manifest.rows:,}",
        f"{stated.manifest.rows:,}",
    )
    return rows_without(stated.dataframe, new.dataframe, "size", "md5").select("size", "md5")


@worker
def _read_stated(
    batches: Batches,
    cache: RangeCache,
    cores: int,
    wanted: ValueFilter,
    any_size: ValueFilter | None,
    known: KnownFolders,
) -> Batches:
    """Yield size and MD5 of the entries whose size is wanted, with an address in the namespace, and without one."""

    def decode(data: TableData, file: str, row: Row) -> list[pa.RecordBatch]:
        data = opened(data, file)
        if not wanted.may_pass(read_range(data, file).column("size")):
            return []
        entries = read_range(data, file, details=True)
        sizes, md5 = entries.column("size"), md5_of_e_tags(entries.column("e_tag"))
        # Every path of an entry that may hide an object of any size is looked up.
        is_compared = pc.and_(pc.not_equal(md5, ""), pc.not_equal(compared_sizes(sizes, any_size), ANY_SIZE))
        entries = entries.append_column("md5", md5).filter(pc.and_(is_compared, wanted.passes(sizes, None)))
        if are_only_keys(entries):
            return [entries.select(CONTENTS.names)]
        nowhere = entries.set_column(
            entries.schema.get_field_index("address"), "address", pa.nulls(entries.num_rows, pa.string())
        )
        return [each.select(CONTENTS.names) for each in (nowhere, known.entries(entries)) if each.num_rows]

    for _, stated in read_through(batches, cache, cores, decode):
        yield from stated
