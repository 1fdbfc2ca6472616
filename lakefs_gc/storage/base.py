"""The interface of an object store: the operations that the collector needs, and no others.

A store is opened at a folder (a lakeFS storage namespace, or a prefix above it). All keys are relative to that folder,
exactly as the store has them: no URL decoding, no Unicode normalisation. An open store never leaves its folder: a key
that is empty, absolute, or has a ``..`` or ``.`` part raises ``NamespaceError``.

Clients hold sockets and threads that survive neither a fork nor pickling. Pass a ``StoreLocation`` to a Spark worker
and open the store there.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.errors import StoreUnavailableError
from lakefs_gc.storage.delete_window import DeleteWindow
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc.units import EPOCH

LISTING_SCHEMA = pa.schema(
    [
        pa.field("address", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("last_modified", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
"""Columns of a listing: the key relative to the store's folder, the size in bytes, and the time of the last change."""
_CHUNK_BYTES = 1024**2


def written_at(objects: pa.RecordBatch) -> dict[str, datetime]:
    """Return the keys of objects (columns ``LISTING_SCHEMA``) with the time of their last change.

    Arrow would import pandas to convert a time, which takes 0.2 s.
    """
    times = objects["last_modified"].view(pa.int64()).to_pylist()
    return {
        key: EPOCH + timedelta(microseconds=time)
        for key, time in zip(objects["address"].to_pylist(), times, strict=True)
    }


def md5_of(content: BinaryIO) -> str:
    """Return the MD5 of a stream (32 hex digits, lower case)."""
    digest = hashlib.md5(usedforsecurity=False)
    while chunk := content.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


@dataclass(frozen=True)
class ListingPage:
    """A part of a listing: objects of ``LISTING_SCHEMA``, and the folders of the level that arrived with them."""

    objects: pa.RecordBatch
    sub_prefixes: list[str]


@dataclass(frozen=True)
class ObjectInfo:
    """An object that exists: size in bytes, ETag without quotes (empty if the store has none)."""

    size_bytes: int
    last_modified: datetime
    e_tag: str


@dataclass(frozen=True)
class VersionedTarget:
    """An object to delete with all its versions: its facts (None: it does not exist), and the latest permitted time."""

    key: str
    seen: ObjectInfo | None
    newest: datetime


@dataclass(frozen=True)
class ObjectVersions:
    """The ids of the versions and delete markers of an object, empty if the store keeps no versions.

    ``is_newer``: the object was written again, so none of its versions may be deleted. ``markers``: how many of ``ids``
    are delete markers, which have no content.
    """

    target: VersionedTarget
    ids: tuple[str, ...] = ()
    is_newer: bool = False
    markers: int = 0


@dataclass(frozen=True)
class ContentFacts:
    """The size in bytes and the checksums that a store itself reports of an object's whole content.

    ``checksums`` maps the algorithm to its value: ``md5`` and ``sha256`` in hex, others (``crc64nvme``) as the store
    writes them. Empty if the store has none that certainly covers the whole content.
    """

    size_bytes: int
    checksums: Mapping[str, str]


class DeletionOutcome(StrEnum):
    """The store's own answer for one key."""

    DELETED = "deleted"
    FAILED = "failed"
    LOCKED = "locked"
    """An object lock or a legal hold protects the object."""
    NEWER = "newer"
    """The object was written again: neither it nor any of its versions was deleted."""


@dataclass(frozen=True)
class Deletion:
    """The outcome of one key; ``error`` is the store's code and message if the delete failed, else empty."""

    key: str
    outcome: DeletionOutcome
    error: str = ""

    @classmethod
    def of(cls, key: str, error: str) -> Deletion:
        """Return ``FAILED`` with the error, or ``DELETED`` if the error is empty."""
        return cls(key, DeletionOutcome.FAILED if error else DeletionOutcome.DELETED, error)


@dataclass(frozen=True)
class UnfinishedWrite:
    """A write that has begun and not ended: it is in progress, or its program was killed. No listing shows it.

    ``key``: of an upload in parts, the key of its object; of a temporary file, its own path. ``since``: when the upload
    began, or the file was last changed. ``upload_id`` and ``size_bytes``: of an upload, and of a file. ``remove_with``:
    the command that removes it.
    """

    key: str
    since: datetime
    remove_with: str
    upload_id: str = ""
    size_bytes: int | None = None


SubPrefixes = list[str]
"""For annotations in classes that have a method named ``list``."""

Deletions = list[Deletion]
Versions = list[ObjectVersions]
UnfinishedWrites = list[UnfinishedWrite]


