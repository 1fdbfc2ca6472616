"""Azure Blob Storage as an object store."""

from __future__ import annotations

import base64
import hashlib
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from io import BytesIO
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.errors import AccessDeniedError, ConfigurationError, ObjectNotFoundError, StorageError
from lakefs_gc.storage.azure.access import blob_folder
from lakefs_gc.storage.azure.client import VERSION, Answer, AzureClient
from lakefs_gc.storage.azure.content import checksums_of, copy_blob, facts_of, is_same, is_taken
from lakefs_gc.storage.azure.delete import Target, delete_targets
from lakefs_gc.storage.azure.errors import AZURE_FAILURES, IncompleteAnswerError, RefusedError
from lakefs_gc.storage.azure.listing import Page, hierarchical_error, parse_page
from lakefs_gc.storage.azure.settings import is_hierarchical, space_not_freed
from lakefs_gc.storage.azure.versions import count_versions
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
from lakefs_gc.storage.keys import check_key, check_prefix
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.pace import RequestLimit
from lakefs_gc.storage.process_client import ProcessClient
from lakefs_gc.storage.retry import RetryPolicy

logger = logging.getLogger(__name__)

Blocks = list[str]
"""For annotations in a class that has a method named ``list``."""

_BLOCK_BYTES = 8 * 1024**2
_MOST_BLOCKS = 45_000  # Azure takes 50,000
_AFTER_ALL = "\U0010ffff"


