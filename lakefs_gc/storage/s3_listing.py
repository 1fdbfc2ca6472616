"""Pages of S3's ListObjectsV2, from XML to Arrow.

Source of the format: the AWS S3 API reference, ListObjectsV2.  With boto3's XML parser one core lists 17
thousand keys a second, with the regular expressions here over 300 thousand; and they hold every page to the
same checks: the XML is whole, each object has one key, size and time, and the page says whether there is more.
A page that does not look as usual goes through a real XML parser.

obstore is as quick, but its listings end early without an error: an error document in an answer of status 200
is an empty listing to it, and a page without a continuation token is the last, whatever ``IsTruncated`` says.
It also drops the final ``/`` of a key, so that a directory marker looks like an object.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree

import pyarrow as pa

from lakefs_gc.storage.base import LISTING_SCHEMA
from lakefs_gc.storage.s3_errors import IncompleteListingError

_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_SIZE = re.compile(rb"<Size>([0-9]+)</Size>")
_TIME = re.compile(rb"<LastModified>([0-9TZ:.+-]+)</LastModified>")
_LEVEL = re.compile(rb"<CommonPrefixes><Prefix>([^<]*)</Prefix></CommonPrefixes>")
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
    """What a page says, as bytes in the page's own encoding of keys."""

    keys: list[bytes]
    sizes: list[bytes]
    times: list[bytes]
    levels: list[bytes]
    truncated: bytes
    token: str
    url_encoded: bool


def parse_page(body: bytes, root: str) -> Page:
    """Parse the XML of a page whose keys all start with ``root`` (the store's folder within its bucket).

    Raises ``IncompleteListingError`` for anything but a whole page: a listing must never end early unnoticed.
    """
    fields = _quick_fields(body) or _careful_fields(body)
    if fields.truncated not in (b"true", b"false"):
        raise IncompleteListingError(reason="a page does not say whether it is the last (IsTruncated)")
    if fields.truncated == b"true" and not fields.token:
        raise IncompleteListingError(reason="a page is not the last, but does not say how to go on")
    return Page(
        objects=_to_batch(fields, root),
        sub_prefixes=[name.decode() for name in _relative(_decode(fields.levels, fields.url_encoded), root)],
        next_token=fields.token if fields.truncated == b"true" else "",
    )


def _quick_fields(body: bytes) -> _Fields | None:
    """The fields by regular expressions; None for a page that is not written in the usual way.

    Usual: one run of ``<Contents>`` elements without anything between them, and all else before or after it.
    """
    start, end = body.find(b"<Contents>"), body.rfind(b"</Contents>") + len(b"</Contents>")
    objects, rest = (body[start:end], body[:start] + body[end:]) if start >= 0 else (b"", body)
    keys, sizes, times = _KEY.findall(objects), _SIZE.findall(objects), _TIME.findall(objects)
    levels = _LEVEL.findall(rest)
    truncated, token = _single(rest, b"IsTruncated"), _single(rest, b"NextContinuationToken")
    encoding = _single(rest, b"EncodingType")
    usual = (
        _START.match(body)
        and body.rstrip().endswith(b"</ListBucketResult>")
        and not (b"!" in body and b"<!" in body)
        and len(keys) == len(sizes) == len(times) == objects.count(b"</Contents><Contents>") + (start >= 0)
        and not any(mark in rest for mark in (b"<Contents", b":Contents", b":CommonPrefixes"))
        and len(levels) == rest.count(b"<CommonPrefixes")
        and truncated is not None
        and token is not None
        and encoding is not None
        and not any(b"&" in text for text in (b"".join(keys), b"".join(levels), token))
    )
    if not usual or truncated is None or token is None:
        return None
    return _Fields(keys, sizes, times, levels, truncated, token.decode(), encoding == b"url")


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


def _careful_fields(body: bytes) -> _Fields:
    """The fields by an XML parser."""
    try:
        root = ElementTree.fromstring(body)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise IncompleteListingError(reason=f"a page is cut off or no XML ({error})") from error

    def local(element: ElementTree.Element) -> str:
        return str(element.tag).rpartition("}")[2]

    def texts(parent: ElementTree.Element) -> dict[str, bytes]:
        return {local(child): (child.text or "").encode() for child in parent}

    if local(root) != "ListBucketResult":
        raise IncompleteListingError(reason=f"a page is a {local(root)[:40]}, not a ListBucketResult")
    page = {local(child): (child.text or "") for child in root}
    contents = [texts(child) for child in root if local(child) == "Contents"]
    levels = [texts(child) for child in root if local(child) == "CommonPrefixes"]
    try:
        return _Fields(
            keys=[fields["Key"] for fields in contents],
            sizes=[fields["Size"].strip() for fields in contents],
            times=[fields["LastModified"].strip() for fields in contents],
            levels=[fields["Prefix"] for fields in levels],
            truncated=page.get("IsTruncated", "").strip().encode(),
            token=page.get("NextContinuationToken", ""),
            url_encoded=page.get("EncodingType") == "url",
        )
    except KeyError as error:
        raise IncompleteListingError(reason=f"an object without its {error.args[0]}") from error


def _decode(names: list[bytes], url_encoded: bool) -> list[bytes]:
    """Keys as the store has them.  S3's URL encoding writes a space as ``+``."""
    if not url_encoded or not names:
        return names
    joined = b"\n".join(names)
    if b"%" not in joined and b"+" not in joined:
        return names
    if b"%0a" in joined.lower():  # a line feed within a key: one by one
        return [unquote_to_bytes(name.replace(b"+", b" ")) for name in names]
    return unquote_to_bytes(joined.replace(b"+", b" ")).split(b"\n")


def _relative(names: list[bytes], root: str) -> list[bytes]:
    prefix = root.encode()
    if not all(name.startswith(prefix) for name in names):
        raise IncompleteListingError(reason=f"the store answers with keys outside {root!r}")
    return [name[len(prefix) :] for name in names]


def _to_batch(fields: _Fields, root: str) -> pa.RecordBatch:
    names = _relative(_decode(fields.keys, fields.url_encoded), root)
    sizes, times = fields.sizes, fields.times
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


def _strings(values: list[bytes]) -> Any:
    return pa.array(values, pa.binary()).cast(pa.string())
