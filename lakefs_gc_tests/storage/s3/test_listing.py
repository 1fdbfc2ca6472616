"""The quick reading of a page agrees with an XML parser's, and with botocore's, on whatever a store writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import escape

import pytest
from botocore.parsers import create_parser
from botocore.session import Session
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefs_gc.storage.base import LISTING_SCHEMA
from lakefs_gc.storage.s3 import listing
from lakefs_gc.storage.s3.errors import IncompleteListingError
from lakefs_gc.storage.s3.listing import parse_page, read_carefully, read_quickly

TIME = "2025-06-01T12:00:00.123Z"
xml_text = st.text(
    st.characters(min_codepoint=32, exclude_categories=["Cs"], exclude_characters="\x7f\ufffe\uffff"), max_size=12
)


@pytest.fixture(autouse=True, scope="module", params=[0, 1_000_000], ids=["compiled", "short"])
def short_pages(request: pytest.FixtureRequest) -> Iterator[None]:
    """Read short pages with compiled code, or with the XML parser, as the first pages of a process are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "_SHORT_PAGES", request.param)
        patch.setattr(listing, "_LONG_PAGES", request.param)
        yield


ETAG = "<ETag>&#34;e&#34;</ETag>"
FACTS = (
    f"<LastModified>{TIME}</LastModified>",
    ETAG,
    "<Size>{}</Size>",
    "<Owner><ID>Key</ID></Owner>",
    "<StorageClass>STANDARD</StorageClass>",
)
"""What S3 says of an object after its key."""
SEAWEEDFS = (FACTS[1], FACTS[2], FACTS[4], FACTS[0])
"""The same of SeaweedFS."""


def page(
    keys: list[str],
    *,
    levels: list[str] | None = None,
    encode: Any = None,
    more: str = "",
    gap: str = "",
    facts: Sequence[str] = FACTS,
    prefix: str = "",
) -> bytes:
    def text(key: str) -> str:
        return encode(key) if encode else escape(key)

    contents = gap.join(
        f"<Contents><Key>{text(key)}</Key>{''.join(facts).format(number)}</Contents>" for number, key in enumerate(keys)
    )
    between = gap.join(f"<CommonPrefixes><Prefix>{text(level)}</Prefix></CommonPrefixes>" for level in levels or [])
    token = f"<NextContinuationToken>{escape(more)}</NextContinuationToken>" if more else ""
    encoding = "<EncodingType>url</EncodingType>" if encode else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>b</Name><Prefix>{text(prefix)}</Prefix>{token}{encoding}<IsTruncated>{str(bool(more)).lower()}</IsTruncated>{gap}"
        f"{contents}{gap}{between}</ListBucketResult>"
    ).encode()


def _rows(fields: Any) -> Any:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(fields).items()}


@settings(deadline=None)  # the first page waits for the compiler
@given(
    keys=st.lists(xml_text.map(lambda text: f"ns/{text}"), max_size=6),
    levels=st.lists(xml_text.map(lambda text: f"ns/{text}/"), max_size=3),
    encode=st.sampled_from([None, quote_plus, quote, lambda key: quote(key, safe="")]),
    more=st.sampled_from(["", "token==", "a&b<c"]),
    gap=st.sampled_from(["", "\n  ", "<!-- a comment -->"]),
    facts=st.permutations(FACTS),
)
def test_keys_come_out_as_they_went_in(
    keys: list[str], levels: list[str], encode: Any, more: str, gap: str, facts: list[str]
) -> None:
    body = page(keys, levels=levels, encode=encode, more=more, gap=gap, facts=facts)
    read = parse_page(body, "ns/")
    objects = [(key[3:], number) for number, key in enumerate(keys) if not key.endswith("/")]
    assert [(row["address"], row["size"]) for row in read.objects.to_pylist()] == objects
    assert read.sub_prefixes == [level[3:] for level in levels]
    assert read.next_token == more
    assert read.objects.schema.equals(LISTING_SCHEMA)
    quick = read_quickly(body, "ns/")
    assert quick is None or _rows(quick) == _rows(read_carefully(body, "ns/"))