class AzureStore(ObjectStore):
    """A folder of a container.

    Each process creates its client when it first needs one, so a store may be used after a fork.
    """

    def __init__(self, location: StoreLocation, retry: RetryPolicy | None = None) -> None:
        """Raise ``ConfigurationError`` for a URL without an account or container, or with a path that is no folder."""
        self.location = location
        self.retry = retry or RetryPolicy()
        self.folder = blob_folder(location.url)
        self.root = self.folder.root
        self._azure = ProcessClient(partial(AzureClient, self.folder, self.retry))
        self._starts_at_name: bool | None = None

    @property
    def lists_by_page(self) -> bool:  # type: ignore[override]
        """Whether a listing can start at a name. The first call in a process asks the account with one request."""
        if self._starts_at_name is None:
            self._starts_at_name = self._asks_whether_it_starts_at_name()
        return self._starts_at_name

    def _asks_whether_it_starts_at_name(self) -> bool:
        # A name after all others: an account that ignores the parameter returns the first blob.
        query = {"prefix": self.root, "startFrom": self.root + _AFTER_ALL, "maxresults": "1"}
        try:
            page = self._page(query)
        except StorageError as error:
            if error.transient or isinstance(error, AccessDeniedError | ObjectNotFoundError):
                raise
            why = error.message
        else:
            if self._azure().version != VERSION:
                return False  # the client has said so
            if not (page.objects.num_rows or page.sub_prefixes or page.next_marker):
                return True
            why = "it ignores startFrom"
        logger.warning("%s is listed page after page, not in parallel: %s", self.location.folder_url, why)
        return False

    # -- listing ---------------------------------------------------------------------------------------------

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[pa.RecordBatch]:
        pages = self.pages(prefix, start_after=check_prefix(start_after))
        return (page.objects for page in pages if page.objects.num_rows)

    def list_level(self, prefix: str = "") -> tuple[SubPrefixes, pa.RecordBatch]:
        if check_prefix(prefix) and not prefix.endswith("/"):
            raise ConfigurationError(f"The prefix of a level must end in '/': {prefix!r}", remedy="Add the '/'")
        sub_prefixes: SubPrefixes = []
        objects = []
        for page in self._pages(prefix, delimiter="/"):
            sub_prefixes += page.sub_prefixes
            objects.append(page.objects)
        return sub_prefixes, pa.concat_batches(objects)

    def pages(
        self, prefix: str, *, start_after: str = "", until: str = "", one_level: bool = False
    ) -> Iterator[ListingPage]:
        """See ``ObjectStore``. One request per page."""
        pages = self._pages(check_prefix(prefix), start_after=start_after, delimiter="/" if one_level else "")
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
        return sum(client.slow_downs for client in self._azure.created)

    def limit_requests(self, per_second: float) -> None:
        """See ``ObjectStore``."""
        azure = self._azure()
        if per_second != (azure.limit.per_second if azure.limit else 0):
            azure.limit = RequestLimit(per_second) if per_second else None

    def _pages(
        self, prefix: str, *, start_after: str = "", delimiter: str = "", max_results: int = 0
    ) -> Iterator[Page]:
        """Yield all pages below a prefix; an incomplete page is requested again, and finally raises an error."""
        self._require_flat()
        query = {"prefix": self.root + prefix}
        if start_after and self.lists_by_page:
            query["startFrom"] = self.root + start_after
        if delimiter:
            query["delimiter"] = delimiter
        if max_results:
            query["maxresults"] = str(max_results)
        seen: set[str] = set()
        last_name = b""
        while True:
            page = self._page(query, last_name)
            yield page
            if not page.next_marker:
                return
            if page.next_marker in seen:
                raise StorageError(
                    f"{self.location.folder_url}{prefix}: the store's listing repeats a marker, so it never ends",
                    remedy="Report it to the vendor of the store. Nothing was deleted",
                )
            seen.add(page.next_marker)
            query["marker"] = page.next_marker
            last_name = page.last_name or last_name

    def _page(self, query: Mapping[str, str], after: bytes = b"") -> Page:
        azure, account, prefix = self._azure(), self.folder.account, query["prefix"]
        complete = {"restype": "container", "comp": "list", **query}
        return azure.call(
            lambda: parse_page(azure.send("GET", query=complete).body, self.root, account, after, prefix),
            action="list",
            key=prefix,
        )

    # -- reading ---------------------------------------------------------------------------------------------

    def read_many(self, keys: Iterable[str], *, concurrency: int = 16) -> Iterator[tuple[str, bytes]]:
        self._azure()
        return map_unordered(self._read, keys, concurrency)

    def _read(self, key: str) -> bytes:
        azure, name = self._azure(), self._name(key)
        return azure.call(lambda: _whole(azure.send("GET", name)), action="read", key=name)

    def read_end(self, key: str, size_bytes: int) -> bytes:
        """See ``ObjectStore``. A HEAD and a GET: Azure has no range that counts from the end."""
        azure, name = self._azure(), self._name(key)
        head = azure.head(name)
        length = int(head["Content-Length"])
        if not length:
            return b""
        headers = {"x-ms-range": f"bytes={max(0, length - size_bytes)}-", "If-Match": head["ETag"]}
        return azure.call(lambda: _whole(azure.send("GET", name, headers=headers)), action="read", key=name)

    def stat_many(self, keys: Sequence[str], *, concurrency: int = 16) -> dict[str, ObjectInfo]:
        """See ``ObjectStore``. One HEAD per key."""
        heads = self._heads(keys, concurrency)
        return {key: _info(head) for key, head in heads if head is not None}

    def content_md5(self, keys: Sequence[str], *, concurrency: int = 16) -> dict[str, str]:
        """See ``ObjectStore``. One HEAD per key."""
        known = ((key, checksums_of(head).get("md5")) for key, head in self._heads(keys, concurrency) if head)
        return {key: md5 for key, md5 in known if md5}

    def _heads(self, keys: Sequence[str], concurrency: int) -> Iterator[tuple[str, Mapping[str, str] | None]]:
        azure = self._azure()
        names = {key: self._name(key) for key in keys}  # before any request: one of them may leave the folder
        return map_unordered(lambda key: azure.head_or_none(names[key]), keys, concurrency)

    @contextmanager
    def open_read(self, key: str) -> Iterator[BinaryIO]:
        azure, name = self._azure(), self._name(key)
        answer = azure.call(lambda: azure.send("GET", name, as_stream=True), action="read", key=name)
        try:
            with closing(answer.stream) as body:
                yield cast(BinaryIO, body)
        except AZURE_FAILURES as error:  # the stream broke while it was read
            raise azure.explain(error, action="read", key=name) from error

    # -- writing ---------------------------------------------------------------------------------------------

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """See ``ObjectStore``. ``if_absent`` is one request, and atomic."""
        if len(data) > _BLOCK_BYTES:
            return self.put_stream(key, BytesIO(data), if_absent=if_absent, size_bytes=len(data))
        md5 = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        headers = {"x-ms-blob-type": "BlockBlob", "Content-MD5": md5}
        facts = ContentFacts(len(data), {"md5": base64.b64decode(md5).hex()})
        return self._create(self._name(key), {}, headers, data, facts, if_absent)

    def put_stream(self, key: str, source: BinaryIO, *, if_absent: bool = False, size_bytes: int = 0) -> bool:
        """See ``ObjectStore``. A stream is uploaded in blocks, which become a blob together in the last request.

        ``if_absent`` is part of that request, and atomic. Azure discards the blocks of a failed upload after a week.
        """
        name, upload = self._name(key), uuid.uuid4().hex
        block_bytes = max(_BLOCK_BYTES, -(-size_bytes // _MOST_BLOCKS))
        md5, length = hashlib.md5(usedforsecurity=False), 0
        blocks: Blocks = []
        while block := _read_block(source, block_bytes):
            # Blocks belong to the name, so those of simultaneous uploads must have different ids of the same length.
            blocks.append(base64.b64encode(f"{upload}-{len(blocks):06d}".encode()).decode())
            self._put_block(name, blocks[-1], block)
            md5.update(block)
            length += len(block)
        entries = "".join(f"<Latest>{block_id}</Latest>" for block_id in blocks)
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{entries}</BlockList>'.encode()
        headers = {
            "Content-Type": "application/xml",
            "x-ms-blob-content-md5": base64.b64encode(md5.digest()).decode(),
            "x-ms-blob-content-type": "application/octet-stream",
        }
        facts = ContentFacts(length, {"md5": md5.hexdigest()})
        return self._create(name, {"comp": "blocklist"}, headers, body, facts, if_absent)

    def _put_block(self, name: str, block_id: str, block: bytes) -> None:
        azure = self._azure()
        md5 = base64.b64encode(hashlib.md5(block, usedforsecurity=False).digest()).decode()
        query = {"comp": "block", "blockid": block_id}
        azure.call(
            lambda: azure.send("PUT", name, query=query, headers={"Content-MD5": md5}, data=block),
            action="write",
            key=name,
        )

    def _create(
        self,
        name: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        data: bytes,
        facts: ContentFacts,
        if_absent: bool,
    ) -> bool:
        """Send the request that creates a blob; return False if another exists and ``if_absent`` is set."""
        azure = self._azure()
        condition = {"If-None-Match": "*"} if if_absent else {}
        tries = 0

        def create() -> bool:
            nonlocal tries
            tries += 1
            try:
                azure.send("PUT", name, query=query, headers={**headers, **condition}, data=data)
            except RefusedError as error:
                if not (if_absent and is_taken(error)):
                    raise
                return False
            return True

        if azure.call(create, action="write", key=name):
            return True
        # After a broken connection the existing blob may be from an earlier try.
        return tries > 1 and is_same(facts_of(azure.head(name)), facts)

    def content_facts(self, key: str) -> ContentFacts | None:
        """See ``ObjectStore``. One HEAD."""
        head = self._azure().head_or_none(self._name(key))
        return None if head is None else facts_of(head)

    def copy_to(self, key: str, destination: ObjectStore, destination_key: str, *, if_absent: bool = False) -> bool:
        """See ``ObjectStore``. Within one account the service copies, otherwise the blob is streamed."""
        azure, name = self._azure(), self._name(key)
        if isinstance(destination, AzureStore):
            target, target_name = destination._azure(), destination._name(destination_key)
            if target.endpoint == azure.endpoint:
                copied = copy_blob(azure, name, azure.head(name), target, target_name, if_absent=if_absent)
                if copied is not None:
                    return copied
        return super().copy_to(key, destination, destination_key, if_absent=if_absent)

    # -- deleting --------------------------------------------------------------------------------------------

    def delete_many(self, keys: Sequence[str], window: DeleteWindow | None = None) -> Deletions:
        """See ``ObjectStore``. One request per 256 keys; if it raises, some keys may already be deleted."""
        return self._delete(keys, [Target(self._name(key)) for key in keys], window)

    def delete_unchanged(self, targets: Sequence[VersionedTarget], window: DeleteWindow | None = None) -> Deletions:
        """See ``ObjectStore``. By the ETag or, if a listing showed the object, by the time of its last change."""
        blobs = [
            Target(self._name(target.key), target.seen.e_tag, target.seen.last_modified)
            if target.seen
            else Target(self._name(target.key))
            for target in targets
        ]
        return self._delete([target.key for target in targets], blobs, window)

    def _delete(self, keys: Sequence[str], blobs: Sequence[Target], window: DeleteWindow | None) -> Deletions:
        self._require_flat()
        outcomes = delete_targets(self._azure(), blobs, window)
        answers = zip(keys, (outcomes[blob.name] for blob in blobs), strict=True)
        return [Deletion(key, answer.outcome, answer.error) for key, answer in answers]

    def find_versions(self, targets: Sequence[VersionedTarget]) -> Versions:
        """Raise ``ConfigurationError``: the deletion of versions is not supported here."""
        raise ConfigurationError(
            "sweep.delete_versions is set, but lakefs-gc does not delete versions of blobs in Azure Blob Storage",
            remedy="Set sweep.delete_versions to false, and let a rule of the account's lifecycle management delete "
            "earlier versions",
        )

    def count_versions(self, keys: Sequence[str]) -> dict[str, int]:
        others = (self._name(key) for batch in self.list("") for key in batch.column("address").to_pylist())
        counts = count_versions(self._azure(), [self._name(key) for key in keys], others)
        return {name[len(self.root) :]: count for name, count in counts.items()}

    def _require_flat(self) -> None:
        """Raise ``ConfigurationError`` for an account with a hierarchical namespace, if it is known to be one."""
        azure = self._azure()
        if azure.is_hierarchical is None:
            azure.is_hierarchical = bool(is_hierarchical(azure))  # unknown: each page of a listing shows it
        if azure.is_hierarchical:
            raise hierarchical_error(self.folder.account)

    # -- facts about the store -------------------------------------------------------------------------------

    def now(self) -> datetime:
        """See ``ObjectStore``. The ``Date`` header of a listing of one blob."""
        azure = self._azure()
        query = {"restype": "container", "comp": "list", "prefix": self.root, "maxresults": "1"}
        answer = azure.call(lambda: azure.send("GET", query=query), action="list", key=self.root)
        try:
            return parsedate_to_datetime(answer.headers["Date"]).astimezone(UTC)
        except (KeyError, ValueError) as error:
            raise StorageError(
                f"{self.location.folder_url}: the store's answer has no valid Date header, so its clock is unknown",
                remedy="Configure the store, or the proxy in front of it, to send the Date header",
            ) from error

    def space_not_freed(self) -> str:
        """See ``ObjectStore``. Needs to read the settings of the account and of the container."""
        return space_not_freed(self._azure())

    # -- helpers ---------------------------------------------------------------------------------------------

    def _name(self, key: str) -> str:
        return self.root + check_key(key)


def _after(objects: pa.RecordBatch, start_after: str) -> pa.RecordBatch:
    """Return the objects after ``start_after``: a listing starts at that name, or at the first of all."""
    return objects.filter(pc.greater(objects["address"], start_after)) if start_after else objects


def _whole(answer: Answer) -> bytes:
    """Return the body of an answer. Raise an error if it is shorter than announced."""
    announced = answer.headers.get("Content-Length")
    if announced is None or len(answer.body) != int(announced):
        raise IncompleteAnswerError(f"the content has {len(answer.body)} bytes, and {announced} were announced")
    return answer.body


def _read_block(source: BinaryIO, size_bytes: int) -> bytes:
    """Read a whole block: a stream may return less than requested before its end."""
    parts, missing = [], size_bytes
    while missing and (part := source.read(missing)):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _info(head: Mapping[str, str]) -> ObjectInfo:
    return ObjectInfo(
        size_bytes=int(head["Content-Length"]),
        last_modified=parsedate_to_datetime(head["Last-Modified"]).astimezone(UTC),
        e_tag=head["ETag"].strip('"'),
    )
