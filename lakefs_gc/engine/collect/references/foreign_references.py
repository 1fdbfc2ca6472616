"""Rule 5: the objects of this namespace that other repositories reference.

A zero-copy import stores full addresses, so a range of one repository can name an object of another. Every metadata
file of every other visible repository is read, whatever its commit: more than necessary, never less. Entries that
another repository has staged but not committed are in no file that a client can read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakefs_gc.engine.collect.references.active_ranges import METADATA_FOLDER, metadata_sizes, some_metadata
from lakefs_gc.engine.collect.references.committed import live_addresses, named_ranges
from lakefs_gc.engine.records.check import OTHER_REPOSITORIES_WERE_READ
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.parts import StageFiles
from lakefs_gc.engine.spark.scale import in_arrow, spread
from lakefs_gc.engine.spark.workers import Batches, driver_errors, worker, worker_store
from lakefs_gc.engine.workspace.range_cache import RangeCache, Row, read_through
from lakefs_gc.engine.workspace.workspace import StageOutput
from lakefs_gc.errors import (
    ConfigurationError,
    CorruptFileError,
    NamespaceError,
    OtherRepositoryError,
    RepositoryNotFoundError,
    SafetyError,
    ServerError,
    StorageError,
    StoreUnavailableError,
)
from lakefs_gc.formats.addresses import normalize_namespace
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.lakefs.models import Repository
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation

logger = logging.getLogger(__name__)

_REPOSITORY = "repository string, store_url string, seen string"
FILES = "foreign_files"
_FILE_NAME = ("repository", "store_url", "range_id")
FILE = StructType(
    [*(StructField(name, StringType(), False) for name in _FILE_NAME), StructField("size_bytes", LongType(), False)]
)
"""Columns of the stage ``FILES``: a metadata file of another repository."""
_FILE_SCHEMA = pa.schema([*((name, pa.string()) for name in _FILE_NAME), ("size_bytes", pa.int64())])
_EXEMPT = (
    "If it can never be read from here, and nothing of this repository was imported into it, name it in "
    "safety.repositories_not_read"
)
_WRITTEN_AT_CREATION = (f"{METADATA_FOLDER}dummy", "dummy")
"""The file that lakeFS writes when it creates a repository, and its name in earlier versions."""
_FOUND = "address string, repository string, lost string"
"""A reference. Without an address: a range that a metarange of the repository names but that does not exist."""
_FOUND_SCHEMA = pa.schema([(name, pa.string()) for name in ("address", "repository", "lost")])
_READS_AT_ONCE = 8  # up to 20 MB each
_TASKS_PER_CORE = 4
_FEW_FILES = 2000
_FEW_BYTES = 64 * 1024**2
"""The most files of other repositories, and bytes in them, that a small run reads in its own process: two workers need
5 s of processor time to start, and this process 5 ms for a file."""


@dataclass(frozen=True)
class AcceptedUnknown:
    """The unknown repositories that a person accepted for a mark.

    ``others_unread``: the approval overrides ``OTHER_REPOSITORIES_WERE_READ``. ``unreadable`` and ``not_asked`` are the
    repositories that the mark names as such.
    """

    others_unread: bool
    unreadable: frozenset[str]
    not_asked: frozenset[str]


@dataclass(frozen=True)
class OtherRepositories:
    """The other repositories: those that can be read, and name and reason of each that is not read.

    ``readable`` has the name, the store URL, and the name of a metadata file that exists ("": there is none).
    """

    readable: list[tuple[str, str, str]]
    unreadable: dict[str, str]
    not_asked: dict[str, str]


def foreign_references(
    context: RunContext,
    run: GCRun,
    *,
    name: str = FILES,
    seen: DataFrame | None = None,
    accepted: AcceptedUnknown | None = None,
) -> StageOutput:
    """Return the addresses of this namespace in other repositories. Columns: ``schemas.FOREIGN_REFERENCES``.

    ``facts`` has ``checked`` (the number of repositories), ``unreadable`` (repository to reason), ``not_asked``
    (likewise, for repositories that the settings exempt), ``switched_off`` and ``files_id``. The list of the files is
    stored as stage ``name`` (columns ``FILE``). Files in ``seen`` are not read.

    A repository with a missing range is unreadable, but the objects that its other ranges reference are kept. If a
    mount leads to it, the metarange of each branch and tag must be there. Otherwise a missing metarange is not noticed:
    only the API names it, and a collector needs no permission for these calls on repositories that it reads directly.

    Raises ``StoreUnavailableError`` when the store of another repository does not answer. With ``accepted`` (before a
    sweep), raises ``SafetyError`` instead for every unknown repository that is not accepted.
    """
    spark, workspace, cores = context.spark, context.workspace, context.cores
    began_at = context.clock()
    others = probe(context, run.repository, accepted)
    switched_off = not context.safety.check_foreign_references
    facts = {
        "checked": len(others.readable),
        "unreadable": others.unreadable,
        "not_asked": others.not_asked,
        "switched_off": switched_off,
    }
    if switched_off:
        return StageOutput(local_rows(spark, [], schemas.FOREIGN_REFERENCES), began_at, {**facts, "files_id": ""})
    readable = others.readable
    repositories = spread(local_rows(spark, readable, _REPOSITORY), max(1, min(len(readable), cores)))
    listing = in_arrow(repositories, _list_files(), FILE)
    measures = {"size_bytes": F.sum("size_bytes")}
    listed = workspace.write(spark, run.run_key, name, StageOutput(listing, began_at, measures=measures))
    files = workspace.read(spark, run.run_key, name, FILE).dataframe
    if seen is not None:
        files = files.join(seen, list(_FILE_NAME), "left_anti")
    cache = workspace.range_cache
    located = cache.locate(spark, files, cores=cores)
    read = _read_files(run.known_folders, cache, cores, workspace.files_of(listed))
    few = listed.rows <= _FEW_FILES and listed.facts["size_bytes"] <= _FEW_BYTES
    found = in_arrow(located, read, _FOUND, few=few, tasks=cores * _TASKS_PER_CORE)
    output = StageOutput(found.distinct(), began_at, measures={"lost": F.count("lost")})
    results = workspace.keep(spark, run.run_key, f"{name}_found", output, _FOUND)
    if results.manifest.facts["lost"]:
        for repository, error in _missing_ranges(results.dataframe).items():
            _refuse_unknown(repository, error, accepted)
            others.unreadable[repository] = error.message
            logger.warning("repository %s may reference objects of this namespace: %s", repository, error.message)
    references = results.dataframe.where(F.col("lost").isNull()).select(*schemas.FOREIGN_REFERENCES.names)
    return StageOutput(references, began_at, {**facts, "files_id": listed.materialization_id})


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


def probe(context: RunContext, own_name: str, accepted: AcceptedUnknown | None = None) -> OtherRepositories:
    """Check which other repositories can be read. Raises as ``foreign_references`` does.

    A sweep calls this before its wait, so that it fails early.
    """
    safety = context.safety
    readable: list[tuple[str, str, str]] = []
    unreadable: dict[str, str] = {}
    not_asked: dict[str, str] = {}
    if not safety.check_foreign_references:
        # Who accepted that some repositories were not read at the mark has not accepted that none is.
        if accepted is not None and (not accepted.others_unread or accepted.unreadable):
            raise SafetyError(
                "Other repositories are not read, because safety.check_foreign_references is false. Objects that they "
                "imported since the mark would be deleted",
                remedy="Set safety.check_foreign_references to true and sweep again, or approve the mark with an "
                f"override of {OTHER_REPOSITORIES_WERE_READ}",
            )
        return OtherRepositories([], {}, {})
    for other in context.server.repositories():
        if other.name == own_name:
            continue
        try:
            if other.name in safety.repositories_not_read:
                not_asked[other.name] = "safety.repositories_not_read names it"
                if accepted is not None and other.name not in accepted.not_asked:
                    raise ConfigurationError("safety.repositories_not_read names it now, but did not for the mark")
                continue
            readable.append((other.name, *_reachable(context, other)))
        except (StorageError, ConfigurationError, NamespaceError) as error:
            _refuse_unknown(other.name, error, accepted)
            unreadable[other.name] = error.message
            logger.warning(
                "repository %s cannot be read, and may reference objects of this namespace: %s",
                other.name,
                error.message,
            )
    return OtherRepositories(readable, unreadable, not_asked)


def _refuse_unknown(
    name: str, error: StorageError | ConfigurationError | NamespaceError, accepted: AcceptedUnknown | None
) -> None:
    """Raise unless a person has accepted that the repository is unknown."""
    if accepted is None:
        if error.transient:
            # A retry may succeed, so this must not become a failed check of the mark.
            raise StoreUnavailableError(
                f"Repository {name} may reference objects of this namespace, but its store does not answer: "
                f"{error.message}",
                remedy=f"Run again when the store answers. {_EXEMPT}",
                **error.facts,
            ) from error
    elif not (accepted.others_unread and name in accepted.unreadable):
        raise SafetyError(
            f"Repository {name} cannot be read, and the approval of this mark does not accept that. Objects that it "
            f"imported from this repository would be deleted: {error.message}",
            remedy=f"Restore the access, then sweep again. {_EXEMPT}, then mark again",
            repository=name,
        ) from error


def _reachable(context: RunContext, other: Repository) -> tuple[str, str]:
    """Return the URL of a repository's store, and the name of a metadata file in it ("": there is none)."""
    namespace = normalize_namespace(other.storage_namespace)
    location = context.settings.locate(namespace)
    store = context.open_store(location)
    seen = some_metadata(store)
    metadata = f"{location.folder_url}{METADATA_FOLDER}"
    if location.folder_url != StoreLocation(namespace).folder_url:
        _refuse_other_content(context.server, other, store, metadata, is_empty=not seen)
    elif not seen and _content_of(context.server, other.name):
        raise StorageError(
            f"{metadata} has no metadata of commits, but branches or tags of {other.name} have content",
            remedy="Check the store's endpoint and credentials",
        )
    return location.url, seen


