"""Stage 3: the ranges that the active commits reference.

With retention rules, the server lists the active commits. ``own_commits`` adds the commits that the list omits and the
commits that users protect. The metaranges of all these commits name the ranges. Clients cannot list commits that no
branch reaches. So if the commits of the last days are protected, every metarange written in these days is read,
whatever its commit. Without rules every commit is active, and every metadata file in the namespace is read. A missing
file is not listed, so the metarange of every commit that a branch or a tag reaches must exist.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from lakefs_gc.engine.collect.references.commit_graph import CommitGraph, history_so_far
from lakefs_gc.engine.collect.references.old_list import metarange_ids, refuse_old_list
from lakefs_gc.engine.collect.references.own_commits import HEADS, commits_since, own_active_commits
from lakefs_gc.engine.collect.references.range_names import range_name_facts
from lakefs_gc.engine.collect.references.store_of_server import refuse_other_store
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import arrow_schema, known_table, to_arrow
from lakefs_gc.engine.spark.local_rows import columns_of, distinct_union, greatest_of, local_rows, rows_of, with_text
from lakefs_gc.engine.spark.scale import in_arrow, is_small, work_here
from lakefs_gc.engine.spark.workers import Batches, driver_errors, strings, worker, worker_store
from lakefs_gc.engine.workspace.history_index import RunIndex
from lakefs_gc.engine.workspace.known_commits import keep_commits
from lakefs_gc.engine.workspace.known_ranges import known_ranges, remember_ranges
from lakefs_gc.engine.workspace.range_cache import METADATA_FOLDER as METADATA_FOLDER
from lakefs_gc.engine.workspace.range_cache import RangeCache, Row, in_files, read_through
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.errors import IncompleteAnswerError, ObjectNotFoundError, StorageError
from lakefs_gc.formats.commits_csv import read_active_commits
from lakefs_gc.formats.gc_rules import GCRules, rules_to_record
from lakefs_gc.formats.ranges import METARANGE_SCHEMA, TableKind, read_metarange, table_kind
from lakefs_gc.formats.sstable.reader import TableData, opened
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.lakefs.models import Heads
from lakefs_gc.lakefs.protections import protected_since
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

RULES = "rules"
"""Mode: the server lists the active commits by its retention rules."""
ALL_COMMITS = "all_commits"
"""Mode: no rules are set, and every commit is active."""
LATER_BRANCHES = "later_branches"
"""Fact of ``active_ranges``, ``unmatched`` and ``kept``: the branches that the lists of ``uncommitted`` do not have.

