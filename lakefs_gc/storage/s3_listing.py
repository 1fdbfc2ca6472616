"""Pages of S3's ListObjectsV2, from XML to Arrow.

Source of the format: the AWS S3 API reference, ListObjectsV2.  With boto3's XML parser one core lists 17
thousand keys a second, with the regular expressions here over 400 thousand; and they hold every page to the
same checks: the XML is whole, each object has one key, size and time, and the page says whether there is more.
A page that does not look as usual goes through a real XML parser.

obstore is as quick, but its listings end early without an error: an error document in an answer of status 200
is an empty listing to it, and a page without a continuation token is the last, whatever ``IsTruncated`` says.
It also drops the final ``/`` of a key, so that a directory marker looks like an object.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus, unquote_to_bytes
from xml.etree import ElementTree

import pyarrow as pa

from lakefs_gc.storage.base import LISTING_SCHEMA
from lakefs_gc.storage.s3_errors import IncompleteListingError

_OBJECT = (
    rb"<Contents><Key>%b([^<]*)</Key><LastModified>([0-9TZ:.+-]+)</LastModified>"
    rb"(?:<[A-RT-Z][A-Za-z]*>[^<]*</[A-Za-z]*>)*"  # ETag, ChecksumAlgorithm, ...: nothing that begins like Size
    rb"<Size>([0-9]+)</Size>"
)
"""An object in S3's own order of elements; ``%b`` is the folder that its key must lie in."""
_LEVEL = re.compile(rb"<CommonPrefixes><Prefix>([^<]*)</Prefix></CommonPrefixes>")
_ONCE_IN_PAGE = ("IsTruncated", "NextContinuationToken", "EncodingType")
_ONCE_IN_ITEM = ("Key", "Size", "LastModified", "Prefix")
_START = re.compile(rb"\s*(?:<\?xml[^>]*\?>)?\s*<ListBucketResult[ >]")


@dataclass(frozen=True)
class Page:
    """One page: objects of ``LISTING_SCHEMA`` without directory markers, sub-prefixes, and what to ask for
    next.

    Keys and sub-prefixes are relative to the root that ``parse_page`` was given; ``next_token`` is '' at the
    end.
    """

    objects: pa.RecordBatch
    sub_prefixes: list[str]
    next_token: str


@dataclass(frozen=True)
class _Fields:
    """What a page says, as bytes; keys and levels are decoded and relative to the root."""

    keys: Sequence[bytes]
    sizes: Sequence[bytes]
    times: Sequence[bytes]
    levels: Sequence[bytes]
    truncated: bytes
    token: str


def parse_page(body: bytes, root: str) -> Page:
    """Parse the XML of a page whose keys all start with ``root`` (the store's folder within its bucket).

    Raises ``IncompleteListingError`` for anything but a whole page: a listing must never end early unnoticed.
    """
    try:
        return _page(_quick_fields(body, root) or _careful_fields(body, root))
    except UnicodeDecodeError as error:
        raise IncompleteListingError(reason=f"a page holds what is no UTF-8 ({error.reason})") from error


def _page(fields: _Fields) -> Page:
    if fields.truncated not in (b"true", b"false"):
        raise IncompleteListingError(reason="a page does not say whether it is the last (IsTruncated)")
    if fields.truncated == b"true" and not fields.token:
        raise IncompleteListingError(reason="a page is not the last, but does not say how to go on")
    return Page(
        objects=_to_batch(fields),
        sub_prefixes=[name.decode() for name in fields.levels],
        next_token=fields.token if fields.truncated == b"true" else "",
    )


def _quick_fields(body: bytes, root: str) -> _Fields | None:
    """The fields by regular expressions; None for a page that is not written in the usual way.

    Usual: one run of ``<Contents>`` elements without anything between them, all else before or after it, each as
    ``_OBJECT`` has it, with a key below ``root``.
    """
    start, end = body.find(b"<Contents>"), body.rfind(b"</Contents>") + len(b"</Contents>")
    first, rest = (body[start:end], body[:start] + body[end:]) if start >= 0 else (b"", body)
    levels = _LEVEL.findall(rest)
    truncated, token = _single(rest, b"IsTruncated"), _single(rest, b"NextContinuationToken")
    encoding = _single(rest, b"EncodingType")
    usual = (
        _START.match(body)
        and body.endswith((b"</ListBucketResult>", b"</ListBucketResult>\n"))
        and not (b"!" in body and b"<!" in body)
        and b"\r" not in body  # XML turns it into a line feed
        and not any(mark in rest for mark in (b"<Contents", b":Contents", b":CommonPrefixes"))
        and len(levels) == rest.count(b"<CommonPrefixes")
        and truncated is not None
        and token is not None
        and encoding is not None
        and b"&" not in token
    )
    if not usual or truncated is None or token is None:
        return None
    url_encoded = encoding == b"url"
    objects = _object_pattern(root, url_encoded).findall(first)
    # As many objects as there are borders between them: each was matched, and nothing lies between.
    if len(objects) != first.count(b"</Contents><Contents>") + (start >= 0):
        return None
    # What follows the size is not looked at, so see that it is no second object.
    if any(first.count(name) != len(objects) for name in (b"<Key", b"<Size", b"<LastModified")):
        return None
    keys, times, sizes = zip(*objects, strict=True) if objects else ((), (), ())
    if any(b"&" in names for names in (b"".join(keys), b"".join(levels))):
        return None
    return _Fields(
        _decode(keys, url_encoded),
        sizes,
        times,
        _relative(_decode(levels, url_encoded), root),
        truncated,
        token.decode(),
    )