def _refuse_other_content(
    server: LakeFSClient, other: Repository, store: ObjectStore, metadata: str, *, is_empty: bool
) -> None:
    """Raise ``StorageError`` unless a folder that a mount leads to has the content of all branches and tags.

    It may be another folder than the server's, an empty one where nothing is mounted, or a copy of an earlier time.
    """
    refs = _content_of(server, other.name)
    existing = store.stat_many([METADATA_FOLDER + metarange for metarange in refs])
    lost = sorted(metarange for metarange in refs if METADATA_FOLDER + metarange not in existing)
    remedy = "Check that its folder is mounted, and the entry for its namespace in `mounts` in lakefs-gc.toml"
    if lost:
        raise StorageError(
            f"{metadata} lacks {lost[0]}, the content of {refs[lost[0]]} in {other.name} ({len(lost):,} of "
            f"{len(refs):,} such files are missing). It is not the folder that the server writes to, or is out of date",
            remedy=remedy,
        )
    if is_empty and not store.stat_many(_WRITTEN_AT_CREATION):
        # Commits that no branch and no tag reaches may have content, too.
        raise StorageError(
            f"{metadata} has no metadata of commits, and not the file that lakeFS writes when it creates a repository. "
            f"Nothing shows that it is the folder of {other.name}",
            remedy=remedy,
        )


