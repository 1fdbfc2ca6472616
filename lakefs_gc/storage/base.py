"""The interface to an object store: what the collector needs of one, and nothing else.

A store is opened at a folder (a lakeFS storage namespace, or a prefix above it); all keys are relative to
that folder, exactly as the store has them: no URL decoding, no Unicode normalisation. A store that is open
never leaves its folder: a key that is empty, absolute or holds a ``..`` or ``.`` part is refused with
``NamespaceError``.

Clients hold sockets and threads that survive neither a fork nor pickling: pass a ``StoreLocation`` to a
Spark worker and open the store there.
"""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.errors import StoreUnavailableError
from lakefs_gc.storage.delete_window import DeleteWindow
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy

LISTING_SCHEMA = pa.schema(
    [
        pa.field("address", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("last_modified", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
"""Columns of a listing: the key relative to the store's folder, its size in bytes, when it was last
modified.
"""


@dataclass(frozen=True)
class ListingPage:
    """A part of a listing: objects of ``LISTING_SCHEMA``, and the folders of the level that came along with them."""

    objects: pa.RecordBatch
    sub_prefixes: list[str]


@dataclass(frozen=True)
class ObjectInfo:
    """An object that exists: size in bytes, ETag without quotes (empty where the store has none)."""

    size_bytes: int
    last_modified: datetime
    e_tag: str


@dataclass(frozen=True)
class Doomed:
    """An object to delete with all its versions: what was seen of it (None: not there), and how new one may be."""

    key: str
    seen: ObjectInfo | None
    newest: datetime


@dataclass(frozen=True)
class FoundVersions:
    """What is to be deleted of an object: the ids of its versions and delete markers, none where the store has no such.

    ``is_newer``: something was written since, so nothing of it is to be deleted.
    """

    doomed: Doomed
    ids: tuple[str, ...] = ()
    is_newer: bool = False


@dataclass(frozen=True)
class ContentFacts:
    """What a store itself says of an object's content: size in bytes, and checksums of the whole of it.

    ``checksums`` is by algorithm: ``md5`` and ``sha256`` in hex, others (``crc64nvme``) as the store writes them.
    Empty where the store has none, or none that is certain.
    """

    size_bytes: int
    checksums: Mapping[str, str]


class DeletionOutcome(StrEnum):
    """What the store itself answered for one key."""

    DELETED = "deleted"
    FAILED = "failed"
    LOCKED = "locked"
    """An object lock or a legal hold keeps it."""
    NEWER = "newer"
    """It was written again: nothing of it was deleted."""


@dataclass(frozen=True)
class Deletion:
    """The outcome of one key; ``error`` is the store's code and message when it failed, else empty."""

    key: str
    outcome: DeletionOutcome
    error: str = ""

    @classmethod
    def of(cls, key: str, error: str) -> Deletion:
        """``FAILED`` with that error, or ``DELETED`` when it is empty."""
        return cls(key, DeletionOutcome.FAILED if error else DeletionOutcome.DELETED, error)


SubPrefixes = list[str]
"""For annotations in the classes below, where ``list`` is a method."""

Deletions = list[Deletion]
Versions = list[FoundVersions]


class ObjectStore(ABC):
    """A folder of an object store.

    Every method raises ``AccessDeniedError``, ``StoreUnavailableError`` (after its retries) or
    ``StorageError``. Requests that fail for a while (5xx, 429, SlowDown, broken connections) are retried
    with backoff and are no failure. Methods may be called from several threads of the process that opened
    the store.
    """

    location: StoreLocation

    lists_by_page = False
    """Whether each page of a listing is a request, and a level may be listed from any of its names on."""

    @property
    def slow_downs(self) -> int:
        """How often the store asked this process to slow down, so far."""
        return 0

    def limit_requests(self, per_second: float) -> None:  # noqa: B027 - nothing to limit, unless a store has requests
        """Ask at most so many requests in a second, on average, from this process; 0 is no limit.

        Stores that are no service have no limit.
        """

    @abstractmethod
    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[pa.RecordBatch]:
        """All objects whose key starts with ``prefix`` and sorts after ``start_after``, at any depth.

        Batches of ``LISTING_SCHEMA``, at most a few tens of thousands of rows each; in UTF-8 byte order of
        the key on S3, in any order on a local folder and on some stores that imitate S3 (SeaweedFS walks
        folders: with ``start_after`` in the middle of a folder it may pass over keys that byte order puts
        later; whole slices are safe). Keys that end in ``/`` (directory markers) are left out. A prefix
        with nothing below it gives no batch; a bucket or local folder that does not exist raises
        ``ObjectNotFoundError``.
        """

    @abstractmethod
    def list_level(self, prefix: str = "") -> tuple[SubPrefixes, pa.RecordBatch]:
        """One level: the sub-prefixes below ``prefix`` (each ends in ``/``), and the objects directly at it.

        ``prefix`` is empty or ends in ``/``. Sub-prefixes are whole (``data/<slice>/`` for ``data/``).
        """

    def pages(self, prefix: str, *, start_after: str = "", one_level: bool = False) -> Iterator[ListingPage]:
        """``list``, or with ``one_level`` ``list_level``, piece by piece as the store gives it.

        ``start_after`` is for ``one_level``: on S3 objects come in the order of their keys then. With it, stores
        that are not ``lists_by_page`` may be slow.
        """
        if one_level:
            sub_prefixes, objects = self.list_level(prefix)
            yield ListingPage(objects.filter(pc.greater(objects["address"], start_after)), sub_prefixes)
            return
        for batch in self.list(prefix, start_after=start_after):
            yield ListingPage(batch, [])

    def first_name_after(self, prefix: str, start_after: str) -> str | None:
        """The first key or folder (without its final slash) of the level ``prefix`` after ``start_after``.

        Only where ``lists_by_page``; a hint where to cut a listing, and nothing more.
        """
        raise NotImplementedError

    @abstractmethod
    def read_many(self, keys: Iterable[str], *, concurrency: int = 16) -> Iterator[tuple[str, bytes]]:
        """Key and whole content of each object, in any order, ``concurrency`` requests at once, few held in
        memory.

        Raises ``ObjectNotFoundError`` for the first key that does not exist.
        """

    @abstractmethod
    def stat_many(self, keys: Sequence[str], *, concurrency: int = 16) -> dict[str, ObjectInfo]:
        """Facts about each object that exists; a key that does not exist is left out of the answer."""

    @abstractmethod
    def content_md5(self, keys: Sequence[str], *, concurrency: int = 16) -> dict[str, str]:
        """MD5 (32 hex digits, lower case) of the content of each object of which it is known for certain.

        Left out of the answer: objects that do not exist, and those whose ETag may be something else.
        """

    @abstractmethod
    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Write a whole object, atomically. With ``if_absent`` return False, and write nothing, if it
        exists.
        """

    @abstractmethod
    def open_read(self, key: str) -> AbstractContextManager[BinaryIO]:
        """One object as a stream, for those too large to hold. Raises ``ObjectNotFoundError``.

        A stream that breaks raises; it never just ends early.
        """

    @abstractmethod
    def read_end(self, key: str, size_bytes: int) -> bytes:
        """The last bytes of one object; all of them if there are fewer. Raises ``ObjectNotFoundError``."""

    @abstractmethod
    def put_stream(self, key: str, source: BinaryIO, *, if_absent: bool = False, size_bytes: int = 0) -> bool:
        """Write a whole object from a stream, atomically: nothing is written if ``source`` raises.

        ``size_bytes`` is how much about to expect, where that is known: stores cut large objects into parts by it.
        With ``if_absent`` return False, and write nothing, if it exists. On S3 that is a HEAD before the upload: of
        two writers in the same moment both may be told True.
        """

    def content_facts(self, key: str) -> ContentFacts | None:
        """What the store says of an object's content, without reading it; None when it does not exist."""
        info = self.stat_many([key]).get(key)
        return ContentFacts(info.size_bytes, {}) if info else None

    def copy_to(self, key: str, destination: ObjectStore, destination_key: str, *, if_absent: bool = False) -> bool:
        """Copy one object: by the store itself where both are one kind and place, else by streaming.

        Raises ``ObjectNotFoundError``. The destination has the object whole, or not at all. With ``if_absent``
        return False, and write nothing, if it exists.
        """
        retry = RetryPolicy()
        facts = self.stat_many([key]).get(key)
        for failures in itertools.count(1):
            try:
                with self.open_read(key) as source:
                    size_bytes = facts.size_bytes if facts else 0
                    return destination.put_stream(destination_key, source, if_absent=if_absent, size_bytes=size_bytes)
            except StoreUnavailableError:  # the stream broke on its way: once more from the start
                if failures >= retry.tries:
                    raise
                time.sleep(retry.pause_seconds(failures))
        raise AssertionError("unreachable")

    @abstractmethod
    def delete_many(self, keys: Sequence[str], window: DeleteWindow | None = None) -> Deletions:
        """Delete, and say for each key, in the order given, what the store answered.

        Deleting a key that does not exist succeeds (``DELETED``): stores do not tell the difference. One key
        that makes the store refuse a whole batch is isolated and is the only one to fail. Asking to slow
        down is no failure: it is waited out.

        ``window`` is asked just before each try, also of a part of the keys: once it is over, what is left is
        ``FAILED`` and not tried. Its ``unanswered`` is set when the end of a try is not known.
        """

    def find_versions(self, doomed: Sequence[Doomed]) -> Versions:
        """Every version and delete marker of each object, where the store keeps such, in the order given.

        ``is_newer`` is one with a version that is newer than it may be, or with another current version than was seen.
        """
        return [FoundVersions(each) for each in doomed]

    def delete_versions(self, found: Sequence[FoundVersions], window: DeleteWindow | None = None) -> Deletions:
        """Delete what ``find_versions`` found, for good, and nothing that was written after that.

        Otherwise as ``delete_many``; ``LOCKED`` for an object with a version that a lock holds, and ``NEWER`` for one
        that ``is_newer``.
        """
        keys = [each.doomed.key for each in found]
        seen = [each.doomed.key for each in found if each.doomed.seen]
        answers = {answer.key: answer for answer in self.delete_many(seen, window)}
        return [answers.get(key) or Deletion.of(key, "") for key in keys]

    @abstractmethod
    def now(self) -> datetime:
        """The time on the store's own clock, UTC."""

    def keeps_deleted_bytes(self) -> str:
        """Why the bytes of a deleted object stay, e.g. because the bucket keeps versions; empty when they go.

        Raises ``AccessDeniedError`` when the credentials do not allow to ask.
        """
        return ""

    def read(self, key: str) -> bytes:
        """Whole content of one object. Raises ``ObjectNotFoundError``."""
        for _, data in self.read_many([key]):
            return data
        raise AssertionError("read_many gave no answer")  # unreachable: it yields or raises
