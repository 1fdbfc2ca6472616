"""Pages of List Blobs: the two ways to read one agree, and a page that is not complete is an error."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import pytest

from lakefs_gc.errors import ConfigurationError, StorageError
from lakefs_gc.storage.azure.client import Answer, AzureClient
from lakefs_gc.storage.azure.errors import IncompleteAnswerError, refused
from lakefs_gc.storage.azure.listing import _read_carefully, _read_quickly, parse_page
from lakefs_gc.storage.azure.store import AzureStore
from lakefs_gc.storage.location import StoreLocation

BLOB = (
    "<Blob><Name>{}</Name><Properties><Creation-Time>x</Creation-Time>"
    "<Last-Modified>Tue, 24 Nov 2026 17:18:56 GMT</Last-Modified><Etag>0x1</Etag>"
    "<Content-Length>7</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob>"
)
LEVEL = "<BlobPrefix><Name>ns/d/</Name></BlobPrefix>"


def page(content: str, end: str = "<NextMarker>more</NextMarker></EnumerationResults>") -> bytes:
    return f'\ufeff<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>{content}</Blobs>{end}'.encode()


def test_no_damage_hides_a_blob() -> None:
    """Only the XML parser sees all damage. The quick way may overlook some, in parts that nobody uses."""
    body = page(BLOB.format("ns/a") + LEVEL + BLOB.format("ns/e") + BLOB.format("ns/f"))
    intact, accepted = _lists(_read_carefully(body)), 0
    for at in range(len(body)):
        for changed in (
            *(body[:at] + byte + body[at + 1 :] for byte in (b"<", b">", b"/", b"&", b"x", b"\xff")),
            *(body[:at] + body[at + lost :] for lost in (1, 7, 40, 80, 200)),
        ):
            quick = _read_quickly(changed)
            if quick is None or b"\xff" in b"".join(
                (*quick.names, *quick.levels, *quick.times)
            ):  # not UTF-8, refused later
                continue
            accepted += 1
            try:
                expected = _lists(_read_carefully(changed))
            except IncompleteAnswerError:
                expected = intact
            assert _lists(quick) == expected, changed
    assert accepted > 500


MIDDLE = BLOB.format("ns/m")


@pytest.mark.parametrize(
    "respelled",
    [
        re.sub(r"<(/?[A-Za-z-]+)>", r"<\1 >", MIDDLE),
        re.sub(r"<([A-Za-z-]+)>", r"<\1\n>", MIDDLE),
        re.sub(r"<([A-Za-z-]+)>", r'<\1 a="b">', MIDDLE),
        f"</Blobs><Blobs>{MIDDLE}",
        f"</Blobs><NextMarker>m</NextMarker><Blobs>{MIDDLE}",
        f"<Folder>{MIDDLE}</Folder>",
        "&middle;",
    ],
)
@pytest.mark.parametrize("head", ['encoding="utf-8"', 'encoding="iso-8859-1"', ""])
def test_a_blob_in_another_spelling_is_listed_or_refused(respelled: str, head: str) -> None:
    body = page(BLOB.format("ns/a") + respelled + BLOB.format("ns/\u017f"))
    body = body.replace(b'encoding="utf-8"', head.encode())
    if respelled == "&middle;":
        declared = f"<!DOCTYPE EnumerationResults [<!ENTITY middle '{MIDDLE}'>]><EnumerationResults>"
        body = body.replace(b"<EnumerationResults>", declared.encode(), 1)
    quick = _read_quickly(body)
    try:
        careful = _read_carefully(body)
    except IncompleteAnswerError:
        assert quick is None or b"ns/m" in quick.names
        return
    assert b"ns/m" in careful.names
    assert quick is None or _lists(quick) == _lists(careful)


def _lists(parts: Any) -> list[Any]:
    return [list(getattr(parts, name)) for name in ("names", "times", "sizes", "levels", "marker")]


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


@pytest.mark.parametrize("names", [["b", "a"], ["a", "a"], ["a", "c", "b", "d"]])
def test_names_ascend(names: list[str]) -> None:
    body = page("".join(BLOB.format(f"ns/{name}") for name in names))
    with pytest.raises(StorageError, match="not list in the order"):
        parse_page(body, "ns/", "acct")


@pytest.mark.parametrize("prefix", ["ns/b", "ns/a/"])
def test_a_page_of_another_prefix_is_refused(prefix: str) -> None:
    """It may be the answer to another request."""
    body = page(BLOB.format("ns/a"))
    assert parse_page(body, "ns/", "acct", prefix="ns/a").objects["address"].to_pylist() == ["a"]
    with pytest.raises(IncompleteAnswerError, match=f"the store returned names outside '{prefix}'"):
        parse_page(body, "ns/", "acct", prefix=prefix)
    folder = page("<BlobPrefix><Name>ns/a/</Name></BlobPrefix>")
    assert parse_page(folder, "ns/", "acct", prefix="ns/a").sub_prefixes == ["a/"]
    with pytest.raises(IncompleteAnswerError, match="outside"):
        parse_page(folder, "ns/", "acct", prefix="ns/b")


def test_a_page_may_say_its_prefix() -> None:
    """Then a page without blobs is not taken for that of another prefix."""

    def saying(prefix: str) -> bytes:
        return page("").replace(b"<Blobs>", f"<Prefix>{prefix}</Prefix><Blobs>".encode())

    for stated in ("", "ns/a&amp;b/"):
        assert parse_page(saying(stated), "ns/", "acct", prefix="ns/a&b/").objects.num_rows == 0
    with pytest.raises(IncompleteAnswerError, match="a page is one of the prefix"):
        parse_page(saying("ns/c/"), "ns/", "acct", prefix="ns/a&b/")


def test_a_page_comes_after_the_page_before() -> None:
    body = page(BLOB.format("ns/b"))
    assert parse_page(body, "ns/", "acct", b"ns/a").last_name == b"ns/b"
    for after in (b"ns/b", b"ns/c"):
        with pytest.raises(StorageError, match="not list in the order"):
            parse_page(body, "ns/", "acct", after)
    # The order of other names depends on an encoding that nobody documents.
    other_order = page(BLOB.format("ns/\U0001f600") + BLOB.format("ns/\ufffd"))
    assert parse_page(other_order, "ns/", "acct").objects.num_rows == 2


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AzureStore]:
    """Return a function of pages. Its store gets them one after the other; an empty one is an error."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "acct")
    monkeypatch.setenv("AZURE_STORAGE_KEY", base64.b64encode(b"key").decode())

    def store_of(*pages: bytes) -> AzureStore:
        left = list(pages)

        def send(client: AzureClient, method: str, name: str = "", **options: Any) -> Answer:
            if options["query"].get("comp") != "list":
                return Answer(200, {"x-ms-is-hns-enabled": "false"}, b"")
            if not (body := left.pop(0)):
                raise refused(400, "InvalidQueryParameterValue", b"")
            return Answer(200, {}, body)

        monkeypatch.setattr(AzureClient, "send", send)
        return AzureStore(StoreLocation("https://acct.blob.core.windows.net/c/ns/"))

    return store_of