class ObjectStore(ABC):
    """A folder of an object store.

    Every method raises ``AccessDeniedError``, ``StoreUnavailableError`` (after its retries) or ``StorageError``.
    Requests that fail temporarily (5xx, 429, SlowDown, broken connections) are retried with backoff and do not count
    as failures. Methods may be called from several threads of the process that opened the store.
    """

    location: StoreLocation

    lists_by_page = False
    """Whether each page of a listing is one request, and a listing of a level can start at any of its names."""

    deletes_versions = False
    """Whether ``find_versions`` and ``delete_versions`` reach earlier versions, if the store keeps any."""

    @property
    def slow_downs(self) -> int:
        """Return how often the store has asked this process to slow down."""
        return 0

    def limit_requests(self, per_second: float) -> None:  # noqa: B027 - a local store makes no requests
        """Limit the average number of requests per second from this process; 0 removes the limit.

        A local store ignores the limit.
        """

    @abstractmethod
    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[pa.RecordBatch]:
        """Yield all objects whose key starts with ``prefix`` and sorts after ``start_after``, at any depth.

        Each batch has ``LISTING_SCHEMA`` and at most a few tens of thousands of rows. The order is the UTF-8 byte order
        of the keys on S3, and any order on a local folder and on some S3-compatible stores. SeaweedFS walks folders:
        with ``start_after`` in the middle of a folder it may skip keys that byte order puts later; whole slices are
        safe. Keys that end in ``/`` (directory markers) are omitted. An empty prefix yields no batch. A bucket or local
        folder that does not exist raises ``ObjectNotFoundError``; a listing that cannot be read to its end raises too.
        """

    @abstractmethod
    def list_level(self, prefix: str = "") -> tuple[SubPrefixes, pa.RecordBatch]:
        """Return one level: the sub-prefixes below ``prefix`` (each ends in ``/``), and the objects directly in it.

        ``prefix`` is empty or ends in ``/``. Sub-prefixes include it (``data/<slice>/`` for ``data/``).
        """

    def pages(
        self, prefix: str, *, start_after: str = "", until: str = "", one_level: bool = False
    ) -> Iterator[ListingPage]:
        """Yield the pages of ``list``, or of ``list_level`` with ``one_level``, as the store returns them.

        With ``one_level``, S3 returns objects in the order of their keys after ``start_after``. Stores without
        ``lists_by_page`` may be slow with ``start_after``. A store may omit what comes after the key ``until``, and
        need not.
        """
        if one_level:
            sub_prefixes, objects = self.list_level(prefix)
            yield ListingPage(objects.filter(pc.greater(objects["address"], start_after)), sub_prefixes)
            return
        for batch in self.list(prefix, start_after=start_after):
            yield ListingPage(batch, [])

    def quick_pages(
        self, prefix: str, *, start_after: str = "", until: str = "", one_level: bool = False
    ) -> Iterator[ListingPage]:
        """Yield the pages of ``pages``, in less processor time where a store can.

        Behind a faulty proxy, a page may be the answer to an earlier request for the same prefix. So this is only for
        a listing from which a mark is made: an object that it lacks is not marked.
        """
        return self.pages(prefix, start_after=start_after, until=until, one_level=one_level)

    def first_name_after(self, prefix: str, start_after: str) -> str | None:
        """Return the first key or folder (without its final slash) of the level ``prefix`` after ``start_after``.

        Only for stores with ``lists_by_page``. The result is a hint where to cut a listing, and proves nothing.
        """
        raise NotImplementedError

    @abstractmethod
    def read_many(self, keys: Iterable[str], *, concurrency: int = 16) -> Iterator[tuple[str, bytes]]:
        """Yield the key and the whole content of each object, in any order, with ``concurrency`` parallel requests.

        Few contents are in memory at the same time. The first key that does not exist raises ``ObjectNotFoundError``.
        """

    @abstractmethod
    def stat_many(self, keys: Sequence[str], *, concurrency: int = 16) -> dict[str, ObjectInfo]:
        """Return facts about each object that exists; the result omits keys that do not exist."""

    @abstractmethod
    def content_md5(self, keys: Sequence[str], *, concurrency: int = 16) -> dict[str, str]:
        """Return the MD5 (32 hex digits, lower case) of the content of each object for which it is certain.

        The result omits objects that do not exist, and objects with an ETag that may not be an MD5.
        """

    @abstractmethod
    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write a whole object atomically. With ``if_absent``, write nothing and return False if it exists."""

    @abstractmethod
    def open_read(self, key: str) -> AbstractContextManager[BinaryIO]:
        """Open one object as a stream, for objects too large for memory. Raise ``ObjectNotFoundError``.

        A stream that breaks raises an error; it never ends early without one.
        """

    @abstractmethod
    def read_end(self, key: str, size_bytes: int) -> bytes:
        """Return the last bytes of one object, or all of them if there are fewer. Raise ``ObjectNotFoundError``."""

    @abstractmethod
    def put_stream(self, key: str, source: BinaryIO, *, if_absent: bool = False, size_bytes: int = 0) -> bool:
        """Write a whole object from a stream atomically: nothing is written if ``source`` raises.

        ``size_bytes`` is the approximate size, if known: stores choose the size of the parts of an upload by it.
        With ``if_absent``, write nothing and return False if the object exists, also if another writer creates it
        meanwhile (as ``put``).
        """

    def content_facts(self, key: str) -> ContentFacts | None:
        """Return what the store reports of an object's content, without reading it; None if it does not exist."""
        info = self.stat_many([key]).get(key)
        return ContentFacts(info.size_bytes, {}) if info else None

    def copy_to(self, key: str, destination: ObjectStore, destination_key: str, *, if_absent: bool = False) -> bool:
        """Copy one object: by the store itself if source and destination share a store, otherwise as a stream.

        Raise ``ObjectNotFoundError``. The destination has the whole object, or nothing. With ``if_absent``, write
        nothing and return False if it exists.
        """
        retry = RetryPolicy()
        facts = self.stat_many([key]).get(key)
        for failures in itertools.count(1):
            try:
                with self.open_read(key) as source:
                    size_bytes = facts.size_bytes if facts else 0
                    return destination.put_stream(destination_key, source, if_absent=if_absent, size_bytes=size_bytes)
            except StoreUnavailableError:  # the stream broke: start again from the first byte
                if failures >= retry.tries:
                    raise
                time.sleep(retry.pause_seconds(failures))
        raise AssertionError("unreachable")

    @abstractmethod
    def delete_many(self, keys: Sequence[str], window: DeleteWindow | None = None) -> Deletions:
        """Delete objects, and return the store's answer for each key, in the order of ``keys``.

        Deleting a key that does not exist succeeds (``DELETED``), because stores do not report the difference. If one
        key makes the store refuse a whole batch, it is isolated and only that key fails. A request to slow down is
        not a failure: the delete waits and is sent again.

        ``window`` is checked before each try, also of a part of the keys. Once it is over, the remaining keys are
        ``FAILED`` and not tried. ``window.unanswered`` is set if the result of a try is unknown.
        """

    def delete_unchanged(self, targets: Sequence[VersionedTarget], window: DeleteWindow | None = None) -> Deletions:
        """Delete objects as ``delete_many`` does, if they are still the ones that were ``seen``.

        A store with conditional deletes checks that itself, and answers ``NEWER`` for an object that was written again.
        Other stores delete what the key names.
        """
        return self.delete_many([target.key for target in targets], window)

    def find_versions(self, targets: Sequence[VersionedTarget]) -> Versions:
        """Return every version and delete marker of each object, in the order of ``targets``.

        An object ``is_newer`` if it has a version later than permitted, or another current version than was seen.
        """
        return [ObjectVersions(target) for target in targets]

    def delete_versions(self, versions: Sequence[ObjectVersions], window: DeleteWindow | None = None) -> Deletions:
        """Delete the listed versions permanently, and no version that was written after they were listed.

        As ``delete_many``, but ``LOCKED`` for an object with a locked version, and ``NEWER`` if ``is_newer``.
        """
        keys = [each.target.key for each in versions]
        seen = [each.target.key for each in versions if each.target.seen]
        answers = {answer.key: answer for answer in self.delete_many(seen, window)}
        return [answers.get(key) or Deletion.of(key, "") for key in keys]

    def count_versions(self, keys: Sequence[str]) -> dict[str, int]:
        """Return how many copies are listed of each object beside the current one: versions, and deleted copies.

        The store is asked whatever its settings are: versions stay when their setting is switched off. Raises an error
        also if the list lacks an object that exists, one of ``keys`` or, if nothing is listed, any. A folder
        keeps none.
        """
        return {}

    def unfinished_of(self, keys: Sequence[str]) -> dict[str, UnfinishedWrites]:
        """Return, for each key that has any, the writes that may be of this object and have not ended.

        An upload is certainly of it. A temporary file is of some object of its folder. A key that the store cannot have
        is omitted. Stores without such a list return nothing, and discard what there is after a week.
        """
        return {}

    def unfinished_below(self, prefix: str = "") -> Iterator[UnfinishedWrite]:
        """Yield the writes below a prefix that have not ended.

        MinIO lists uploads for the whole key of an object only, and here yields nothing.
        """
        yield from ()

    def discard(self, writes: Iterable[UnfinishedWrite]) -> None:  # noqa: B027 - other stores find none
        """Remove writes that have not ended. A program that is still writing gets an error from its store.

        A write that has ended meanwhile is no error here.
        """

    @abstractmethod
    def now(self) -> datetime:
        """Return the time of the store's own clock, in UTC."""

    def space_not_freed(self) -> str:
        """Return why a delete frees no space, e.g. because the bucket keeps versions; empty if it frees space.

        Raise ``AccessDeniedError`` if the credentials do not permit the question.
        """
        return ""

    def read(self, key: str) -> bytes:
        """Return the whole content of one object. Raise ``ObjectNotFoundError``."""
        for _, data in self.read_many([key]):
            return data
        raise AssertionError("unreachable")  # read_many yields or raises
