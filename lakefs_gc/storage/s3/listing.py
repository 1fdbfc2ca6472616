"""Parse pages of S3's ListObjectsV2 from XML to Arrow.

Source of the format: the AWS S3 API reference, ListObjectsV2. With boto3's XML parser one core lists 17,000 keys per
second. Compiled code reads the objects of a page in the usual form, over 1,000,000 per second, with the same checks:
the XML is complete, each object has one key, size and time, and the page states whether it is the last. An XML parser
reads a page in any other form.

obstore is as fast, but its listings end early without an error: it reads an error document with status 200 as an empty
listing, and a page without a continuation token as the last one, whatever ``IsTruncated`` says. It also removes the
final ``/`` of a key, so that a directory marker looks like an object.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.storage.base import LISTING_SCHEMA
from lakefs_gc.storage.s3.errors import IncompleteListingError

_SHORT_PAGE_BYTES = 16 * 1024
_SHORT_PAGES, _LONG_PAGES = 100, 2
"""So many pages of a process are read by the XML parser. The compiled code takes 0.5 s to load, which is a third of the
time of a command such as ``history``. It reads a short page 3 ms faster, and one of 1,000 keys 60 ms faster."""
_short_pages, _long_pages = itertools.count(), itertools.count()

_PLACE = b"<Contents/>"
"""What stands for the objects of a page while the XML parser reads the rest of it."""
_ONCE_IN_PAGE = ("IsTruncated", "NextContinuationToken", "EncodingType")
_ONCE_IN_ITEM = ("Key", "Size", "LastModified", "Prefix")
_START = re.compile(
    rb"""(?:<\?xml version=["']1\.0["'](?: encoding=["']UTF-8["'])?(?: standalone=["'](?:yes|no)["'])? ?\?>\s*)?"""
    rb"<ListBucketResult[ >]",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Page:
    """One page: objects of ``LISTING_SCHEMA`` without directory markers, sub-prefixes, and the continuation token.

    Keys and sub-prefixes are relative to the root of ``parse_page``; ``next_token`` is '' on the last page.
    """

    objects: pa.RecordBatch
    sub_prefixes: list[str]
    next_token: str


@dataclass(frozen=True)
class _Parts:
    """The content of a page; names are decoded and relative to the root."""

    objects: pa.RecordBatch
    levels: Sequence[bytes]
    truncated: str
    token: str
    prefixes: tuple[bytes, ...]
    """What the page says that it is a page of, decoded, and as it says so: Ceph encodes only keys. Empty without it."""


def parse_page(body: bytes, root: str, prefix: str = "") -> Page:
    """Parse the XML of a page whose keys all start with ``root`` (the store's folder within its bucket) and ``prefix``.

    Raise ``IncompleteListingError`` unless the page is complete: a listing must never end early without an error. Also
    if it is a page of another prefix: it may be the answer to another request.
    """
    try:
        is_short = len(body) <= _SHORT_PAGE_BYTES
        is_one_of_few = next(_short_pages) < _SHORT_PAGES if is_short else next(_long_pages) < _LONG_PAGES
        parts = None if is_one_of_few else read_quickly(body, root)
        page = _page(parts or read_carefully(body, root), root + prefix)
    except UnicodeDecodeError as error:
        raise IncompleteListingError(reason=f"a page is not valid UTF-8 ({error.reason})") from error
    is_below = pc.all(pc.starts_with(page.objects.column("address"), prefix), min_count=0).as_py()
    if not is_below or not all(name.startswith(prefix) for name in page.sub_prefixes):
        raise IncompleteListingError(reason=f"the store returned keys outside {root + prefix!r}")
    return page


def _page(parts: _Parts, prefix: str) -> Page:
    if any(parts.prefixes) and prefix.encode() not in parts.prefixes:
        stated = parts.prefixes[0].decode(errors="replace")
        raise IncompleteListingError(reason=f"a page is one of the prefix {stated!r}, not of {prefix!r}")
    if parts.truncated not in ("true", "false"):
        raise IncompleteListingError(reason="a page does not state whether it is the last (IsTruncated)")
    if parts.truncated == "true" and not parts.token:
        raise IncompleteListingError(reason="a page is not the last, but has no continuation token")
    return Page(
        objects=parts.objects,
        sub_prefixes=[name.decode() for name in parts.levels],
        next_token=parts.token if parts.truncated == "true" else "",
    )


def read_quickly(body: bytes, root: str) -> _Parts | None:
    """Read the objects of a page with compiled code; return None if the page is not in the usual form.

    The usual form is one run of ``<Contents>`` elements with nothing between them, as children of the document. Each
    has the form that ``scan_objects`` reads, and a key below ``root``. The XML parser reads the page without them: what
    is damaged before or after the run may be an object, or a part of one.
    """
    start, end = body.find(b"<Contents>"), body.rfind(b"</Contents>") + len(b"</Contents>")
    if start < 0 or not _START.match(body):
        return None
    rest = body[:start] + _PLACE + body[end:]
    if b"<!" in rest:  # entities, and comments that may hide the run
        return None
    try:
        document = _parsed(rest)
        page = _facts_of(document)
        places = [child for child in document if _local(child) == "Contents"]
        if len(places) != 1 or len(places[0]):
            return None
        levels = _levels(document, page, root)
    except (IncompleteListingError, UnicodeDecodeError):  # said of the whole page by the XML parser
        return None
    objects = _scan(body[start:end], root.encode(), page.get("EncodingType") == "url")
    return None if objects is None else _of_page(page, objects, levels)


def _scan(text: bytes, root: bytes, url_encoded: bool) -> pa.RecordBatch | None:
    from lakefs_gc.storage.s3.page import SHORTEST_OBJECT, scan_objects  # numba is slow to import

    most = len(text) // SHORTEST_OBJECT  # an upper bound: counting takes as long as reading
    keys = np.empty(len(text), np.uint8)
    offsets = np.empty(most + 1, np.int32)
    facts = np.empty((2, most), np.int64)
    count = scan_objects(
        np.frombuffer(text, np.uint8), np.frombuffer(root, np.uint8), url_encoded, keys, offsets, facts
    )
    if count < 0:
        return None
    sizes, times = (pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(column)]) for column in facts)
    try:
        columns = [
            _from_buffers(offsets[: count + 1], keys[: offsets[count]].tobytes()),
            sizes,
            times.view(LISTING_SCHEMA.field("last_modified").type),
        ]
    except pa.ArrowInvalid as error:
        raise _does_not_parse(error) from error
    return pa.RecordBatch.from_arrays(columns, schema=LISTING_SCHEMA)


def _does_not_parse(error: pa.ArrowInvalid) -> IncompleteListingError:
    return IncompleteListingError(reason=f"a key, size or time cannot be parsed ({error})")


def read_carefully(body: bytes, root: str) -> _Parts:
    """Read a page with an XML parser."""
    document = _parsed(body)
    page = _facts_of(document)
    contents = [_texts(child) for child in document if _local(child) == "Contents"]
    url_encoded = page.get("EncodingType") == "url"
    try:
        objects = _to_batch(
            _relative(_decode([fields["Key"] for fields in contents], url_encoded), root),
            [fields["Size"].strip() for fields in contents],
            [fields["LastModified"].strip() for fields in contents],
        )
    except KeyError as error:
        raise IncompleteListingError(reason=f"an object has no {error.args[0]}") from error
    return _of_page(page, objects, _levels(document, page, root))


def _parsed(body: bytes) -> ElementTree.Element:
    try:
        document = ElementTree.fromstring(body)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise IncompleteListingError(reason=f"a page is truncated or not XML ({error})") from error
    if _local(document) != "ListBucketResult":
        raise IncompleteListingError(reason=f"a page is a {_local(document)[:40]}, not a ListBucketResult")
    return document


def _local(element: ElementTree.Element) -> str:
    """Return the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def _texts(parent: ElementTree.Element, once: Sequence[str] = _ONCE_IN_ITEM) -> dict[str, bytes]:
    names = [_local(child) for child in parent]
    if twice := [name for name in once if names.count(name) > 1]:
        raise IncompleteListingError(reason=f"a page, or an object in it, has more than one {twice[0]}")
    return {_local(child): (child.text or "").encode() for child in parent}


def _facts_of(document: ElementTree.Element) -> dict[str, str]:
    return {name: text.decode() for name, text in _texts(document, _ONCE_IN_PAGE).items()}


def _levels(document: ElementTree.Element, page: dict[str, str], root: str) -> Sequence[bytes]:
    levels = [_texts(child) for child in document if _local(child) == "CommonPrefixes"]
    try:
        return _relative(_decode([fields["Prefix"] for fields in levels], page.get("EncodingType") == "url"), root)
    except KeyError as error:
        raise IncompleteListingError(reason=f"a folder has no {error.args[0]}") from error


def _of_page(page: dict[str, str], objects: pa.RecordBatch, levels: Sequence[bytes]) -> _Parts:
    stated = page.get("Prefix", "").encode()
    prefixes = (*_decode([stated], page.get("EncodingType") == "url"), stated)
    return _Parts(objects, levels, page.get("IsTruncated", "").strip(), page.get("NextContinuationToken", ""), prefixes)


def _decode(names: Sequence[bytes], url_encoded: bool) -> Sequence[bytes]:
    """Return keys as the store has them. S3's URL encoding writes a space as ``+``."""
    if not url_encoded:
        return names
    return [unquote_to_bytes(name.replace(b"+", b" ")) for name in names]


def _relative(names: Sequence[bytes], root: str) -> Sequence[bytes]:
    prefix = root.encode()
    if not all(name.startswith(prefix) for name in names):
        raise IncompleteListingError(reason=f"the store returned keys outside {root!r}")
    return [name[len(prefix) :] for name in names]


def _to_batch(names: Sequence[bytes], sizes: Sequence[bytes], times: Sequence[bytes]) -> pa.RecordBatch:
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
        raise _does_not_parse(error) from error
    return pa.RecordBatch.from_arrays(columns, schema=LISTING_SCHEMA)


def _strings(values: Sequence[bytes]) -> Any:
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    return _from_buffers(offsets, b"".join(values))


def _from_buffers(offsets: Any, content: bytes) -> Any:
    """Return an array of strings. ``pa.array`` would import pandas, which takes 0.2 s."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers).cast(pa.string())