LAST = "<NextMarker /></EnumerationResults>"


def test_a_listing_that_goes_back_is_an_error(listing: Callable[..., AzureStore]) -> None:
    """A marker that leads to an earlier page would hide what lies between."""
    store = listing(page(BLOB.format("ns/b")), page(BLOB.format("ns/a"), LAST))
    with pytest.raises(StorageError, match="not list in the order"):
        list(store.list())


@pytest.mark.parametrize(
    ("answer", "starts", "said"),
    [
        (page("", LAST), True, ""),
        (page(BLOB.format("ns/a"), LAST), False, "it ignores startFrom"),
        (b"", False, "InvalidQueryParameterValue"),
    ],
)
def test_an_account_that_cannot_start_at_a_name_is_listed_page_after_page(
    listing: Callable[..., AzureStore], caplog: pytest.LogCaptureFixture, answer: bytes, starts: bool, said: str
) -> None:
    store = listing(answer)
    assert store.lists_by_page is starts
    assert said in caplog.text
    assert ("not in parallel" in caplog.text) is not starts


def test_a_token_over_http_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "acct")
    monkeypatch.setenv("AZURE_STORAGE_SERVICE_ENDPOINT", "http://127.0.0.1:9/acct")
    monkeypatch.delenv("AZURE_STORAGE_KEY", raising=False)
    store = AzureStore(StoreLocation("https://acct.blob.core.windows.net/c/ns/"))
    with pytest.raises(ConfigurationError, match="AZURE_STORAGE_KEY"):
        list(store.list())


def test_a_hierarchical_namespace_is_refused() -> None:
    body = page(BLOB.format("ns/a").replace("<BlobType>", "<ResourceType>directory</ResourceType><BlobType>"))
    with pytest.raises(ConfigurationError, match="hierarchical namespace"):
        parse_page(body, "ns/", "acct")
