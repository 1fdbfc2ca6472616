"""Rule 5: what other repositories refer to in this namespace.

A zero-copy import stores full addresses, so a range of one repository can name an object of another.  Every metadata
file of every other visible repository is read, whatever commit it belongs to: more than needed, never less.
Entries that another repository has staged, and not committed yet, are not in any file a client can read.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from lakefs_gc.config import SafetyParameters, Settings
from lakefs_gc.engine import schemas
from lakefs_gc.engine.active_ranges import METADATA_FOLDER, list_metadata
from lakefs_gc.engine.committed import live_addresses
from lakefs_gc.engine.dataset import Clock, StageOutput, WorkPlace
from lakefs_gc.engine.known_folders import KnownFolders
from lakefs_gc.engine.local_rows import local_rows
from lakefs_gc.engine.range_cache import RangeCache, Row, read_through
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.workers import Batches, worker
from lakefs_gc.errors import (
    ConfigurationError,
    RepositoryNotFoundError,
    SafetyError,
    ServerError,
    StorageError,
    StoreUnavailableError,
)
from lakefs_gc.formats.addresses import normalize_namespace
from lakefs_gc.server import LakeFSServer, Repository
from lakefs_gc.storage.base import StoreLocation
from lakefs_gc.storage.open import open_store

logger = logging.getLogger(__name__)

_REPOSITORY = "repository string, store_url string"
FILES = "foreign_files"
FILE = StructType([StructField(name, StringType(), False) for name in ("repository", "store_url", "range_id")])
"""Columns of the stage ``FILES``: a metadata file of another repository."""
_FILE_SCHEMA = pa.schema([("repository", pa.string()), ("store_url", pa.string()), ("range_id", pa.string())])
_REFERENCE = pa.schema([pa.field("address", pa.string(), False), pa.field("repository", pa.string(), False)])


def foreign_references(
    spark: SparkSession,
    run: GCRun,
    server: LakeFSServer,
    settings: Settings,
    safety: SafetyParameters,
    clock: Clock,
    *,
    work_place: WorkPlace,
    cores: int,
    name: str = FILES,
    seen: DataFrame | None = None,
    unreadable_at_mark: Collection[str] | None = None,
) -> StageOutput:
    """Find the addresses of this namespace in other repositories.  Columns: ``schemas.FOREIGN_REFERENCES``.

    ``facts`` has ``checked`` (how many repositories), ``unreadable`` (repository to reason: what could not be proved)
    and ``files_id``.  The list of the files is kept as stage ``name`` (columns ``FILE``); files that are ``seen`` are
    not read.

    Raises ``StoreUnavailableError`` when the store of another repository does not answer.  With ``unreadable_at_mark``
    raises ``SafetyError`` instead for each that is not among these, whyever it cannot be read.
    """
    began_at = clock()
    if not safety.check_foreign_references:
        empty = local_rows(spark, [], schemas.FOREIGN_REFERENCES)
        return StageOutput(empty, began_at, {"checked": 0, "unreadable": {}, "switched_off": True, "files_id": ""})
    readable, unreadable = _probe(server, settings, run.repository, unreadable_at_mark, safety.repositories_not_read)
    repositories = local_rows(spark, readable, _REPOSITORY).repartition(max(1, min(len(readable), cores)))
    listed = work_place.write(
        spark, run.run_key, name, StageOutput(repositories.mapInArrow(_list_files(), FILE), began_at)
    )
    files = work_place.read(spark, run.run_key, name, FILE).dataframe
    if seen is not None:
        files = files.join(seen, FILE.names, "left_anti")
    cache = work_place.range_cache
    located = cache.locate(spark, files, cores=cores)
    references = located.mapInArrow(_read_files(run.known_folders, cache, cores), schemas.FOREIGN_REFERENCES)
    facts = {"checked": len(readable), "unreadable": unreadable, "switched_off": False}
    return StageOutput(references.distinct(), began_at, {**facts, "files_id": listed.materialization_id})


def _probe(
    server: LakeFSServer,
    settings: Settings,
    own_name: str,
    unreadable_at_mark: Collection[str] | None,
    not_read: Collection[str],
) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """(name, store URL) of each other repository whose metadata can be listed, and the reason for each that cannot."""
    readable: list[tuple[str, str]] = []
    unreadable: dict[str, str] = {}
    for other in server.repositories():
        if other.name == own_name:
            continue
        try:
            if other.name in not_read:
                raise ConfigurationError("safety.repositories_not_read names it")
            readable.append((other.name, _reachable(other, settings, server).url))
        except (StorageError, ConfigurationError) as error:
            _refuse_unknown(other.name, error, unreadable_at_mark)
            unreadable[other.name] = error.message
            logger.warning("cannot read repository %s: it may refer to objects here: %s", other.name, error.message)
    return readable, unreadable


def _refuse_unknown(
    name: str, error: StorageError | ConfigurationError, unreadable_at_mark: Collection[str] | None
) -> None:
    """Raise, unless a person is warned of this by the mark."""
    if unreadable_at_mark is None:
        if error.transient:
            # Not worth a warning that outlives it in the mark: the next try may read it.
            raise StoreUnavailableError(
                f"repository {name} may refer to objects here, and its store does not answer: {error.message}",
                remedy="run again when it answers; if it never will from here, and it has imported nothing of this "
                "repository, name it in safety.repositories_not_read",
                **error.facts,
            ) from error
    elif name not in unreadable_at_mark:
        raise SafetyError(
            f"repository {name} cannot be read, and the mark does not say so: what it imported from here since the "
            f"mark would be deleted: {error.message}",
            remedy="wait until it can be read again, or restore the access, and sweep again; if it is to stay "
            "unreadable, mark again, and look at what other_repositories_were_read says",
            repository=name,
        ) from error


def _reachable(other: Repository, settings: Settings, server: LakeFSServer) -> StoreLocation:
    location = settings.locate(normalize_namespace(other.storage_namespace))
    if next(iter(open_store(location).list(METADATA_FOLDER)), None) is None and _has_content(server, other.name):
        # Empty is no proof: a folder that is not mounted, or a wrong mount, has nothing in it either.
        raise StorageError(
            f"{location.folder_url}{METADATA_FOLDER} is empty, and branches of {other.name} have content",
            remedy="see that its folder is mounted, and what `mounts` in lakefs-gc.toml says of its namespace",
        )
    return location


def _has_content(server: LakeFSServer, repository: str) -> bool:
    try:
        return any(server.metarange_of(repository, commit_id) for _, commit_id in server.branch_heads(repository))
    except RepositoryNotFoundError:  # deleted meanwhile
        return False
    except ServerError as error:
        if error.transient:
            raise
        return True  # for all that these credentials may know


@worker
def _list_files(batches: Batches) -> Batches:
    for batch in batches:
        for row in batch.to_pylist():
            ids = list_metadata(StoreLocation(row["store_url"])).column("range_id")
            columns = [pa.repeat(row["repository"], len(ids)), pa.repeat(row["store_url"], len(ids)), ids]
            yield pa.record_batch(columns, schema=_FILE_SCHEMA)


@worker
def _read_files(batches: Batches, known: KnownFolders, cache: RangeCache, cores: int) -> Batches:
    def decode(data: bytes, file: str, row: Row) -> list[pa.RecordBatch]:
        name = f"{row['store_url']}{file}"
        return list(live_addresses(data, name, known.folders, None, full_only=True, explained_by=known))

    for row, found in read_through(batches, cache, cores, decode):
        for rows in found:
            addresses = rows.column("address")
            if len(addresses):
                yield pa.record_batch([addresses, pa.repeat(row["repository"], len(addresses))], schema=_REFERENCE)