@lru_cache(maxsize=16)
def _object_pattern(root: str, url_encoded: bool) -> re.Pattern[bytes]:
    """Stores differ in whether they encode a slash, and how a space."""
    spellings = {encode(root, safe=safe) for encode in (quote, quote_plus) for safe in ("/", "")}
    folders = [re.escape(folder.encode()) for folder in (sorted(spellings) if url_encoded else [root])]
    return re.compile(_OBJECT % (b"(?:%b)" % b"|".join(folders)))


def _single(body: bytes, name: bytes) -> bytes | None:
    """The text of an element that a page has at most once: b'' if it has none, None if it is not that
    simple.
    """
    start_tag, end_tag = b"<" + name + b">", b"</" + name + b">"
    count = body.count(b"<" + name)
    if not count:
        return b""
    start, end = body.find(start_tag), body.find(end_tag)
    if count != 1 or start < 0 or end < start:
        return None
    return body[start + len(start_tag) : end]


def _careful_fields(body: bytes, root: str) -> _Fields:
    """The fields by an XML parser."""
    try:
        document = ElementTree.fromstring(body)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise IncompleteListingError(reason=f"a page is cut off or no XML ({error})") from error

    def local(element: ElementTree.Element) -> str:
        return str(element.tag).rpartition("}")[2]

    def texts(parent: ElementTree.Element, once: Sequence[str] = _ONCE_IN_ITEM) -> dict[str, bytes]:
        names = [local(child) for child in parent]
        if twice := [name for name in once if names.count(name) > 1]:
            raise IncompleteListingError(reason=f"a page, or an object in it, has more than one {twice[0]}")
        return {local(child): (child.text or "").encode() for child in parent}

    if local(document) != "ListBucketResult":
        raise IncompleteListingError(reason=f"a page is a {local(document)[:40]}, not a ListBucketResult")
    page = {name: text.decode() for name, text in texts(document, _ONCE_IN_PAGE).items()}
    contents = [texts(child) for child in document if local(child) == "Contents"]
    levels = [texts(child) for child in document if local(child) == "CommonPrefixes"]
    url_encoded = page.get("EncodingType") == "url"
    try:
        return _Fields(
            keys=_relative(_decode([fields["Key"] for fields in contents], url_encoded), root),
            sizes=[fields["Size"].strip() for fields in contents],
            times=[fields["LastModified"].strip() for fields in contents],
            levels=_relative(_decode([fields["Prefix"] for fields in levels], url_encoded), root),
            truncated=page.get("IsTruncated", "").strip().encode(),
            token=page.get("NextContinuationToken", ""),
        )
    except KeyError as error:
        raise IncompleteListingError(reason=f"an object without its {error.args[0]}") from error


def _decode(names: Sequence[bytes], url_encoded: bool) -> Sequence[bytes]:
    """Keys as the store has them.  S3's URL encoding writes a space as ``+``."""
    if not url_encoded or not names:
        return names
    joined = b"\n".join(names)
    raw_line_feed = joined.count(b"\n") != len(names) - 1
    # The comma of linked addresses first, at a tenth of the cost.  What stays behind a % is as it was.
    plain = joined.replace(b"%2C", b",")
    if raw_line_feed or b"%" in plain or b"+" in plain:
        if raw_line_feed or b"%0a" in joined.lower():  # a line feed within a key: one by one
            return [unquote_to_bytes(name.replace(b"+", b" ")) for name in names]
        plain = unquote_to_bytes(plain.replace(b"+", b" "))
    return plain.split(b"\n")


def _relative(names: Sequence[bytes], root: str) -> Sequence[bytes]:
    prefix = root.encode()
    if not all(name.startswith(prefix) for name in names):
        raise IncompleteListingError(reason=f"the store answers with keys outside {root!r}")
    return [name[len(prefix) :] for name in names]


def _to_batch(fields: _Fields) -> pa.RecordBatch:
    names, sizes, times = fields.keys, fields.sizes, fields.times
    if any(not name or name.endswith(b"/") for name in names):  # directory markers
        kept = [i for i, name in enumerate(names) if name and not name.endswith(b"/")]
        names, sizes, times = [names[i] for i in kept], [sizes[i] for i in kept], [times[i] for i in kept]
    try:
        columns = [
            _strings(names),
            _strings(sizes).cast(pa.int64()),
            _strings(times).cast(LISTING_SCHEMA.field("last_modified").type),
        ]
    except pa.ArrowInvalid as error:
        raise IncompleteListingError(reason=f"a key, size or time does not parse ({error})") from error
    return pa.RecordBatch.from_arrays(columns, schema=LISTING_SCHEMA)


def _strings(values: Sequence[bytes]) -> Any:
    return pa.array(values, pa.binary()).cast(pa.string())
