"""Parse pages of Azure's List Blobs from XML to Arrow.

Source: Microsoft Learn, "List Blobs". Regular expressions read a page in the usual form; an XML parser reads any other.
Both check that the page is complete: it ends with its last tag, states whether another page follows, and each blob has
one name, size and time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import unescape
from itertools import pairwise
from operator import lt
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree
from xml.parsers.expat import ExpatError, ParserCreate

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.errors import ConfigurationError, StorageError
from lakefs_gc.storage.azure.errors import IncompleteAnswerError
from lakefs_gc.storage.base import LISTING_SCHEMA

_BLOB = re.compile(
    rb"<Blob><Name>([^<&\r]*)</Name><Properties>(?:<Creation-Time>[^<]*</Creation-Time>)?"
    rb"<Last-Modified>([^<&]*)</Last-Modified><Etag>[^<]*</Etag><Content-Length>([0-9]+)</Content-Length>"
)
_LEVEL = re.compile(rb"<BlobPrefix><Name>([^<&\r]*)</Name></BlobPrefix>")
_HEAD = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*<\?xml version=[\"']1\.0[\"'](?: encoding=[\"'](?i:utf-8)[\"'])?"
    rb"(?: standalone=[\"'](?:yes|no)[\"'])? ?\?>\s*<EnumerationResults[ >]"
)
_TAGS_OF_BLOB = (b"<Blob>", b"</Blob>", b"<Properties>", b"</Properties>", b"<Last-Modified>", b"<Content-Length>")
_PLACE = b"<Blob/>"
"""What stands for the blobs of a page while the XML parser reads the rest of it."""
_UNUSUAL = (b"Encoded=", b"<Snapshot", b"<VersionId", b"<Deleted", b"<!")
_ONCE = (b"<?", b"<Blobs", b"<NextMarker")
_STATED_PREFIX = re.compile(rb"<Prefix>([^<]+)</Prefix>")
"""What a page says that it is a page of, unless the name has characters that XML cannot contain."""
_END = b"</EnumerationResults>"
_HIERARCHICAL = b"<ResourceType>"
"""A property of each entry of a listing in an account with a hierarchical namespace."""
_TIME_FORMAT = "%a, %d %b %Y %H:%M:%S GMT"


@dataclass(frozen=True)
class Page:
    """One page: objects of ``LISTING_SCHEMA`` without directory markers, sub-prefixes, and the next marker.

    Names are relative to the root of ``parse_page``; ``next_marker`` is '' on the last page. ``last_name`` is the whole
    name of the last blob; empty if the page has none.
    """

    objects: pa.RecordBatch
    sub_prefixes: list[str]
    next_marker: str
    last_name: bytes = b""


@dataclass(frozen=True)
class _Parts:
    names: Sequence[bytes]
    times: Sequence[bytes]
    sizes: Sequence[bytes]
    levels: Sequence[bytes]
    marker: str


def hierarchical_error(account: str) -> ConfigurationError:
    """Return the error for an account with a hierarchical namespace."""
    return ConfigurationError(
        f"The account {account} has a hierarchical namespace (Data Lake Storage Gen2). Its listings contain folders, "
        "in another order, so lakefs-gc does not collect there",
        remedy="Use lakeFS in an account without a hierarchical namespace, as lakeFS's documentation recommends",
    )


def parse_page(body: bytes, root: str, account: str, after: bytes = b"", prefix: str = "") -> Page:
    """Parse the XML of a page whose names all start with ``root`` (the store's folder within its container).

    And with ``prefix``, which begins with the root: other names are the answer to another request. ``after`` is the
    last name of the page before. Raise ``IncompleteAnswerError`` unless the page is complete: a listing must never
    end early without an error. Raise ``StorageError`` if the names do not ascend, and ``ConfigurationError`` for a
    page of an account with a hierarchical namespace.
    """
    if _HIERARCHICAL in body:
        raise hierarchical_error(account)
    if not body.rstrip().endswith(_END):
        raise IncompleteAnswerError("a page of the listing is cut")
    parts = _read_quickly(body) or _read_carefully(body)
    prefix = prefix or root
    stated = stated_prefix(body)
    if stated not in (None, prefix):
        raise IncompleteAnswerError(f"a page is one of the prefix {stated!r}, not of {prefix!r}")
    if not all(name.startswith(prefix.encode()) for name in (*parts.names, *parts.levels)):
        raise IncompleteAnswerError(f"the store returned names outside {prefix!r}")
    _check_order(parts.names, after)
    try:
        return Page(
            objects=_to_batch(parts, len(root.encode())),
            sub_prefixes=[level.decode().removeprefix(root) for level in parts.levels],
            next_marker=parts.marker,
            last_name=parts.names[-1] if parts.names else b"",
        )
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise IncompleteAnswerError(f"a name, size or time of the listing cannot be parsed ({error})") from error


def stated_prefix(body: bytes) -> str | None:
    """Return the prefix that a page says that it is a page of; None if it says nothing that XML can contain."""
    stated = _STATED_PREFIX.search(body[: max(body.find(b"<Blobs"), 0)])
    return None if stated is None else unescape(stated[1].decode(errors="replace"))


def name_of(blob: ElementTree.Element) -> bytes:
    """Return the name of a blob. Raise ``IncompleteAnswerError`` if it has none."""
    return _name(_only(blob, "Name"))


def _check_order(names: Sequence[bytes], after: bytes) -> None:
    """Raise ``StorageError`` unless each name comes after the one before.

    Microsoft documents the order as alphabetical, without an encoding, so names beyond ASCII are not compared.
    """
    if all(map(lt, names, names[1:])) and (not names or after < names[0]):
        return
    for before, name in pairwise((after, *names) if after else names):
        if name <= before and before.isascii() and name.isascii():
            raise StorageError(
                "The store does not list in the order of the names, or repeats one, so a listing may be incomplete",
                remedy="Check whether a proxy in front of the store changes its answers. Nothing was deleted",
            )


def _read_quickly(body: bytes) -> _Parts | None:
    """Read a page with regular expressions; return None if it is not in the usual form.

    Each tag of a blob and of a folder must occur as often as there are blobs and folders, in one spelling, and the
    whole page must be XML: what is damaged or written in another way may be a blob, or a part of one.
    """
    if not _HEAD.match(body) or any(text in body for text in _UNUSUAL):
        return None
    if any(body.count(text) != 1 for text in _ONCE):
        return None
    blobs, levels = _BLOB.findall(body), _LEVEL.findall(body)
    tags = {
        **dict.fromkeys(_TAGS_OF_BLOB, len(blobs)),
        **dict.fromkeys((b"<Name>", b"</Name>"), len(blobs) + len(levels)),
        **dict.fromkeys((b"<BlobPrefix>", b"</BlobPrefix>"), len(levels)),
    }
    # A tag may also contain a space, a line break or an attribute. Beside these there are one `Blobs`, and types.
    tags[b"<Blob"] = len(blobs) + len(levels) + 1 + body.count(b"<BlobType>")
    if not blobs or any(body.count(tag) != count for tag, count in tags.items()):
        return None
    start, end = body.find(b"<Blob>"), body.rfind(b"</Blob>") + len(b"</Blob>")
    try:
        ParserCreate().Parse(body, True)  # a third of the time that building elements takes
        document = parsed(body[:start] + _PLACE + body[end:])
        _, marker = sections(document)
    except (ExpatError, ValueError, LookupError, IncompleteAnswerError):  # said by the other way to read a page
        return None
    if len(document.findall("Blobs/Blob")) != 1:
        return None
    names, times, sizes = zip(*blobs, strict=True)
    return _Parts(names, [time.strip() for time in times], sizes, levels, marker)


def _read_carefully(body: bytes) -> _Parts:
    """Read a page with an XML parser."""
    section, marker = sections(parsed(body))
    blobs = section.findall("Blob")
    others = [child.tag for child in section if child.tag not in ("Blob", "BlobPrefix")]
    if others or len(list(section.iter("Blob"))) != len(blobs):
        raise IncompleteAnswerError("the section of the blobs contains something else")
    if any(blob.find(part) is not None for blob in blobs for part in ("Snapshot", "VersionId", "Deleted")):
        raise IncompleteAnswerError("the listing contains versions that were not requested")
    return _Parts(
        names=[_name(_only(blob, "Name")) for blob in blobs],
        times=[_text(_only(blob, "Properties/Last-Modified")) for blob in blobs],
        sizes=[_text(_only(blob, "Properties/Content-Length")) for blob in blobs],
        levels=[_name(_only(level, "Name")) for level in section.findall("BlobPrefix")],
        marker=marker,
    )


def parsed(body: bytes) -> ElementTree.Element:
    """Return a page as XML. Raise ``IncompleteAnswerError``."""
    try:
        return ElementTree.fromstring(body)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise IncompleteAnswerError(f"a page of the listing is not XML ({error})") from error


def sections(document: ElementTree.Element) -> tuple[ElementTree.Element, str]:
    """Return the section of the blobs, and the marker of the next page."""
    markers, sections = document.findall("NextMarker"), document.findall("Blobs")
    if document.tag != "EnumerationResults" or len(markers) != 1 or len(sections) != 1:
        raise IncompleteAnswerError("a page of the listing does not state whether it is the last")
    return sections[0], markers[0].text or ""


def _only(parent: ElementTree.Element, path: str) -> ElementTree.Element:
    elements = parent.findall(path)
    if len(elements) != 1:
        raise IncompleteAnswerError(f"a blob of the listing has {len(elements)} times {path}, and must have it once")
    return elements[0]


def _text(element: ElementTree.Element) -> bytes:
    return (element.text or "").strip().encode()


def _name(element: ElementTree.Element) -> bytes:
    """Return a name; one that XML cannot contain is percent-encoded."""
    name = (element.text or "").encode()
    return unquote_to_bytes(name) if element.get("Encoded") == "true" else name


def _to_batch(parts: _Parts, skipped: int) -> pa.RecordBatch:
    # Not with binary_slice: Arrow fails at a name that is as long as the slice's start.
    names = pa.array([name[skipped:] for name in parts.names], pa.binary()).cast(pa.string())
    times = pc.strptime(pa.array(parts.times, pa.binary()).cast(pa.string()), _TIME_FORMAT, "s")
    batch = pa.RecordBatch.from_arrays(
        [
            names,
            pa.array(parts.sizes, pa.binary()).cast(pa.string()).cast(pa.int64()),
            times.cast(pa.timestamp("us")).cast(LISTING_SCHEMA.field("last_modified").type),
        ],
        schema=LISTING_SCHEMA,
    )
    is_marker = pc.or_(pc.equal(names, ""), pc.ends_with(names, "/"))
    return batch.filter(pc.invert(is_marker)) if pc.any(is_marker).as_py() else batch
