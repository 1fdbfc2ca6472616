"""Pages of List Blobs: the two ways to read one agree, and a page that is not complete is an error."""

from __future__ import annotations

import pytest

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage.azure.errors import IncompleteAnswerError
from lakefs_gc.storage.azure.listing import _read_carefully, _read_quickly, parse_page

BLOB = (
    "<Blob><Name>{}</Name><Properties><Creation-Time>x</Creation-Time>"
    "<Last-Modified>Tue, 24 Nov 2026 17:18:56 GMT</Last-Modified><Etag>0x1</Etag>"
    "<Content-Length>7</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob>"
)
LEVEL = "<BlobPrefix><Name>ns/d/</Name></BlobPrefix>"


def page(content: str, end: str = "<NextMarker>more</NextMarker></EnumerationResults>") -> bytes:
    return f'\ufeff<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>{content}</Blobs>{end}'.encode()


def test_both_ways_read_the_same() -> None:
    body = page("".join(BLOB.format(f"ns/{name}") for name in ("a", "é", "", "folder/")) + LEVEL)
    quick, careful = _read_quickly(body), _read_carefully(body)
    assert quick is not None
    for parts in ("names", "times", "sizes", "levels", "marker"):
        assert list(getattr(quick, parts)) == list(getattr(careful, parts))
    read = parse_page(body, "ns/", "acct")
    assert read.objects["address"].to_pylist() == ["a", "é"]
    assert read.objects["size"].to_pylist() == [7, 7]
    assert (read.sub_prefixes, read.next_marker) == (["d/"], "more")


def test_names_that_xml_cannot_contain() -> None:
    encoded = BLOB.replace("<Name>", '<Name Encoded="true">').format("ns/%01%25")
    read = parse_page(page(encoded + BLOB.format("ns/&lt;&amp;")), "ns/", "acct")
    assert read.objects["address"].to_pylist() == ["\x01%", "<&"]


@pytest.mark.parametrize(
    "body",
    [
        page(BLOB.format("ns/a"))[:-5],
        page(BLOB.format("ns/a"), "</EnumerationResults>"),
        page(BLOB.format("elsewhere/a")),
        page(BLOB.format("ns/a").replace("<Content-Length>7</Content-Length>", "")),
        page(BLOB.format("ns/a").replace("24 Nov", "24 Foo")),
        page(BLOB.format("ns/a").replace("<Properties>", "<VersionId>1</VersionId><Properties>")),
        b"",
    ],
)
def test_a_page_that_is_not_complete(body: bytes) -> None:
    with pytest.raises(IncompleteAnswerError):
        parse_page(body, "ns/", "acct")


def test_a_hierarchical_namespace_is_refused() -> None:
    body = page(BLOB.format("ns/a").replace("<BlobType>", "<ResourceType>directory</ResourceType><BlobType>"))
    with pytest.raises(ConfigurationError, match="hierarchical namespace"):
        parse_page(body, "ns/", "acct")