def test_the_usual_pages_go_the_quick_way() -> None:
    assert read_quickly(page(["ns/a", "ns/b%2Cc"], levels=["ns/d/"], encode=quote_plus, more="t"), "ns/") is not None
    assert read_quickly(page(["ns/a"]), "ns/") is not None
    assert read_quickly(page(["ns/a"], facts=SEAWEEDFS), "ns/") is not None


def damaged(body: bytes) -> Iterator[bytes]:
    """The page with each byte replaced by some others, and without some bytes from each position on."""
    for at in range(len(body)):
        yield from (body[:at] + byte + body[at + 1 :] for byte in (b"<", b">", b"/", b"&", b"x", b"\xff"))
        yield from (body[:at] + body[at + lost :] for lost in (1, 7, 40, 80))


@pytest.mark.parametrize("facts", [FACTS, SEAWEEDFS], ids=["S3", "SeaweedFS"])
def test_no_damage_hides_an_object(facts: Sequence[str]) -> None:
    """Only the XML parser sees all damage. The quick way may overlook some, in parts that nobody uses."""
    body = page([f"ns/{name}" for name in "abc"], levels=["ns/d/"], encode=quote, more="t", facts=facts)
    intact = _rows(read_carefully(body, "ns/"))
    accepted = 0
    for changed in damaged(body):
        try:
            quick = read_quickly(changed, "ns/")
        except (IncompleteListingError, UnicodeDecodeError):
            continue
        if quick is None:
            continue
        accepted += 1
        try:
            expected = _rows(read_carefully(changed, "ns/"))
        except IncompleteListingError:
            expected = intact
        assert _rows(quick) == expected, changed
    assert accepted > 500


@pytest.mark.parametrize(
    "around",
    [
        "<A>{}</A>",
        "<!-- {} -->",
        "<?a {} ?>",
        '<A b="{}"></A>',
        "<![CDATA[{}]]>",
        "{}<B><IsTruncated>true</IsTruncated></B>",
    ],
)
def test_objects_are_children_of_the_page(around: str) -> None:
    contents = page(["ns/a"]).partition(b"<Contents>")[2].rpartition(b"</Contents>")[0].decode()
    body = page([]).replace(
        b"</ListBucketResult>", around.format(f"<Contents>{contents}</Contents>").encode() + b"</ListBucketResult>"
    )
    quick = read_quickly(body, "ns/")
    try:
        assert quick is None or _rows(quick) == _rows(read_carefully(body, "ns/"))
    except IncompleteListingError:
        assert quick is None


@pytest.mark.parametrize("lost", ["LastModified", "Size"])
@pytest.mark.parametrize("facts", [FACTS, SEAWEEDFS], ids=["S3", "SeaweedFS"])
def test_an_object_has_each_fact_once(lost: str, facts: Sequence[str]) -> None:
    """In the first, the middle and the last object of a page, whose neighbors have theirs."""
    (fact,) = (fact for fact in facts if lost in fact)
    keys = [f"ns/{number}" for number in range(3)]
    for number in range(3):
        objects = page(keys, facts=facts).split(b"<Contents>")
        said = fact.format(number).encode()
        for wrong in (b"", 2 * said, said + b"<A>b</A>" + said):
            objects[number + 1] = page(keys, facts=facts).split(b"<Contents>")[number + 1].replace(said, wrong)
            with pytest.raises(IncompleteListingError, match=lost):
                parse_page(b"<Contents>".join(objects), "ns/")


def test_objects_as_short_as_can_be() -> None:
    contents = b"<Contents><Key>%d</Key><LastModified>2025-06-01T12:00:00Z</LastModified><Size>0</Size></Contents>"
    body = page([]).replace(b"</ListBucketResult>", b"".join(contents % n for n in range(10)) + b"</ListBucketResult>")
    assert parse_page(body, "").objects["address"].to_pylist() == [str(number) for number in range(10)]
    assert read_quickly(body, "") is not None


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)), st.integers(0, 6))
def test_times_are_read_as_arrow_reads_them(time: datetime, digits: int) -> None:
    fraction = f".{time.microsecond:06d}"[: digits + 1] if digits else ""
    body = page(["a"]).replace(TIME.encode(), f"{time:%Y-%m-%dT%H:%M:%S}{fraction}Z".encode())
    quick = read_quickly(body, "")
    assert quick is not None
    assert quick.objects == read_carefully(body, "").objects


