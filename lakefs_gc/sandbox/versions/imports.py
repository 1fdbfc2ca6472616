"""Import objects from elsewhere in the same kind of store: commit entries for them without copying data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lakefs_gc.errors import ObjectNotFoundError
from lakefs_gc.formats.entry import AddressType, Entry, to_ns
from lakefs_gc.formats.ids import new_xid
from lakefs_gc.sandbox.context import Sandbox, writable
from lakefs_gc.sandbox.data.objects import DEFAULT_CONTENT_TYPE
from lakefs_gc.sandbox.problems import ApiError
from lakefs_gc.sandbox.state.records import Change, Record, record_of
from lakefs_gc.sandbox.versions.commits import CommitParameters, replace_prefixes, shown_commit
from lakefs_gc.sandbox.versions.refs import CommitRecord, Repository

DEFAULT_MESSAGE = "Import objects"
_STAT_BATCH = 1000


@dataclass(frozen=True)
class Source:
    """A source to import: one object, or all objects with a URL that starts with ``url``; ``destination`` is a path."""

    url: str
    destination: str
    is_prefix: bool


def start_import(
    sandbox: Sandbox,
    repository: Repository,
    branch: str,
    sources: Sequence[Source],
    parameters: CommitParameters,
) -> str:
    """Begin an import. Return the id of its task, whose status is in ``Tasks``."""
    sandbox.refs.branch(repository.name, branch)
    _check_sources(repository, sources)
    import_id = new_xid(sandbox.clock())
    sandbox.tasks.begin(repository.name, import_id, {"ingested_objects": 0})

    def report(ingested: int) -> None:
        sandbox.tasks.update(repository.name, import_id, {"ingested_objects": ingested})

    def work() -> dict[str, Any]:
        record, count = _import(sandbox, repository, branch, sources, parameters, report)
        return {
            "ingested_objects": count,
            "metarange_id": record.meta_range_id,
            "commit": shown_commit(record),
        }

    sandbox.in_background(sandbox.tasks.run(repository.name, import_id, work))
    return import_id


def _import(
    sandbox: Sandbox,
    repository: Repository,
    branch: str,
    sources: Sequence[Source],
    parameters: CommitParameters,
    report: Callable[[int], None],
) -> tuple[CommitRecord, int]:
    """Run an import. ``report`` is called with the number of objects so far, and raises if the import is cancelled."""
    writable(repository, force=parameters.force)
    records: dict[bytes, Record] = {}
    for source in sources:
        for record in _records(sandbox, source):
            records[record.key] = record
            if len(records) % _STAT_BATCH == 0:
                report(len(records))

    def changes() -> Iterator[Change]:
        # The branch is locked here. A cancellation is possible up to this last report before the commit.
        for key in sorted(records):
            yield Change(key, records[key])
        report(len(records))

    prefixes = [source.destination.encode() for source in sources]
    return replace_prefixes(sandbox, repository, branch, parameters, prefixes, changes), len(records)


def _check_sources(repository: Repository, sources: Sequence[Source]) -> None:
    namespace = repository.storage_namespace
    for source in sources:
        if source.url.startswith(namespace):
            where = f"import path ({source.url}) in repository namespace ({namespace})"
            raise ApiError(400, f"{where} is prohibited: invalid import source")
        if source.is_prefix and namespace.startswith(source.url):
            contains = f"prefix ({source.url}) contains repository namespace: ({namespace})"
            raise ApiError(400, f"{contains}, invalid import source")


def _records(sandbox: Sandbox, source: Source) -> Iterator[Record]:
    store, prefix = sandbox.namespaces.outside(source.url)
    bucket_url = source.url.removesuffix(prefix)
    keys = [prefix]
    if source.is_prefix:
        keys = [key for batch in store.list(prefix) for key in batch.column("address").to_pylist()]
    folder = source.destination
    if folder and not folder.endswith("/"):
        folder += "/"
    for first in range(0, len(keys), _STAT_BATCH):
        for key, info in store.stat_many(keys[first : first + _STAT_BATCH]).items():
            # Local files have no ETag. Time and size distinguish the versions of a file.
            e_tag = info.e_tag or _digest(f"{info.last_modified.isoformat()} {info.size_bytes}")
            entry = Entry(
                address=bucket_url + key,
                address_type=AddressType.FULL,
                size_bytes=info.size_bytes,
                last_modified_ns=to_ns(info.last_modified),
                e_tag=e_tag,
                content_type=DEFAULT_CONTENT_TYPE,
            )
            path = folder + key.removeprefix(prefix).lstrip("/") if source.is_prefix else source.destination
            yield record_of(path, entry)
    if not source.is_prefix and not store.stat_many(keys):
        raise ObjectNotFoundError(f"{source.url} does not exist", remedy="Name an object that exists")


def _digest(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