A list may omit a branch, or a branch is new. Each later list must have them. An earlier version did not record them.
"""
AskForRules = Literal["ask"]
ASK: AskForRules = "ask"
"""The server is asked for the rules. None would mean that there are none."""

_NAMED = "metaranges"
METADATA_ID = re.compile(r"[0-9a-f]{64}")
_COMMITS = "commit_id string, metarange_id string"
_FILES = StructType([*schemas.ACTIVE_RANGES.fields, StructField("size_bytes", LongType())])
"""Columns of ``metadata_files``."""
_RANGE = pa.schema([pa.field("range_id", pa.string(), nullable=False), pa.field("entries", pa.int64())])


def active_ranges(
    context: RunContext,
    run: GCRun,
    uncommitted: Dataset,
    *,
    must_exist: bool = True,
    graph: CommitGraph | None = None,
    rules: GCRules | AskForRules | None = ASK,
) -> StageOutput:
    """Return the ranges to read. Columns: ``schemas.ACTIVE_RANGES``, distinct.

    ``facts`` has ``mode`` (``rules`` or ``all_commits``), ``protections`` (of commits), ``commits_seen``,
    ``LATER_BRANCHES``, ``HEADS`` and ``RANGE_NAMES``. With rules it also has ``commits_run_id``, the facts of
    ``own_commits``, and ``metaranges_since`` if ``protect.days`` is set (metaranges written since then are read).
    ``missed_by_rules`` is the number of active commits that the server's list omits. It is 0 without rules, and None if
    there are more than ``safety.max_commits``. ``graph`` has the commits that are already known, by default those that
    were read ahead. The commits that are read are added to it. ``rules`` are those by which the client retains commits.

    A metarange must exist in the store, unless ``must_exist`` is false. Then the content in the cache is enough, and
    without rules a missing metarange is among the rows. Raises ``ObjectNotFoundError`` for a missing metarange. Raises
    ``IncompleteAnswerError`` when the server's list is empty, or omits the head of a branch: heads are always active,
    so such a list is incomplete. Raises ``SafetyError`` unless the store of the server is that of the run.
    """
    spark, server, safety = context.spark, context.server, context.safety
    cache, cores = context.workspace.range_cache, context.cores
    began_at = context.clock()
    inputs = {"uncommitted": uncommitted.manifest.materialization_id}
    server.expect_branches(run.repository, uncommitted.manifest.facts["heads"])
    rules = server.retention_rules(run.repository) if rules == ASK else rules
    protections = safety.protect.model_dump(mode="json", exclude={"path_prefixes"})
    graph = history_so_far(context, run) if graph is None else graph
    # With the client that reads what is referenced: a new one may have other credentials.
    has_list = rules is not None or bool(uncommitted.manifest.facts.get("files"))
    refuse_other_store(server, run.repository, worker_store(run.store), has_list=has_list)
    if rules is None:
        # Before the files are listed: the list of files must have the metarange of every commit older than it.
        refs = server.heads_of(run.repository)
        named = _metaranges_of_refs(run, server, graph, refs)
        facts = {"mode": ALL_COMMITS, HEADS: refs, "protections": protections, "commits_seen": len(graph.commits)}
        facts["missed_by_rules"] = 0 if graph.complete else None
        facts[LATER_BRANCHES] = later_branches(context, run, uncommitted)
        _keep(context, run, graph, named if must_exist else None)
        return _ranges_output(all_metadata(spark, run, named, must_exist=must_exist), began_at, facts, inputs)
    heads_before = server.heads_of(run.repository)
    prepared = server.prepare_commits(run.repository, timeout_seconds=safety.prepare_timeout_hours * 3600)
    heads_after = server.heads_of(run.repository)
    # The list may omit a head that moved meanwhile.
    heads = sorted({commit for branch, commit in heads_after.items() if heads_before.get(branch) == commit})
    csv = local_rows(spark, [(run.key_of(prepared.location),)], "file string")
    listed = in_arrow(csv, _read_commits(run.store, heads), _COMMITS)
    own = own_active_commits(context, run, rules, listed, graph)
    _keep(context, run, graph, _metaranges_of_refs(run, server, graph, heads_after) if must_exist else None)
    facts = {"mode": RULES, "commits_run_id": prepared.run_id, "rules": rules_to_record(rules), **own.facts}
    facts["protections"], facts[LATER_BRANCHES] = protections, later_branches(context, run, uncommitted)
    missed = local_rows(spark, [(c.id, c.metarange_id) for c in own.missed], _COMMITS)
    metaranges = distinct_union(columns_of(commits, "metarange_id") for commits in (listed, missed))
    since, recent = protected_since(safety.protect, run.started_at), None
    if since is not None:
        facts["metaranges_since"] = since.isoformat()
        recent = metadata_files(spark, run.store, named_metaranges(server, run, graph, ()), since=since)
    files = with_text(_files_of(metaranges, recent), "store_url", run.store.folder_url)
    existing = metadata_files(spark, run.store) if must_exist else None
    located = cache.locate(spark, files, cores=cores, existing=existing)
    return _ranges_output(ranges_of(located, cache, cores, run.known_folders), began_at, facts, inputs)


def _ranges_output(
    ranges: DataFrame, began_at: datetime, facts: Mapping[str, Any], inputs: Mapping[str, str]
) -> StageOutput:
    names, measures = range_name_facts(ranges)
    return StageOutput(ranges, began_at, {**facts, **names}, measures, inputs)


def _files_of(metaranges: DataFrame, recent: DataFrame | None) -> DataFrame:
    """Return the files of ``metaranges`` (column ``metarange_id``) and ``recent`` ones (``_FILES``), each once.

    Columns: ``range_id`` and ``only_recent``. Commits without content have no file.
    """
    tables = [known_table(rows) for rows in (metaranges, recent) if rows is not None]
    known = [table for table in tables if table is not None]
    if len(known) == len(tables):
        named = [metarange_id for metarange_id in known[0]["metarange_id"].to_pylist() if metarange_id]
        others = [each for table in known[1:] for each in table["range_id"].to_pylist()]
        only_recent = dict.fromkeys(others, True) | dict.fromkeys(named, False)
        return local_rows(metaranges.sparkSession, list(only_recent.items()), "range_id string, only_recent boolean")
    files = metaranges.where("metarange_id != ''")
    files = files.select(F.col("metarange_id").alias("range_id"), F.lit(False).alias("only_recent"))
    if recent is not None:
        files = files.unionByName(recent.select("range_id", F.lit(True).alias("only_recent")))
    return files.groupBy("range_id").agg(F.min("only_recent").alias("only_recent"))


def ranges_since(
    context: RunContext, run: GCRun, rules: GCRules, graph: CommitGraph, heads: Heads, known: Heads, read: set[str]
) -> StageOutput | None:
    """Return the ranges of the commits of ``heads`` that were not read, by the history alone (``commits_since``).

    Columns: ``schemas.ACTIVE_RANGES``. None if the history does not tell, because it has too many commits.
    """
    began_at = context.clock()
    commits = commits_since(context, run, rules, graph, heads, known, read)
    if commits is None:
        return None
    ranges = ranges_of_metaranges(context, run, {commit.metarange_id for commit in commits} - {""})
    return _ranges_output(ranges, began_at, {}, {})


def ranges_of_metaranges(
    context: RunContext, run: GCRun, metarange_ids: Collection[str], existing: DataFrame | None = None
) -> DataFrame:
    """Return the ranges that these metaranges name. Columns: ``schemas.ACTIVE_RANGES``, distinct.

    ``existing`` (``metadata_files``) has the sizes of files, by which the process of a small run reads more of them.
    """
    cache, cores = context.workspace.range_cache, context.cores
    rows = [(metarange_id, False, run.store.folder_url) for metarange_id in sorted(metarange_ids)]
    files = local_rows(context.spark, rows, "range_id string, only_recent boolean, store_url string")
    located = cache.locate(context.spark, files, cores=cores, existing=existing)
    return ranges_of(located, cache, cores, run.known_folders)


def later_branches(context: RunContext, run: GCRun, uncommitted: Dataset) -> list[str]:
    """Return ``LATER_BRANCHES``, as far as the client of the server knows them now."""
    return sorted(context.server.known_branches(run.repository) - uncommitted.manifest.facts["heads"].keys())


def _keep(context: RunContext, run: GCRun, graph: CommitGraph, named: dict[str, str] | None) -> None:
    """Keep ``named`` for ``metaranges_so_far``, and the commits for what is shown to people."""
    if named is not None:
        context.ahead.keep(run, _NAMED, named)
    if graph.complete:
        store = context.open_store(context.workspace.range_cache.location)
        keep_commits(store, run.store.folder_url, graph.commits)


def _metaranges_of_refs(run: GCRun, server: LakeFSClient, graph: CommitGraph, heads: Heads) -> dict[str, str]:
    """Return metarange id to commit id for the commits that branches and tags reach.

    If these are too many for the graph, return the heads, the tags, and the commits that the graph has.
    """
    refs = [commit_id for _, commit_id in (*heads.items(), *server.tags(run.repository))]
    graph.add_history_of(server, run.repository, refs)
    return named_metaranges(server, run, graph, refs)


def named_metaranges(server: LakeFSClient, run: GCRun, graph: CommitGraph, refs: Collection[str]) -> dict[str, str]:
    """Return metarange id to commit id for the commits of ``graph``, and of ``refs`` if it is not complete."""
    named = {commit.meta_range_id: commit.id for commit in graph.commits.values()}
    if not graph.complete:
        unknown = set(refs) - graph.commits.keys()
        named |= {metarange: commit_id for commit_id, metarange in server.metaranges_of(run.repository, unknown)}
    named.pop("", None)  # the first commit of a repository has no content
    return named


def metaranges_so_far(context: RunContext, run: GCRun) -> dict[str, str]:
    """Return metarange id to commit id for the commits that branches and tags reach, as far as they are read.

    Those that ``active_ranges`` has read in this process, otherwise those of now.
    """
    named: dict[str, str] | None = context.ahead.take(run, _NAMED)
    if named is None:
        heads = context.server.heads_of(run.repository)
        named = _metaranges_of_refs(run, context.server, history_so_far(context, run), heads)
    context.ahead.keep(run, _NAMED, named)
    return named


def all_metadata(spark: SparkSession, run: GCRun, named: Mapping[str, str], *, must_exist: bool) -> DataFrame:
    """Return every metadata file, and the metaranges in ``named`` (metarange id to commit id).

    Columns: ``schemas.ACTIVE_RANGES``. Fails if one of ``named`` does not exist, if it must.
    """
    files = metadata_files(spark, run.store, named).withColumn("exists", F.lit(True))
    metaranges = local_rows(spark, list(named.items()), "range_id string, commit_id string")
    joined = files.join(metaranges, "range_id", "full_outer")
    if must_exist:
        joined = in_arrow(joined, _refuse_missing(), "range_id string, entries long")
    return joined.select("range_id", "entries")


@worker
def _refuse_missing(batches: Batches) -> Batches:
    for batch in batches:
        missing = batch.filter(pc.is_null(batch.column("exists"))).to_pylist()
        if missing:
            raise ObjectNotFoundError(
                f"{METADATA_FOLDER}{missing[0]['range_id']} does not exist, but it is the metarange of commit "
                f"{missing[0]['commit_id']}. Without it the objects of this commit look like garbage",
                remedy="Restore the file, and find out what removes files below _lakefs/, for example a lifecycle "
                "rule. Nothing was marked or deleted",
            )
        yield batch.select(_RANGE.names)


def metadata_files(
    spark: SparkSession, store: StoreLocation, named: Collection[str] = (), *, since: datetime | None = None
) -> DataFrame:
    """Return all metadata files of a namespace, or only the files written at ``since`` or later.

    Columns: ``_FILES``, with ``entries`` null. Fails if an executor does not list what the driver sees, or a list lacks
    one of ``named`` that exists: metaranges of commits that the server has named. Only a list on which nothing depends
    may do without.
    """
    ids = metarange_ids(named)
    if is_small(spark):  # only the driver lists, so no executor can see another folder
        once = pa.record_batch([pa.array([0])], names=["id"])
        files = work_here([once], _list_metadata(store, since, "", ids), arrow_schema(_FILES))
        return rows_of(spark, files, _FILES)
    work = _list_metadata(store, since, some_metadata(open_store(store)), ids)
    return spark.range(1, numPartitions=1).mapInArrow(work, _FILES)


def some_metadata(store: ObjectStore) -> str:
    """Return the id of a metadata file of a commit, "" without one. Rules and reports do not count.

    If the store lists in order, the first page is enough.
    """
    names = (
        key.removeprefix(METADATA_FOLDER)
        for batch in store.list(METADATA_FOLDER)
        for key in batch.column("address").to_pylist()
    )
    return next((name for name in names if METADATA_ID.fullmatch(name)), "")


def ranges_of(metaranges: DataFrame, cache: RangeCache, cores: int, known: KnownFolders) -> DataFrame:
    """Return the ranges that metaranges name. Columns: ``schemas.ACTIVE_RANGES``, distinct.

    A file with ``only_recent`` (an optional column) may be of another kind, and then names no range.
    """
    spark, remembers = metaranges.sparkSession, is_small(metaranges.sparkSession) and cache.max_bytes > 0
    tables = list[pa.Table]()
    if remembers and (located := known_table(metaranges)) is not None:
        metaranges, tables = _without_known(spark, located, metaranges.schema)
    ranges = in_files(metaranges, _read_metaranges(cache, cores, known, remembers), schemas.ACTIVE_RANGES, cores)
    if tables:
        with driver_errors():
            read = to_arrow(ranges)
        ranges = rows_of(spark, pa.concat_tables([*tables, read]), schemas.ACTIVE_RANGES)
    # If metaranges disagree on the number of entries of a range, the greatest number makes reading the range fail.
    return greatest_of(ranges, "range_id", "entries")


def _without_known(spark: SparkSession, located: pa.Table, schema: StructType) -> tuple[DataFrame, list[pa.Table]]:
    """Return the metaranges that this process has not read yet, and the ranges of the others (``ACTIVE_RANGES``).

    One that is not in the cache is read from its store, because it may have to exist there.
    """
    is_unknown, tables = list[bool](), list[pa.Table]()
    for store_url, metarange_id, pack in zip(
        *(located[name].to_pylist() for name in ("store_url", "range_id", "pack")), strict=True
    ):
        ranges = known_ranges(store_url, [metarange_id]).get(metarange_id) if pack else None
        is_unknown.append(ranges is None)
        if ranges is not None:
            tables.append(ranges)
    return rows_of(spark, located.filter(pa.array(is_unknown, pa.bool_())), schema), tables


@worker
def _read_commits(batches: Batches, store: StoreLocation, heads: list[str]) -> Batches:
    for key, data in worker_store(store).read_many(strings(batches, "file")):
        commits = read_active_commits(data, key)
        if not commits.num_rows:
            raise IncompleteAnswerError(
                f"{key} lists no commit. An empty list does not prove that nothing is live",
                remedy="Check the log of the lakeFS server for prepare_commits, then start a new run",
            )
        listed = pc.is_in(pa.array(heads, pa.string()), commits.column("commit_id"))
        if not pc.all(listed, min_count=0).as_py():
            missing = heads[pc.index(listed, False).as_py()]
            raise IncompleteAnswerError(
                f"{key} lists {commits.num_rows} commits, but omits {missing}, the head of a branch. The list is "
                "incomplete",
                remedy="Check the log of the lakeFS server, then start a new run",
            )
        yield commits


@worker
def _read_metaranges(batches: Batches, cache: RangeCache, cores: int, known: KnownFolders, remembers: bool) -> Batches:
    index = RunIndex(cache, known)

    def decode(data: TableData, file: str, row: Row) -> pa.RecordBatch:
        data = opened(data, file)
        if row.get("only_recent") and table_kind(data.properties) is not TableKind.METARANGE:
            return pa.RecordBatch.from_pylist([], schema=_RANGE)  # not None: the file is cached for later readers
        return read_metarange(data, file)

    for row, metarange in read_through(batches, cache, cores, decode):
        if metarange.schema == METARANGE_SCHEMA:
            index.add_metarange(row, metarange)
            if remembers:
                ranges = pa.Table.from_batches([metarange.select(_RANGE.names)]).cast(_RANGE)
                remember_ranges(row["store_url"], row["range_id"], ranges)
        yield pa.record_batch([metarange.column("range_id"), metarange.column("entries")], schema=_RANGE)
    index.write()


@worker
def _list_metadata(
    batches: Batches, store: StoreLocation, since: datetime | None, seen: str, named: pa.StringArray
) -> Batches:
    for _ in batches:
        sizes = metadata_sizes(store, seen, named, since=since)
        columns = [pa.array(list(sizes), pa.string()), pa.nulls(len(sizes), pa.int64())]
        yield pa.record_batch([*columns, pa.array(list(sizes.values()), pa.int64())], names=_FILES.names)


def metadata_sizes(
    location: StoreLocation, seen: str, named: pa.StringArray | None = None, *, since: datetime | None = None
) -> dict[str, int]:
    """Return the ids of all metadata files of a namespace (ranges, metaranges, dumps of refs), with sizes in bytes.

    With ``since``, return only the files that were written then or later. ``seen`` (``some_metadata``) is a file that
    the driver saw there, "" without one. Raises ``StorageError`` if this machine does not list it: without the mount of
    a folder, a machine lists an empty folder, which proves nothing (rule 12). ``named`` is for ``refuse_old_list``.
    """
    store = worker_store(location)
    _, files = store.list_level(METADATA_FOLDER)
    if seen and not pc.any(pc.equal(files.column("address"), METADATA_FOLDER + seen), min_count=0).as_py():
        raise StorageError(
            f"{location.folder_url}: this machine lists {files.num_rows:,} files in {METADATA_FOLDER}, but not {seen}, "
            "which the machine that runs the collector sees there",
            remedy="Check that the folder is mounted on all machines of the cluster",
        )
    if named is not None:
        refuse_old_list(store, files.column("address"), named)
    if since is not None:
        written = files.column("last_modified")
        files = files.filter(pc.greater_equal(written, pa.scalar(since, written.type)))
    names = (key.removeprefix(METADATA_FOLDER) for key in files.column("address").to_pylist())
    sizes = files.column("size").to_pylist()
    return {name: size for name, size in zip(names, sizes, strict=True) if METADATA_ID.fullmatch(name)}
