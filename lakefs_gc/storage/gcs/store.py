"""Google Cloud Storage as an object store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from io import BytesIO
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.errors import ConfigurationError, StorageError
from lakefs_gc.storage.base import (
    ContentFacts,
    Deletion,
    Deletions,
    ListingPage,
    ObjectInfo,
    ObjectStore,
    SubPrefixes,
    VersionedTarget,
    Versions,
)
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.delete_window import DeleteWindow
from lakefs_gc.storage.gcs.access import bucket_folder, emulator_endpoint
from lakefs_gc.storage.gcs.client import Answer, GCSClient
from lakefs_gc.storage.gcs.content import (
    PART_BYTES,
    Resource,
    checksums_of,
    copy_object,
    facts_of,
    find_object,
    read_part,
    updated_at,
    upload,
    upload_stream,
)
from lakefs_gc.storage.gcs.delete import Target, delete_targets
from lakefs_gc.storage.gcs.errors import GCS_FAILURES, IncompleteAnswerError, RefusedError
from lakefs_gc.storage.gcs.listing import FIELDS, Page, parse_page
from lakefs_gc.storage.gcs.lookup import find_objects
from lakefs_gc.storage.gcs.settings import space_not_freed
from lakefs_gc.storage.gcs.versions import count_versions
from lakefs_gc.storage.keys import check_key, check_prefix
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.pace import RequestLimit
from lakefs_gc.storage.process_client import ProcessClient
from lakefs_gc.storage.retry import RetryPolicy

_PAGE_ENTRIES = 1000
"""The maximum of the service."""
_JUST_AFTER = "!"
"""Behind a name, this is later than the name, and earlier than all objects of a folder of this name."""


class GCSStore(ObjectStore):
    """A folder of a bucket. The ETag of an object is its generation, which names the version of its content.

    Each process creates its client when it first needs one, so a store may be used after a fork.
    """

    def __init__(self, location: StoreLocation, retry: RetryPolicy | None = None) -> None:
        """Raise ``ConfigurationError`` for a URL without a bucket, or with a path that is no folder."""
        self.location = location
        self.retry = retry or RetryPolicy()
        self.folder = bucket_folder(location.url)
        self.root = self.folder.root
        self._client = ProcessClient(partial(GCSClient, self.folder, self.retry))
        # Emulators return all folders of a level with its first page, so what follows is not in order.
        self.lists_by_page = not emulator_endpoint()

    # -- listing ---------------------------------------------------------------------------------------------

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[pa.RecordBatch]:
        pages = self.pages(prefix, start_after=check_prefix(start_after))
        return (page.objects for page in pages if page.objects.num_rows)

    def list_level(self, prefix: str = "") -> tuple[SubPrefixes, pa.RecordBatch]:
        if check_prefix(prefix) and not prefix.endswith("/"):
            raise ConfigurationError(f"The prefix of a level must end in '/': {prefix!r}", remedy="Add the '/'")
        sub_prefixes: dict[str, None] = {}
        objects = []
        for page in self._pages(prefix, delimiter="/"):
            sub_prefixes.update(dict.fromkeys(page.sub_prefixes))
            objects.append(page.objects)
        return [*sub_prefixes], pa.concat_batches(objects)

    def pages(
        self, prefix: str, *, start_after: str = "", until: str = "", one_level: bool = False
    ) -> Iterator[ListingPage]:
        """See ``ObjectStore``. One request per page."""
        delimiter = "/" if one_level else ""
        pages = self._pages(check_prefix(prefix), start_after=start_after, until=until, delimiter=delimiter)
        return (ListingPage(_after(page.objects, start_after), page.sub_prefixes) for page in pages)

    def first_name_after(self, prefix: str, start_after: str) -> str | None:
        """See ``ObjectStore``. One request, or a few."""
        # Two names: the first may be start_after itself.
        for page in self._pages(check_prefix(prefix), start_after=start_after, delimiter="/", max_results=2):
            names = page.objects["address"].to_pylist() + [name[:-1] for name in page.sub_prefixes]
            if later := [name for name in names if name > start_after]:
                return str(min(later))
        return None

    @property
    def slow_downs(self) -> int:
        """See ``ObjectStore``."""
        return sum(client.slow_downs for client in self._client.created)

    def limit_requests(self, per_second: float) -> None:
        """See ``ObjectStore``."""
        client = self._client()
        if per_second != (client.limit.per_second if client.limit else 0):
            client.limit = RequestLimit(per_second) if per_second else None

    def _pages(
        self,
        prefix: str,
        *,
        start_after: str = "",
        until: str = "",
        delimiter: str = "",
        max_results: int = _PAGE_ENTRIES,
    ) -> Iterator[Page]:
        """Yield all pages below a prefix; an incomplete page is requested again, and finally raises an error."""
        query = {
            "prefix": self.root + prefix,
            "maxResults": str(max_results),
            "fields": FIELDS,
            "prettyPrint": "false",
        }
        if start_after:
            query["startOffset"] = self.root + start_after
        if until:
            query["endOffset"] = self.root + until + _JUST_AFTER  # the end itself is not listed
        if delimiter:
            query["delimiter"] = delimiter
        seen: set[str] = set()
        last_name = ""
        while True:
            page = self._page(query, last_name)
            yield page
            if not page.next_token:
                return
            if page.next_token in seen:
                raise StorageError(
                    f"{self.location.folder_url}{prefix}: the store's listing repeats a token, so it never ends",
                    remedy="Report it to the vendor of the store. Nothing was deleted",
                )
            seen.add(page.next_token)
            query["pageToken"] = page.next_token
            last_name = page.last_name or last_name

    def _page(self, query: dict[str, str], after: str) -> Page:
        client, prefix = self._client(), query["prefix"]
        return client.call(
            lambda: parse_page(client.send("GET", client.listing_path, query=query), self.root, after, prefix),
            action="list",
            key=prefix,
        )

    # -- reading ---------------------------------------------------------------------------------------------

    def read_many(self, keys: Iterable[str], *, concurrency: int = 16) -> Iterator[tuple[str, bytes]]:
        self._client()
        return map_unordered(self._read, keys, concurrency)

    def _read(self, key: str) -> bytes:
        client, name = self._client(), self._name(key)
        return client.call(lambda: _whole(self._download(client, name)), action="read", key=name)

    def read_end(self, key: str, size_bytes: int) -> bytes:
        """See ``ObjectStore``. One request; a second one for an empty object, which has no range."""
        client, name = self._client(), self._name(key)

        def ask() -> bytes | None:
            try:
                return _whole(self._download(client, name, {"Range": f"bytes=-{size_bytes}"}))
            except RefusedError as error:
                if error.status != 416:
                    raise
                return None

        end = client.call(ask, action="read", key=name)
        if end is not None:
            return end
        if (facts := find_object(client, name)) and int(facts["size"]):
            raise StorageError(f"{client.where(name)}: the store refuses to read the end of the object")
        return b""

    @staticmethod
    def _download(client: GCSClient, name: str, headers: dict[str, str] | None = None) -> Answer:
        return client.send("GET", client.path(name), query={"alt": "media"}, headers=headers, as_stream=True)

    def stat_many(self, keys: Sequence[str], *, concurrency: int = 16) -> dict[str, ObjectInfo]:
        """See ``ObjectStore``. One request per 100 keys, or per key if there are few."""
        return {key: _info(facts) for key, facts in self._facts(keys, concurrency) if facts is not None}

    def content_md5(self, keys: Sequence[str], *, concurrency: int = 16) -> dict[str, str]:
        """See ``ObjectStore``. Requests as for ``stat_many``. Composite objects have no MD5."""
        known = ((key, checksums_of(facts).get("md5")) for key, facts in self._facts(keys, concurrency) if facts)
        return {key: md5 for key, md5 in known if md5}

    def _facts(self, keys: Sequence[str], concurrency: int) -> Iterator[tuple[str, Resource | None]]:
        names = [self._name(key) for key in keys]  # before any request: one of them may leave the folder
        found = find_objects(self._client(), names, concurrency)
        return ((name[len(self.root) :], facts) for name, facts in found)

    @contextmanager
    def open_read(self, key: str) -> Iterator[BinaryIO]:
        client, name = self._client(), self._name(key)
        answer = client.call(lambda: self._download(client, name), action="read", key=name)
        try:
            with closing(answer.stream) as body:
                if _announced(answer) is None:
                    raise IncompleteAnswerError("the answer does not announce the size of the content")
                yield cast(BinaryIO, body)
        except GCS_FAILURES as error:  # the stream broke while it was read
            raise client.explain(error, action="read", key=name) from error

    # -- writing ---------------------------------------------------------------------------------------------

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """See ``ObjectStore``. ``if_absent`` is a condition of the request, and atomic."""
        if len(data) > PART_BYTES:
            return self.put_stream(key, BytesIO(data), if_absent=if_absent, size_bytes=len(data))
        return upload(self._client(), self._name(key), data, if_absent=if_absent)

    def put_stream(self, key: str, source: BinaryIO, *, if_absent: bool = False, size_bytes: int = 0) -> bool:
        """See ``ObjectStore``. A long stream is a resumable upload, which Google discards after a week if it fails."""
        client, name = self._client(), self._name(key)
        first = read_part(source)
        if len(first) < PART_BYTES:
            return upload(client, name, first, if_absent=if_absent)
        return upload_stream(client, name, first, source, if_absent=if_absent)

    def content_facts(self, key: str) -> ContentFacts | None:
        """See ``ObjectStore``. One request."""
        facts = find_object(self._client(), self._name(key))
        return None if facts is None else facts_of(facts)

    def copy_to(self, key: str, destination: ObjectStore, destination_key: str, *, if_absent: bool = False) -> bool:
        """See ``ObjectStore``. Between buckets of Google the store copies, otherwise the object is streamed."""
        client, name = self._client(), self._name(key)
        if isinstance(destination, GCSStore):
            target, target_name = destination._client(), destination._name(destination_key)
            return copy_object(client, name, target, target_name, if_absent=if_absent)
        return super().copy_to(key, destination, destination_key, if_absent=if_absent)

    # -- deleting --------------------------------------------------------------------------------------------

    def delete_many(self, keys: Sequence[str], window: DeleteWindow | None = None) -> Deletions:
        """See ``ObjectStore``. One request per 100 keys; if it raises, some keys may already be deleted."""
        return self._delete(keys, [Target(self._name(key)) for key in keys], window)

    def delete_unchanged(self, targets: Sequence[VersionedTarget], window: DeleteWindow | None = None) -> Deletions:
        """See ``ObjectStore``. By the generation.

        If a listing showed the object, its generation is requested first, and must have the time that was seen.
        """
        objects = [
            Target(self._name(target.key), target.seen.e_tag, target.seen.last_modified)
            if target.seen
            else Target(self._name(target.key))
            for target in targets
        ]
        return self._delete([target.key for target in targets], objects, window)

    def _delete(self, keys: Sequence[str], objects: Sequence[Target], window: DeleteWindow | None) -> Deletions:
        outcomes = delete_targets(self._client(), objects, window)
        answers = zip(keys, (outcomes[target.name] for target in objects), strict=True)
        return [Deletion(key, answer.outcome, answer.error) for key, answer in answers]

    def find_versions(self, targets: Sequence[VersionedTarget]) -> Versions:
        """Raise ``ConfigurationError``: the deletion of versions is not supported here."""
        raise ConfigurationError(
            "sweep.delete_versions is set, but lakefs-gc does not delete versions in Google Cloud Storage",
            remedy="Set sweep.delete_versions to false, and let a lifecycle rule of the bucket delete noncurrent "
            "versions",
        )

    def count_versions(self, keys: Sequence[str]) -> dict[str, int]:
        """See ``ObjectStore``. What soft delete keeps is not listed: see ``space_not_freed``."""
        others = (self._name(key) for batch in self.list("") for key in batch.column("address").to_pylist())
        counts = count_versions(self._client(), [self._name(key) for key in keys], others)
        return {name[len(self.root) :]: count for name, count in counts.items()}

    # -- facts about the store -------------------------------------------------------------------------------

    def now(self) -> datetime:
        """See ``ObjectStore``. The ``Date`` header of a listing of one object."""
        client = self._client()
        query = {"prefix": self.root, "maxResults": "1", "fields": "kind"}
        answer = client.call(lambda: client.send("GET", client.listing_path, query=query), action="list", key=self.root)
        try:
            return parsedate_to_datetime(answer.headers["Date"]).astimezone(UTC)
        except (KeyError, ValueError) as error:
            raise StorageError(
                f"{self.location.folder_url}: the store's answer has no valid Date header, so its clock is unknown",
                remedy="Configure the store, or the proxy in front of it, to send the Date header",
            ) from error

    def space_not_freed(self) -> str:
        """See ``ObjectStore``. Needs to read the settings of the bucket."""
        return space_not_freed(self._client())

    # -- helpers ---------------------------------------------------------------------------------------------

    def _name(self, key: str) -> str:
        return self.root + check_key(key)


def _after(objects: pa.RecordBatch, start_after: str) -> pa.RecordBatch:
    """Return the objects after ``start_after``: a listing starts at that name, or at the first of all."""
    return objects.filter(pc.greater(objects["address"], start_after)) if start_after else objects


def _announced(answer: Answer) -> int | None:
    """Return the announced size of the body, in bytes; None if there is none."""
    text = answer.headers.get("Content-Length", "")
    return int(text) if text.isdecimal() else None


def _whole(answer: Answer) -> bytes:
    """Read the body of an answer. Raise an error if it is shorter than announced, or if its size is not announced."""
    with closing(answer.stream) as stream:
        body: bytes = stream.read(decode_content=False)
    if _announced(answer) != len(body):
        raise IncompleteAnswerError(f"the content has {len(body)} bytes, and {_announced(answer)} were announced")
    return body


def _info(facts: Resource) -> ObjectInfo:
    return ObjectInfo(size_bytes=int(facts["size"]), last_modified=updated_at(facts), e_tag=str(facts["generation"]))
