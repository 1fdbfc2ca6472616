"""S3, and every store with an S3-compatible API."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
from botocore.exceptions import ClientError

from lakefs_gc.errors import ConfigurationError, ObjectNotFoundError, StorageError
from lakefs_gc.storage.base import (
    ContentFacts,
    Deletion,
    Deletions,
    ListingPage,
    ObjectInfo,
    ObjectStore,
    ObjectVersions,
    SubPrefixes,
    UnfinishedWrite,
    UnfinishedWrites,
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
from lakefs_gc.storage.s3.checksums import checksums_of, content_facts
from lakefs_gc.storage.s3.client import RAW_PAGE, S3_FAILURES, RetryingClient
from lakefs_gc.storage.s3.copy import CopyLimits, copy_object
from lakefs_gc.storage.s3.delete import delete_keys
from lakefs_gc.storage.s3.errors import http_status, is_unknown_condition
from lakefs_gc.storage.s3.listing import Page, parse_page
from lakefs_gc.storage.s3.shared_clients import shared_client
from lakefs_gc.storage.s3.uploads import abort_uploads, parts_of, stream_config, upload_new, uploads_below, uploads_of
from lakefs_gc.storage.s3.versions import count_versions, delete_versions, deletion, find_versions, space_not_freed

SCHEME = "s3://"
_LIST_PARAMETERS = {
    "prefix": "Prefix",
    "encoding-type": "EncodingType",
    "start-after": "StartAfter",
    "delimiter": "Delimiter",
    "max-keys": "MaxKeys",
    "continuation-token": "ContinuationToken",
}
"""The names of the parameters of a listing, in a URL and in boto3, in the order in which boto3 writes them."""
_SSTABLE = re.compile(r"(?:\A|/)_lakefs/[0-9a-f]{64}\Z")
"""The key of a range or metarange, whose reader verifies the checksums inside."""


class S3Store(ObjectStore):
    """A folder of a bucket.

    Each process creates its client when it first needs one, so a store may be used after a fork.
    """

    lists_by_page = True
    deletes_versions = True

    def __init__(
        self, location: StoreLocation, retry: RetryPolicy | None = None, *, copy_limits: CopyLimits | None = None
    ) -> None:
        """Raise ``ConfigurationError`` for a URL without a bucket, or with a path that is not a plain folder."""
        self.location = location
        self.retry = retry or RetryPolicy()
        self.copy_limits = copy_limits or CopyLimits()
        self.bucket, self.root = _bucket_and_root(location)
        self._s3 = ProcessClient(partial(shared_client, self.bucket, self.retry))
        self._has_own_client = False

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
        return self._listing_pages(prefix, start_after, one_level=one_level)

    def quick_pages(
        self, prefix: str, *, start_after: str = "", until: str = "", one_level: bool = False
    ) -> Iterator[ListingPage]:
        """See ``ObjectStore``. One request per page."""
        return self._listing_pages(prefix, start_after, one_level=one_level, quick=True)

    def _listing_pages(
        self, prefix: str, start_after: str, *, one_level: bool, quick: bool = False
    ) -> Iterator[ListingPage]:
        delimiter = "/" if one_level else ""
        pages = self._pages(check_prefix(prefix), start_after=start_after, delimiter=delimiter, quick=quick)
        return (ListingPage(_after(page.objects, start_after), page.sub_prefixes) for page in pages)

    def first_name_after(self, prefix: str, start_after: str) -> str | None:
        """See ``ObjectStore``. One request."""
        for page in self._pages(check_prefix(prefix), start_after=start_after, delimiter="/", max_keys=1):
            names = page.objects["address"].to_pylist() + [name[:-1] for name in page.sub_prefixes]
            if names:
                return str(min(names)) if min(names) > start_after else None  # a store may ignore StartAfter
            if not page.next_token:
                break
        return None

    @property
    def slow_downs(self) -> int:
        """See ``ObjectStore``."""
        return sum(client.slow_downs for client in self._s3.created)

    def limit_requests(self, per_second: float) -> None:
        """See ``ObjectStore``."""
        if not self._has_own_client:
            self._s3 = ProcessClient(partial(RetryingClient, self.bucket, self.retry))
            self._has_own_client = True
        s3 = self._s3()
        if per_second != (s3.limit.per_second if s3.limit else 0):
            s3.limit = RequestLimit(per_second) if per_second else None

    def _pages(
        self, prefix: str, *, start_after: str = "", delimiter: str = "", max_keys: int = 0, quick: bool = False
    ) -> Iterator[Page]:
        """Yield all pages below a prefix; an incomplete page is requested again, and finally raises an error."""
        s3 = self._s3()
        gets = s3.quick_pages if quick else s3.pages
        query = {"list-type": "2", "prefix": self.root + prefix, "encoding-type": "url"}
        if start_after:
            query["start-after"] = self.root + start_after
        if delimiter:
            query["delimiter"] = delimiter
        if max_keys:
            query["max-keys"] = str(max_keys)
        seen: set[str] = set()
        while True:
            page = s3.call(
                lambda: parse_page(gets.get(lambda: self._list(s3, query), query=query), self.root, prefix),
                action="ListBucket",
                key=self.root + prefix,
            )
            yield page
            if not page.next_token:
                return
            if page.next_token in seen:
                raise StorageError(
                    f"{self.location.folder_url}{prefix}: the store's listing repeats a continuation token, so it "
                    "never ends",
                    remedy="Report it to the vendor of the store. Nothing was deleted",
                )
            seen.add(page.next_token)
            query["continuation-token"] = page.next_token

    def _list(self, s3: RetryingClient, query: Mapping[str, str]) -> bytes:
        parameters: Any = {parameter: query[name] for name, parameter in _LIST_PARAMETERS.items() if name in query}
        if "MaxKeys" in parameters:
            parameters["MaxKeys"] = int(parameters["MaxKeys"])
        return cast(bytes, s3.lister.list_objects_v2(Bucket=self.bucket, **parameters)[RAW_PAGE])

    # -- reading ---------------------------------------------------------------------------------------------

    def read_many(self, keys: Iterable[str], *, concurrency: int = 16) -> Iterator[tuple[str, bytes]]:
        self._s3()
        return map_unordered(self._read_one_of_many, keys, concurrency)

    def _read(self, key: str) -> bytes:
        s3, name = self._s3(), self._name(key)
        return s3.call(lambda: self._get(s3, name), action="GetObject", key=name)

    def _read_one_of_many(self, key: str) -> bytes:
        s3, name = self._s3(), self._name(key)
        if not _SSTABLE.search(name):
            return self._read(key)
        get = partial(s3.sstables.get, lambda: self._get(s3, name), name)
        return s3.call(get, action="GetObject", key=name)

    def _get(self, s3: RetryingClient, name: str) -> bytes:
        with closing(s3.client.get_object(Bucket=self.bucket, Key=name)["Body"]) as body:
            return cast(bytes, body.read())  # raises if it is shorter than announced

    def read_end(self, key: str, size_bytes: int) -> bytes:
        """See ``ObjectStore``. One GET."""
        s3, name = self._s3(), self._name(key)

        def get() -> bytes:
            try:
                answer = s3.client.get_object(Bucket=self.bucket, Key=name, Range=f"bytes=-{size_bytes}")
            except ClientError as error:
                if http_status(error) == 416:  # an empty object has no range
                    return b""
                raise
            with closing(answer["Body"]) as body:
                return cast(bytes, body.read())[-size_bytes:]  # some stores ignore the range

        return s3.call(get, action="GetObject", key=name)

    def stat_many(self, keys: Sequence[str], *, concurrency: int = 16) -> dict[str, ObjectInfo]:
        """See ``ObjectStore``. One HEAD per key."""
        facts = dict(map_unordered(self._stat, keys, concurrency))
        if None in facts.values():
            self.now()  # a HEAD does not distinguish a missing key from a missing bucket; this raises for the latter
        return {key: info for key, info in facts.items() if info is not None}

    def content_md5(self, keys: Sequence[str], *, concurrency: int = 16) -> dict[str, str]:
        """See ``ObjectStore``. One HEAD per key: only its answer states how an object is encrypted."""
        heads = map_unordered(self._head, keys, concurrency)
        known = ((key, checksums_of(head).get("md5")) for key, head in heads if head is not None)
        return {key: md5 for key, md5 in known if md5}

    def _head(self, key: str) -> Mapping[str, Any] | None:
        try:
            return self._s3().head(self._name(key))
        except ObjectNotFoundError:
            return None

    def _stat(self, key: str) -> ObjectInfo | None:
        head = self._head(key)
        if head is None:
            return None
        return ObjectInfo(
            size_bytes=head["ContentLength"],
            last_modified=head["LastModified"].astimezone(UTC),
            e_tag=head.get("ETag", "").strip('"'),
        )

    @contextmanager
    def open_read(self, key: str) -> Iterator[BinaryIO]:
        s3, name = self._s3(), self._name(key)
        answer = s3.call(lambda: s3.client.get_object(Bucket=self.bucket, Key=name), action="GetObject", key=name)
        try:
            with closing(answer["Body"]) as body:
                yield cast(BinaryIO, body)
        except S3_FAILURES as error:  # the stream broke while it was read
            raise s3.explain(error, action="GetObject", key=name) from error

    # -- writing ---------------------------------------------------------------------------------------------

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """See ``ObjectStore``.

        ``if_absent`` is a HEAD, then a PUT with ``If-None-Match: *``, which is atomic. A store that answers 501
        (NotImplemented) to that header gets a plain PUT after the HEAD: there, two simultaneous writers may both get
        True.
        """
        s3, name = self._s3(), self._name(key)
        request: dict[str, Any] = {"Bucket": self.bucket, "Key": name, "Body": data}

        def put(**condition: str) -> None:
            if not s3.client.put_object(**request, **condition).get("ETag"):
                # A page of a proxy: what was not written would be relied on.
                raise StorageError(
                    f"s3://{self.bucket}/{name}: the answer to the upload has no ETag, so it is not the store's",
                    remedy="Check AWS_ENDPOINT_URL_S3, and the proxies between this machine and the store",
                )

        if not if_absent:
            s3.call(put, action="PutObject", key=name)
            return True
        if self._stat(key) is not None:
            return False
        tries = 0

        def put_new() -> bool:
            nonlocal tries
            tries += 1
            try:
                put(IfNoneMatch="*")
            except ClientError as error:
                if is_unknown_condition(error):
                    put()
                    return True
                if http_status(error) == 412:
                    # After a broken connection the existing object may be from an earlier try.
                    return tries > 1 and self._read(key) == data
                raise
            return True

        return s3.call(put_new, action="PutObject", key=name)

    def put_stream(self, key: str, source: BinaryIO, *, if_absent: bool = False, size_bytes: int = 0) -> bool:
        """See ``ObjectStore``. Large streams are uploaded in parts; a failed upload is aborted and leaves no object.

        ``if_absent`` is as in ``put``.
        """
        s3, name = self._s3(), self._name(key)
        if if_absent:
            content, parts = parts_of(source, size_bytes)
            if content is not None:
                return self.put(key, content, if_absent=True)
            return self._stat(key) is None and upload_new(s3, name, parts, lambda: self._stat(key) is not None)
        s3.call(
            lambda: s3.client.upload_fileobj(source, self.bucket, name, Config=stream_config(size_bytes)),
            action="PutObject",
            key=name,
            tries=1,  # it consumes its source
        )
        return True

    def content_facts(self, key: str) -> ContentFacts | None:
        """See ``ObjectStore``. One HEAD."""
        return content_facts(self._s3(), self._name(key))

    def copy_to(self, key: str, destination: ObjectStore, destination_key: str, *, if_absent: bool = False) -> bool:
        """See ``ObjectStore``. Within one endpoint the store copies (in parts above 5 GiB), otherwise as a stream."""
        s3, source = self._s3(), {"Bucket": self.bucket, "Key": self._name(key)}
        if not isinstance(destination, S3Store) or destination._s3().endpoint != s3.endpoint:
            return super().copy_to(key, destination, destination_key, if_absent=if_absent)
        if if_absent and destination._stat(destination_key) is not None:
            return False
        head = s3.head(source["Key"], ChecksumMode="ENABLED")
        return copy_object(
            destination._s3(),
            source,
            head,
            destination.bucket,
            destination._name(destination_key),
            limits=self.copy_limits,
            if_absent=if_absent,
        )

    def delete_many(self, keys: Sequence[str], window: DeleteWindow | None = None) -> Deletions:
        """See ``ObjectStore``. One request per 1,000 keys; if it raises, some keys may already be deleted."""
        names = [self._name(key) for key in keys]
        errors = delete_keys(self._s3(), names, window)
        return [deletion(key, errors[name]) for key, name in zip(keys, names, strict=True)]

    def find_versions(self, targets: Sequence[VersionedTarget]) -> Versions:
        """See ``ObjectStore``. One listing per key."""
        by_name = {self._name(target.key): target for target in targets}
        versions = find_versions(self._s3(), by_name)
        return [versions[name] for name in by_name]

    def delete_versions(self, versions: Sequence[ObjectVersions], window: DeleteWindow | None = None) -> Deletions:
        """See ``ObjectStore``. Bulk deletes."""
        by_name = {self._name(each.target.key): each for each in versions}
        answers = delete_versions(self._s3(), by_name, window)
        return [Deletion(each.target.key, answers[name].outcome, answers[name].error) for name, each in by_name.items()]

    def count_versions(self, keys: Sequence[str]) -> dict[str, int]:
        return count_versions(self, keys)

    def unfinished_of(self, keys: Sequence[str]) -> dict[str, UnfinishedWrites]:
        return uploads_of(self._s3(), self.root, keys)

    def unfinished_below(self, prefix: str = "") -> Iterator[UnfinishedWrite]:
        return uploads_below(self._s3(), self.root, check_prefix(prefix))

    def discard(self, writes: Iterable[UnfinishedWrite]) -> None:
        abort_uploads(self._s3(), self.root, writes)

    def now(self) -> datetime:
        """See ``ObjectStore``. The ``Date`` header of a listing of one key."""
        s3 = self._s3()
        answer = s3.call(
            lambda: s3.client.list_objects_v2(Bucket=self.bucket, Prefix=self.root, MaxKeys=1),
            action="ListBucket",
            key=self.root,
        )
        try:
            return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).astimezone(UTC)
        except (KeyError, ValueError) as error:
            raise StorageError(
                f"{self.location.folder_url}: the store's answer has no valid Date header, so its clock is unknown",
                remedy="Configure the store, or the proxy in front of it, to send the Date header",
            ) from error

    def space_not_freed(self) -> str:
        """See ``ObjectStore``. Needs ``s3:GetBucketVersioning``."""
        return space_not_freed(self._s3(), self.root)

    # -- helpers ---------------------------------------------------------------------------------------------

    def _name(self, key: str) -> str:
        return self.root + check_key(key)


def _after(objects: pa.RecordBatch, start_after: str) -> pa.RecordBatch:
    """Return the objects after ``start_after``, because a store may ignore the parameter."""
    return objects.filter(pc.greater(objects["address"], start_after)) if start_after else objects


def _bucket_and_root(location: StoreLocation) -> tuple[str, str]:
    """Return the bucket, and the prefix of all keys: '' or ending in '/'."""
    bucket, _, path = location.url.removeprefix(SCHEME).rstrip("/").partition("/")
    if not location.url.startswith(SCHEME) or not bucket:
        raise ConfigurationError(f"{location.url!r} has no bucket", remedy="Write s3://bucket/prefix")
    if not path:
        return bucket, ""
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise ConfigurationError(f"{location.url!r} has an empty, '.' or '..' part", remedy="Write s3://bucket/prefix")
    return bucket, path + "/"
