"""Write S3's XML documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

from starlette.responses import Response

from lakefs_gc.sandbox.gateway.problems import S3Error, malformed_xml

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


def document(root: str, fields: dict[str, Any], status: int = 200) -> Response:
    """Return an answer. A dictionary becomes a nested element, a list a repeated element, other values plain text."""
    element = ElementTree.Element(root, xmlns=_NAMESPACE)
    _fill(element, fields)
    content = ElementTree.tostring(element, encoding="utf-8", xml_declaration=True)
    return Response(content, status, media_type="application/xml")


def error_document(error: S3Error, resource: str, *, with_body: bool = True) -> Response:
    """Return the answer for an error. The answer to a HEAD request has no body."""
    if not with_body:
        return Response(status_code=error.status)
    element = ElementTree.Element("Error")
    _fill(element, {"Code": error.code, "Message": error.message, "Resource": resource})
    content = ElementTree.tostring(element, encoding="utf-8", xml_declaration=True)
    return Response(content, error.status, media_type="application/xml")


def shown_time(nanoseconds: int) -> str:
    """Return a time since 1970 as the documents write it."""
    moment = datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def read_keys_to_delete(body: bytes) -> tuple[Sequence[str], bool]:
    """Return the keys of a ``Delete`` document, and whether it requests failures only. Raise ``S3Error`` 400."""
    root = _parsed(body)
    keys = [_text(item, "Key") for item in _children(root, "Object")]
    quiet = [item.text for item in _children(root, "Quiet")]
    return keys, quiet == ["true"]


def read_completed_parts(body: bytes) -> Sequence[tuple[int, str]]:
    """Return the number and the unquoted ETag of each part of a ``CompleteMultipartUpload``.

    Raise ``S3Error`` 400 for a malformed document.
    """
    try:
        return [
            (int(_text(part, "PartNumber")), _text(part, "ETag").strip('"'))
            for part in _children(_parsed(body), "Part")
        ]
    except ValueError:
        raise malformed_xml() from None


def _fill(element: ElementTree.Element, fields: dict[str, Any]) -> None:
    for name, value in fields.items():
        for item in value if isinstance(value, list) else [value]:
            child = ElementTree.SubElement(element, name)
            if isinstance(item, dict):
                _fill(child, item)
            else:
                child.text = str(item).lower() if isinstance(item, bool) else str(item)


def _parsed(body: bytes) -> ElementTree.Element:
    if b"<!" in body:  # reject entities, which could expand without limit
        raise malformed_xml()
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError:
        raise malformed_xml() from None


def _children(element: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return (child for child in element if child.tag.rpartition("}")[2] == name)


def _text(element: ElementTree.Element, name: str) -> str:
    child = next(_children(element, name), None)
    if child is None or not child.text:
        raise malformed_xml()
    return child.text
