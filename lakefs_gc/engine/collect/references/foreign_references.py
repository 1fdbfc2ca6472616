"""Rule 5: what other repositories refer to in this namespace.

A zero-copy import stores full addresses, so a range of one repository can name an object of another.  Every metadata
file of every other visible repository is read, whatever commit it belongs to: more than needed, never less.
Entries that another repository has staged, and not committed yet, are not in any file a client can read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from lakefs_gc.engine.collect.references.active_ranges import METADATA_FOLDER, METADATA_ID, list_metadata
from lakefs_gc.engine.collect.references.committed import live_addresses, named_ranges
from lakefs_gc.engine.records.check import OTHER_REPOSITORIES_WERE_READ
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.parts import StageFiles
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

_REPOSITORY = "repository string, store_url string"
FILES = "foreign_files"
FILE = StructType([StructField(name, StringType(), False) for name in ("repository", "store_url", "range_id")])
"""Columns of the stage ``FILES``: a metadata file of another repository."""
_FILE_SCHEMA = pa.schema([("repository", pa.string()), ("store_url", pa.string()), ("range_id", pa.string())])
_NAME_IT = (
    "if it can never be read from here, and it has imported nothing of this repository, name it in "
    "safety.repositories_not_read"
)
_FOUND = "address string, repository string, lost string"
"""A reference; or without an address, a range that a metarange of the repository names, and that does not exist."""
_FOUND_SCHEMA = pa.schema([(name, pa.string()) for name in ("address", "repository", "lost")])
_READS_AT_ONCE = 8  # up to 20 MB each


@dataclass(frozen=True)
class AcceptedUnknown:
    """What a person accepted for a mark although it is unknown.

    ``others_unread``: the approval overrides ``OTHER_REPOSITORIES_WERE_READ``.  ``unreadable`` and ``not_asked`` are
    the repositories of which the mark says so.
    """

    others_unread: bool
    unreadable: frozenset[str]
    not_asked: frozenset[str]


@dataclass(frozen=True)
class OtherRepositories:
    """The other repositories: (name, store URL) of those that can be listed, and the reason for each of the others."""

    readable: list[tuple[str, str]]
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
    """Find the addresses of this namespace in other repositories.  Columns: ``schemas.FOREIGN_REFERENCES``.

    ``facts`` has ``checked`` (how many repositories), ``unreadable`` (repository to reason: what could not be proved),
    ``not_asked`` (likewise, those that the settings exempt), ``switched_off`` and ``files_id``.  The list of the files
    is kept as stage ``name`` (columns ``FILE``); files that are ``seen`` are not read.

    A repository that has lost a range is unreadable, and what its other ranges refer to is kept all the same.  A lost
    metarange is not noticed: only the API names it, in calls on each repository that a collector needs no rights for.

    Raises ``StoreUnavailableError`` when the store of another repository does not answer.  With ``accepted`` (before a
    sweep) raises ``SafetyError`` instead for everything unknown that is not accepted.
    """
    spark, workspace, cores = context.spark, context.workspace, context.cores
    began_at = context.clock()
    neighbours = probe(context, run.repository, accepted)
    switched_off = not context.safety.check_foreign_references
    facts = {
        "checked": len(neighbours.readable),
        "unreadable": neighbours.unreadable,
        "not_asked": neighbours.not_asked,
        "switched_off": switched_off,
    }
    if switched_off:
        return StageOutput(local_rows(spark, [], schemas.FOREIGN_REFERENCES), began_at, {**facts, "files_id": ""})
    readable = neighbours.readable
    repositories = local_rows(spark, readable, _REPOSITORY).repartition(max(1, min(len(readable), cores)))
    listed = workspace.write(
        spark, run.run_key, name, StageOutput(repositories.mapInArrow(_list_files(), FILE), began_at)
    )
    files = workspace.read(spark, run.run_key, name, FILE).dataframe
    if seen is not None:
        files = files.join(seen, FILE.names, "left_anti")
    cache = workspace.range_cache
    located = cache.locate(spark, files, cores=cores)
    read = _read_files(run.known_folders, cache, cores, workspace.files_of(listed))
    output = StageOutput(located.mapInArrow(read, _FOUND).distinct(), began_at, measures={"lost": F.count("lost")})
    found = workspace.keep(spark, run.run_key, f"{name}_found", output, _FOUND)
    if found.manifest.facts["lost"]:
        for repository, error in _losses(found.dataframe).items():
            _refuse_unknown(repository, error, accepted)
            neighbours.unreadable[repository] = error.message
            logger.warning("repository %s may refer to objects here: %s", repository, error.message)
    references = found.dataframe.where(F.col("lost").isNull()).select(*schemas.FOREIGN_REFERENCES.names)
    return StageOutput(references, began_at, {**facts, "files_id": listed.materialization_id})


def _losses(found: DataFrame) -> dict[str, StorageError]:
    """What each repository has lost."""
    lost = found.where(F.col("lost").isNotNull()).groupBy("repository")
    with driver_errors():
        rows = lost.agg(F.min("lost").alias("example"), F.count_distinct("lost").alias("ranges")).collect()
    return {
        row["repository"]: StorageError(
            f"{row['example']} does not exist, and a metarange names it ({row['ranges']:,} ranges are missing)",
            remedy="restore the ranges, and find out what deletes files below _lakefs/",
        )
        for row in rows
    }


def probe(context: RunContext, own_name: str, accepted: AcceptedUnknown | None = None) -> OtherRepositories:
    """See which other repositories can be read; raises as ``foreign_references`` does.

    A sweep asks before it waits, so that it does not wait in vain.
    """
    safety = context.safety
    readable: list[tuple[str, str]] = []
    unreadable: dict[str, str] = {}
    not_asked: dict[str, str] = {}
    if not safety.check_foreign_references:
        if accepted is not None and not accepted.others_unread:
            raise SafetyError(
                "other repositories are not read, because safety.check_foreign_references is off here: what they "
                "imported since the mark would be deleted",
                remedy="switch it on and sweep again, or approve the mark with an override of "
                f"{OTHER_REPOSITORIES_WERE_READ}",
            )
        return OtherRepositories([], {}, {})
    for other in context.server.repositories():
        if other.name == own_name:
            continue
        try:
            if other.name in safety.repositories_not_read:
                not_asked[other.name] = "safety.repositories_not_read names it"
                if accepted is not None and other.name not in accepted.not_asked:
                    raise ConfigurationError("safety.repositories_not_read names it here, and did not for the mark")
                continue
            readable.append((other.name, _reachable(context, other).url))
        except (StorageError, ConfigurationError, NamespaceError) as error:
            _refuse_unknown(other.name, error, accepted)
            unreadable[other.name] = error.message
            logger.warning("cannot read repository %s: it may refer to objects here: %s", other.name, error.message)
    return OtherRepositories(readable, unreadable, not_asked)


def _refuse_unknown(
    name: str, error: StorageError | ConfigurationError | NamespaceError, accepted: AcceptedUnknown | None
) -> None:
    """Raise, unless a person has answered for it."""
    if accepted is None:
        if error.transient:
            # Not worth a check that fails for good: the next try may read it.
            raise StoreUnavailableError(
                f"repository {name} may refer to objects here, and its store does not answer: {error.message}",
                remedy=f"run again when it answers; {_NAME_IT}",
                **error.facts,
            ) from error
    elif not (accepted.others_unread and name in accepted.unreadable):
        raise SafetyError(
            f"repository {name} cannot be read, and this was not accepted for this mark: what it imported from here "
            f"would be deleted: {error.message}",
            remedy=f"restore the access, and sweep again; {_NAME_IT}, and mark again",
            repository=name,
        ) from error


def _reachable(context: RunContext, other: Repository) -> StoreLocation:
    location = context.settings.locate(normalize_namespace(other.storage_namespace))
    if not _has_metadata(context.open_store(location)) and _has_content(context.server, other.name):
        # Empty is no proof: a folder that is not mounted, or a wrong mount, has nothing in it either.
        raise StorageError(
            f"{location.folder_url}{METADATA_FOLDER} has no metadata of commits, and branches of {other.name} have "
            "content",
            remedy="see that its folder is mounted, and what `mounts` in lakefs-gc.toml says of its namespace",
        )
    return location


def _has_metadata(store: ObjectStore) -> bool:
    """Whether a file of a commit is there; rules and reports (``_lakefs/retention/``) are none.

    Where a store lists in order, the first page tells.
    """
    return any(
        METADATA_ID.fullmatch(key.removeprefix(METADATA_FOLDER))
        for batch in store.list(METADATA_FOLDER)
        for key in batch.column("address").to_pylist()
    )


def _has_content(server: LakeFSClient, repository: str) -> bool:
    try:
        return any(server.metarange_of(repository, commit_id) for _, commit_id in server.branch_heads(repository))
    except RepositoryNotFoundError:
        # Deleted meanwhile, or a commit of it that the server does not find: only the repository itself tells.
        return _exists(server, repository)
    except ServerError as error:
        if error.transient:
            raise
        return True  # for all that these credentials may know


def _exists(server: LakeFSClient, repository: str) -> bool:
    """Whether the server lists a repository: a 404 for it may come from what stands before the server."""
    return any(listed.name == repository for listed in server.repositories())


@contextmanager
def _naming(repositories: Mapping[str, str]) -> Iterator[None]:
    """Say in an error whose store failed, and the way out: the repository at hand is not at fault.

    ``repositories`` maps store URLs to the repositories that are read.
    """
    try:
        yield
    except (StorageError, CorruptFileError) as error:
        named = {name for url, name in repositories.items() if url in error.message} or set(repositories.values())
        kind = StoreUnavailableError if error.transient else OtherRepositoryError
        raise kind(
            f"repository {', '.join(sorted(named))} may refer to objects here, and could not be read: {error.message}",
            remedy=f"run again once it can be read; {_NAME_IT}",
            **error.facts,
        ) from error


@worker
def _list_files(batches: Batches) -> Batches:
    for batch in batches:
        for row in batch.to_pylist():
            with _naming({row["store_url"]: row["repository"]}):
                ids = list_metadata(StoreLocation(row["store_url"])).column("range_id")
            columns = [pa.repeat(row["repository"], len(ids)), pa.repeat(row["store_url"], len(ids)), ids]
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
        for row, found in read_through(remembered(), cache, cores, decode):
            for rows in found:
                if rows.num_rows:
                    yield _found(rows.column("address"), row["repository"])
        yield from _not_listed(named, listed, known)


def _not_listed(named: dict[tuple[str, str], str], listed: StageFiles, known: KnownFolders) -> Batches:
    """What is in the ranges that a metarange names and that are not in the list; those that do not exist are lost.

    ``named`` maps store and range to the repository.  A range that exists was written while the files were listed.
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
        there = store.stat_many(list(repository_of)).keys()
        for key in repository_of.keys() - there:
            lost = pa.array([store_url + key])
            yield pa.record_batch([pa.nulls(1, pa.string()), [repository_of[key]], lost], schema=_FOUND_SCHEMA)
        for key, data in store.read_many(sorted(there), concurrency=_READS_AT_ONCE):
            name = store_url + key
            for rows in live_addresses(data, name, known.folders, None, other_store=store_url, explained_by=known):
                yield _found(rows.column("address"), repository_of[key])


def _found(addresses: pa.StringArray, repository: str) -> pa.RecordBatch:
    columns = [addresses, pa.repeat(repository, len(addresses)), pa.nulls(len(addresses), pa.string())]
    return pa.record_batch(columns, schema=_FOUND_SCHEMA)
