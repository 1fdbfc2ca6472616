"""Rule 5: the objects of this namespace that other repositories reference.

A zero-copy import stores full addresses, so a range of one repository can name an object of another. Every metadata
file of every other visible repository is read, whatever its commit: more than necessary, never less. Entries that
another repository has staged but not committed are in no such file, and are not read: a known limit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakefs_gc.engine.collect.references.active_ranges import METADATA_FOLDER, metadata_sizes
from lakefs_gc.engine.collect.references.committed import live_addresses
from lakefs_gc.engine.collect.references.other_repositories import (
    EXEMPT,
    AcceptedUnknown,
    OtherRepositories,
    ReadableRepository,
    content_of_history,
    probe,
)
from lakefs_gc.engine.collect.references.plain_files import (
    FileName,
    PlainFiles,
    read_plain_files,
    without_plain_files,
)
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import known_table, to_arrow
from lakefs_gc.engine.spark.data_files import StageFiles
from lakefs_gc.engine.spark.local_rows import columns_of, distinct_union, local_rows, rows_of, rows_without
from lakefs_gc.engine.spark.scale import in_arrow, is_small, spread
from lakefs_gc.engine.spark.workers import Batches, driver_errors, worker, worker_store
from lakefs_gc.engine.workspace.named_files import read_named
from lakefs_gc.engine.workspace.range_cache import RangeCache, Row, few_to_read, read_through
from lakefs_gc.engine.workspace.workspace import StageOutput
from lakefs_gc.errors import (
    CorruptFileError,
    OtherRepositoryError,
    StorageError,
    StoreUnavailableError,
)
from lakefs_gc.formats.plain_addresses import are_plain
from lakefs_gc.formats.ranges import TableKind, known_kind, read_metarange, read_range
from lakefs_gc.formats.sstable.reader import TableData, opened
from lakefs_gc.lakefs.known_folders import KnownFolders, folders_of
from lakefs_gc.storage.location import StoreLocation

logger = logging.getLogger(__name__)

_REPOSITORY = "repository string, store_url string, seen string"
_NAMED = "repository string, range_id string, commit_id string"
_PROBED = "other repositories"
FILES = "foreign_files"
_FILE_NAME = ("repository", "store_url", "range_id")
FILE = StructType(
    [*(StructField(name, StringType(), False) for name in _FILE_NAME), StructField("size_bytes", LongType(), False)]
)
"""Columns of the stage ``FILES``: a metadata file of another repository."""
_FILE_SCHEMA = pa.schema([*((name, pa.string()) for name in _FILE_NAME), ("size_bytes", pa.int64())])
_FOUND = "address string, repository string, lost string"
"""A reference. Without an address: a range that a metarange of the repository names but that does not exist."""
_FOUND_SCHEMA = pa.schema([(name, pa.string()) for name in ("address", "repository", "lost")])
_READS_AT_ONCE = 8  # up to 20 MB each
_TASKS_PER_CORE = 4
Folders = Mapping[str, tuple[str, ...]]
_MOST_LISTED = 100_000
"""The most files whose position in the cache the process of a small run looks at, to know how many it has to read."""


def begin_foreign_references(context: RunContext, run: GCRun) -> None:
    """Ask now which other repositories can be read. Only after the store was listed (rule 1)."""
    context.ahead.begin(run, _PROBED, lambda: _probed(context, run, None))


def foreign_references(
    context: RunContext,
    run: GCRun,
    *,
    name: str = FILES,
    seen: DataFrame | None = None,
    accepted: AcceptedUnknown | None = None,
) -> StageOutput:
    """Return the addresses of this namespace in other repositories. Columns: ``schemas.FOREIGN_REFERENCES``.

    ``facts`` has ``repositories`` (all, name to ``Repository.identity``), ``checked`` (the number of those that were
    read), ``mounts`` (the prefixes of the settings), ``unreadable`` (repository to reason), ``not_asked`` (likewise,
    for repositories that the settings exempt), ``switched_off`` and ``files_id``. The list of the files is stored as
    stage ``name`` (columns ``FILE``). Files in ``seen`` are not read.

    A repository with a missing range is unreadable, but the objects that its other ranges reference are kept. If a
    mount leads to it, the metarange of each commit that a branch or a tag reaches must be there: the folder may be an
    old copy. Otherwise a missing metarange is not noticed: only the API names it, and a collector needs no permission
    for these calls on repositories that it reads directly.

    Raises ``StoreUnavailableError`` when the store of another repository does not answer. With ``accepted`` (before a
    sweep), raises ``SafetyError`` instead for every unknown repository that is not accepted.
    """
    spark, workspace, cores = context.spark, context.workspace, context.cores
    probed: tuple[datetime, OtherRepositories] | None = context.ahead.take(run, _PROBED) if accepted is None else None
    began_at, others = probed or _probed(context, run, accepted)
    switched_off = not context.safety.check_foreign_references
    facts = {
        "repositories": {other.name: other.identity for other in others.listed},
        "checked": len(others.readable),
        "mounts": sorted(context.settings.mounts),
        "unreadable": others.unreadable,
        "not_asked": others.not_asked,
        "switched_off": switched_off,
    }
    if switched_off:
        return StageOutput(local_rows(spark, [], schemas.FOREIGN_REFERENCES), began_at, {**facts, "files_id": ""})
    readable = others.readable
    named = list(_named(context, others, accepted))  # before the files are listed: the list must have these
    rows = [(other.name, other.store_url, other.seen) for other in readable]
    repositories = spread(local_rows(spark, rows, _REPOSITORY), max(1, min(len(rows), cores)))
    listing = in_arrow(repositories, _list_files(), FILE)
    # What was not read must not count as read: the next look reads only other files.
    kept = workspace.keep(spark, run.run_key, name, StageOutput(listing, began_at), FILE)
    listed, files = kept.manifest, kept.dataframe
    if named:
        missing = local_rows(spark, named, _NAMED).join(files, ["repository", "range_id"], "left_anti")
        for repository, error in _not_there(missing):
            others.name_unreadable(repository, error, accepted)
    if seen is not None:
        files = rows_without(files, seen, *_FILE_NAME)
    cache = workspace.range_cache
    few = listed.rows <= _MOST_LISTED
    tasks = cores * _TASKS_PER_CORE
    plain, plain_names = None, dict[FileName, str]()
    if few and is_small(spark):
        known_files = read_plain_files(cache)
        with driver_errors():
            listed_here = to_arrow(files)
        unknown, plain_names = without_plain_files(listed_here, known_files)
        files = rows_of(spark, unknown, files.schema)
        plain = PlainFiles(cache, known_files, tasks)
    located = cache.locate(spark, files, cores=cores)
    folders, list_files = _folders(readable), workspace.files_of(listed)
    read = _read_files(run.known_folders, folders, cache, cores, list_files, plain_names, plain)
    found = in_arrow(located, read, _FOUND, few=few, fits=partial(few_to_read, cores), tasks=tasks)
    found = distinct_union((found,))
    output = StageOutput(found, began_at, measures={"lost": F.count("lost")})
    if (table := known_table(found)) is not None:
        output = StageOutput(found, began_at, {"lost": table.num_rows - table["lost"].null_count})
    results = workspace.keep(spark, run.run_key, f"{name}_found", output, _FOUND)
    references = results.dataframe
    if results.manifest.facts["lost"]:
        for repository, error in _missing_ranges(results.dataframe).items():
            others.name_unreadable(repository, error, accepted)
        references = references.where(F.col("lost").isNull())
    references = columns_of(references, *schemas.FOREIGN_REFERENCES.names)
    return StageOutput(references, began_at, {**facts, "files_id": listed.materialization_id})


def _probed(context: RunContext, run: GCRun, accepted: AcceptedUnknown | None) -> tuple[datetime, OtherRepositories]:
    began_at = context.clock()
    # The client may be another one than that of the listing: another process, or new credentials.
    context.server.expect_repositories(run.repositories)
    return began_at, probe(context, run.repository, accepted)


def _named(
    context: RunContext, others: OtherRepositories, accepted: AcceptedUnknown | None
) -> Iterator[tuple[str, str, str]]:
    """Yield the rows (``_NAMED``) of what the folder of each mounted repository must have."""
    for other in others.mounted:
        try:
            content = content_of_history(context.server, other, others.own_name, context.safety.max_commits)
        except StorageError as error:
            others.name_unreadable(other.name, error, accepted)
        else:
            yield from ((other.name, metarange_id, commit_id) for metarange_id, commit_id in content.items())


def _folders(readable: Iterable[ReadableRepository]) -> Folders:
    """Return, by store URL, the folders of the relative addresses in it. Two repositories may have the same folder."""
    folders: dict[str, tuple[str, ...]] = {}
    for other in readable:
        folders[other.store_url] = (
            *folders.get(other.store_url, ()),
            *folders_of(other.namespace, other.store_url),
        )
    return folders


def _not_there(missing: DataFrame) -> Iterator[tuple[str, StorageError]]:
    """Yield each repository with ``missing`` content (``_NAMED``), and the error."""
    example = F.min(F.struct("range_id", "commit_id")).alias("example")
    with driver_errors():
        rows = missing.groupBy("repository").agg(example, F.count("*").alias("files")).collect()
    for row in rows:
        metarange_id, commit_id = row["example"]
        yield (
            row["repository"],
            StorageError(
                f"the folder that a mount leads to lacks {METADATA_FOLDER}{metarange_id}, the content of its commit "
                f"{commit_id} ({row['files']:,} such files are missing). It is out of date, or another folder",
                remedy="Check that its folder is mounted on all machines, and the entry for its namespace in `mounts` "
                "in lakefs-gc.toml",
            ),
        )


def _missing_ranges(results: DataFrame) -> dict[str, StorageError]:
    """Return an error for each repository with missing ranges."""
    lost = results.where(F.col("lost").isNotNull()).groupBy("repository")
    with driver_errors():
        rows = lost.agg(F.min("lost").alias("example"), F.count_distinct("lost").alias("ranges")).collect()
    return {
        row["repository"]: StorageError(
            f"{row['example']} does not exist, but a metarange names it ({row['ranges']:,} ranges are missing)",
            remedy="Restore the ranges, and find out what deletes files below _lakefs/",
        )
        for row in rows
    }


@contextmanager
def _naming(repositories: Mapping[str, str]) -> Iterator[None]:
    """Add the name of the other repository to an error of its store, because the collected repository did not fail.

    ``repositories`` maps store URLs to the repositories that are read.
    """
    try:
        yield
    except (StorageError, CorruptFileError) as error:
        named = {name for url, name in repositories.items() if url in error.message} or set(repositories.values())
        kind = StoreUnavailableError if error.transient else OtherRepositoryError
        raise kind(
            f"Repository {', '.join(sorted(named))} may reference objects of this namespace, but cannot be read: "
            f"{error.message}",
            remedy=f"Run again when it can be read. {EXEMPT}",
            **error.facts,
        ) from error


@worker
def _list_files(batches: Batches) -> Batches:
    for batch in batches:
        for row in batch.to_pylist():
            with _naming({row["store_url"]: row["repository"]}):
                sizes = metadata_sizes(StoreLocation(row["store_url"]), row["seen"])
            named = [pa.repeat(row[name], len(sizes)) for name in ("repository", "store_url")]
            columns = [*named, pa.array(list(sizes), pa.string()), pa.array(list(sizes.values()), pa.int64())]
            yield pa.record_batch(columns, schema=_FILE_SCHEMA)


@worker
def _read_files(
    batches: Batches,
    known: KnownFolders,
    folders: Folders,
    cache: RangeCache,
    cores: int,
    listed: StageFiles,
    plain_names: Mapping[FileName, str],
    plain: PlainFiles | None,
) -> Batches:
    named = dict(plain_names)

    def decode(data: TableData, file: str, row: Row) -> pa.StringArray:
        store_url, name = row["store_url"], f"{row['store_url']}{file}"
        names, found, is_plain = [], pa.array([], pa.string()), True
        table = opened(data, name)
        kind = known_kind(table.properties, name)
        if kind is TableKind.METARANGE:
            names = read_metarange(table, name).column("range_id").to_pylist()
            named.update(dict.fromkeys(((store_url, range_id) for range_id in names), row["repository"]))
        elif kind is TableKind.RANGE:
            batch = read_range(table, name)
            found, is_plain = known.entries(batch, of_other=folders[store_url]).column("address"), are_plain(batch)
        if plain is not None and is_plain:
            plain.add((store_url, row["range_id"]), names)
        return found

    repositories: dict[str, str] = {}

    def remembered() -> Batches:
        for batch in batches:
            repositories.update(zip(batch["store_url"].to_pylist(), batch["repository"].to_pylist(), strict=True))
            yield batch

    with _naming(repositories):
        for row, addresses in read_through(remembered(), cache, cores, decode):
            if len(addresses):
                yield _references(addresses, row["repository"])
        yield from _not_listed(named, listed, known, folders)
        if plain is not None:
            plain.write()


def _not_listed(
    named: dict[tuple[str, str], str], listed: StageFiles, known: KnownFolders, folders: Folders
) -> Batches:
    """Yield the references in ranges that a metarange names but the list omits. Ranges that do not exist are lost.

    ``named`` maps store and range to the repository. If such a range exists, it was written while the files were
    listed.
    """
    if named:
        for urls, ids in zip(listed.strings("store_url"), listed.strings("range_id"), strict=True):
            for file in zip(urls.to_pylist(), ids.to_pylist(), strict=True):
                named.pop(file, None)
    for store_url in {url for url, _ in named}:
        store = worker_store(StoreLocation(store_url))
        repository_of = {
            METADATA_FOLDER + range_id: named[url, range_id] for url, range_id in named if url == store_url
        }
        existing = store.stat_many(list(repository_of)).keys()
        for key in repository_of.keys() - existing:
            lost = pa.array([store_url + key])
            yield pa.record_batch([pa.nulls(1, pa.string()), [repository_of[key]], lost], schema=_FOUND_SCHEMA)
        for key, data in read_named(store, sorted(existing), concurrency=_READS_AT_ONCE):
            name = store_url + key
            of_other = folders[store_url]
            for rows in live_addresses(data, name, known.folders, None, of_other=of_other, explained_by=known):
                yield _references(rows.column("address"), repository_of[key])


def _references(addresses: pa.StringArray, repository: str) -> pa.RecordBatch:
    columns = [addresses, pa.repeat(repository, len(addresses)), pa.nulls(len(addresses), pa.string())]
    return pa.record_batch(columns, schema=_FOUND_SCHEMA)