def _content_of(server: LakeFSClient, repository: str) -> dict[str, str]:
    """Return metarange id to branch or tag for the refs of a repository that have content.

    Empty for a repository that was deleted meanwhile. Raises ``StorageError`` if these credentials cannot read it.
    """
    try:
        # A tag may hold the only commits with content, if their branch was deleted.
        refs = {commit_id: name for name, commit_id in chain(server.branch_heads(repository), server.tags(repository))}
        return {metarange: refs[commit] for commit, metarange in server.metaranges_of(repository, refs) if metarange}
    except RepositoryNotFoundError as error:
        # The repository was deleted meanwhile, or the server does not find one of its commits.
        if not _exists(server, repository):
            return {}
        cause: ServerError = error
    except ServerError as error:
        if error.transient:
            raise
        cause = error
    raise StorageError(
        f"whether its folder has all content of {repository} is unknown: {cause.message}",
        remedy="Allow fs:ListBranches, fs:ListTags and fs:ReadCommit on this repository",
    )


def _exists(server: LakeFSClient, repository: str) -> bool:
    """Return whether the server lists a repository. A 404 for it may come from a proxy in front of the server."""
    return any(listed.name == repository for listed in server.repositories())


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
            remedy=f"Run again when it can be read. {_EXEMPT}",
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
def _read_files(batches: Batches, known: KnownFolders, cache: RangeCache, cores: int, listed: StageFiles) -> Batches:
    named: dict[tuple[str, str], str] = {}

    def decode(data: bytes, file: str, row: Row) -> list[pa.RecordBatch]:
        name = f"{row['store_url']}{file}"
        named.update({(row["store_url"], range_id): row["repository"] for range_id in named_ranges(data, name)})
        return list(live_addresses(data, name, known.folders, None, other_store=row["store_url"], explained_by=known))

    repositories: dict[str, str] = {}

    def remembered() -> Batches:
        for batch in batches:
            repositories.update(zip(batch["store_url"].to_pylist(), batch["repository"].to_pylist(), strict=True))
            yield batch

    with _naming(repositories):
        for row, decoded in read_through(remembered(), cache, cores, decode):
            for rows in decoded:
                if rows.num_rows:
                    yield _references(rows.column("address"), row["repository"])
        yield from _not_listed(named, listed, known)


def _not_listed(named: dict[tuple[str, str], str], listed: StageFiles, known: KnownFolders) -> Batches:
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
        for key, data in store.read_many(sorted(existing), concurrency=_READS_AT_ONCE):
            name = store_url + key
            for rows in live_addresses(data, name, known.folders, None, other_store=store_url, explained_by=known):
                yield _references(rows.column("address"), repository_of[key])


def _references(addresses: pa.StringArray, repository: str) -> pa.RecordBatch:
    columns = [addresses, pa.repeat(repository, len(addresses)), pa.nulls(len(addresses), pa.string())]
    return pa.record_batch(columns, schema=_FOUND_SCHEMA)