@pytest.mark.parametrize(
    "time",
    [
        "2025-02-29T12:00:00Z",
        "2100-02-29T12:00:00Z",
        "2025-13-01T12:00:00Z",
        "2025-01-32T12:00:00Z",
        "2025-01-01T24:00:00Z",
        "2025-01-01",
        "",
    ],
)
def test_what_is_no_time_is_refused(time: str) -> None:
    with pytest.raises(IncompleteListingError):
        parse_page(page(["a"]).replace(TIME.encode(), time.encode()), "")


@pytest.mark.parametrize("key", ["other/a", "n", "ns", ""])
@pytest.mark.parametrize("encode", [None, quote_plus])
def test_a_key_outside_the_root_is_refused(key: str, encode: Any) -> None:
    with pytest.raises(IncompleteListingError, match="outside"):
        parse_page(page(["ns/a", key], encode=encode), "ns/")


@pytest.mark.parametrize("keys", [["ns/b/a", "ns/a/b"], ["ns/a"], ["ns/b/a"]])
@pytest.mark.parametrize("encode", [None, quote_plus])
def test_a_page_of_another_prefix_is_refused(keys: list[str], encode: Any) -> None:
    """It may be the answer to another request."""
    with pytest.raises(IncompleteListingError, match="the store returned keys outside 'ns/a/'"):
        parse_page(page(keys, encode=encode), "ns/", "a/")
    with pytest.raises(IncompleteListingError, match="the store returned keys outside 'ns/a/'"):
        parse_page(page([], levels=keys, encode=encode), "ns/", "a/")
    assert len(parse_page(page(["ns/a/b"], levels=["ns/a/c/"], encode=encode), "ns/", "a/").objects) == 1


@pytest.mark.parametrize("keys", [[], ["ns/a b/c"]])
@pytest.mark.parametrize("encode", [None, quote_plus])
def test_a_page_may_say_its_prefix(keys: list[str], encode: Any) -> None:
    """Then a page without objects is not taken for that of another prefix."""
    for prefix in ("ns/a b/", ""):
        assert len(parse_page(page(keys, encode=encode, prefix=prefix), "ns/", "a b/").objects) == len(keys)
    like_ceph = page([], encode=encode).replace(b"<Prefix></Prefix>", b"<Prefix>ns/a+b%20/</Prefix>")
    assert len(parse_page(like_ceph, "ns/", "a+b%20/").objects) == 0, "it encodes keys, but not the prefix"
    with pytest.raises(IncompleteListingError, match="a page is one of the prefix 'ns/b/', not of 'ns/a b/'"):
        parse_page(page(keys, encode=encode, prefix="ns/b/"), "ns/", "a b/")


@pytest.mark.parametrize("damaged", [b"<ETag>e</Etag>", b"<ETag>e<ETag>", b"<A><B>e</A></B>", b"<A>e</AA>"])
def test_tags_must_match(damaged: bytes) -> None:
    with pytest.raises(IncompleteListingError):
        parse_page(page(["a"]).replace(ETAG.encode(), damaged), "")


def test_botocore_reads_the_same() -> None:
    keys = ["ns/a b", "ns/a+b", "ns/ü,%25"]
    body = page(keys, more="t", encode=quote_plus)
    model = Session().get_service_model("s3").operation_model("ListObjectsV2")
    answer = {"status_code": 200, "headers": {}, "body": body}
    assert model.output_shape is not None
    theirs = create_parser("rest-xml").parse(answer, model.output_shape)
    (first, *_) = ours = parse_page(body, "").objects.to_pylist()
    assert [row["size"] for row in ours] == [entry["Size"] for entry in theirs["Contents"]]
    assert first["last_modified"] == theirs["Contents"][0]["LastModified"]
    assert [row["address"] for row in ours] == keys


@given(st.data())
def test_no_cut_of_a_page_passes_for_a_page(data: st.DataObject) -> None:
    body = page(["ns/a", "ns/b", "ns/c"], levels=["ns/d/"], encode=quote_plus)
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(IncompleteListingError):
        parse_page(body[:cut], "ns/")
