"""Lists of commits, pages of S3 listings, and the addresses in them."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa

from lakefs_gc.errors import (
    NamespaceError,
)
from lakefs_gc.formats import (
    address_readings,
    addresses,
    candidate_addresses,
    commits_csv,
    entry,
)
from lakefs_gc.storage.s3.errors import IncompleteListingError
from lakefs_gc.storage.s3.listing import parse_page, read_carefully, read_quickly
from lakefs_gc_tests.fuzz.targets.target import FILE, REFUSED, Finding, Target, agree, listed


def _read_csv(data: bytes) -> Any:
    batch = commits_csv.read_active_commits(data, FILE)
    rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    agree(commits_csv.write_active_commits(rows), data, "the commits, written again")
    return rows


def _csv_seeds() -> list[bytes]:
    ids = [f"{number:064x}" for number in range(4)]
    return [commits_csv.write_active_commits(rows) for rows in ([(ids[0], ids[1]), (ids[2], "")], [(ids[3], ids[3])])]


def _read_page(data: bytes) -> Any:
    """Read a page with the fast reader, and compare the result with the XML parser if the page is XML."""
    page = parse_page(data, "ns/")
    page.objects.validate(full=True)
    quick = read_quickly(data, "ns/")
    if quick is not None:
        try:
            careful = read_carefully(data, "ns/")
        except IncompleteListingError as error:
            if "not XML" in str(error):
                # The damage is in an unused part, such as the id of an owner. All used parts are complete.
                return None
            raise Finding(f"the quick way accepts a page that the XML parser refuses: {error}") from None
        for name in ("levels", "truncated", "token"):
            agree(list(getattr(quick, name)), list(getattr(careful, name)), f"{name}, quick and by the XML parser")
        agree(listed(quick.objects), listed(careful.objects), "objects, quick and by the XML parser")
    return [listed(page.objects), page.sub_prefixes, page.next_token]


def _page(keys: list[str], levels: list[str], token: str, *, encoded: bool, size_first: bool = False) -> bytes:
    """``size_first``: as SeaweedFS writes an object."""

    def text(key: str) -> str:
        return quote_plus(key, safe="/") if encoded else key

    time, tag, stored = (
        "<LastModified>2025-06-01T12:00:00.123Z</LastModified>",
        "<ETag>&#34;e&#34;</ETag>",
        "<StorageClass>STANDARD</StorageClass>",
    )
    first, last = (tag, stored + time) if size_first else (time + tag, stored)
    contents = "".join(
        f"<Contents><Key>ns/{text(key)}</Key>{first}<Size>{number}</Size>{last}</Contents>"
        for number, key in enumerate(keys)
    )
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>b</Name><Prefix>ns/</Prefix>{more}{'<EncodingType>url</EncodingType>' if encoded else ''}"
        f"<IsTruncated>{str(bool(token)).lower()}</IsTruncated>{contents}"
        + "".join(f"<CommonPrefixes><Prefix>ns/{text(level)}</Prefix></CommonPrefixes>" for level in levels)
        + "</ListBucketResult>"
    ).encode()


def _page_seeds() -> list[bytes]:
    return [
        _page(["data/s/a b", "data/s/é%+", "marker/"], ["data/t/"], "token==", encoded=True),
        _page(["data/s/a&amp;b", "x"], [], "", encoded=False),
        _page(["data/s/a b", "data/s/c"], [], "token==", encoded=True, size_first=True),
        _page([], [], "", encoded=False),
        _page(["one\ntwo"], [], "", encoded=True),
    ]


_JAVA_LIKE = re.compile(candidate_addresses.CANDIDATE_ADDRESS_REGEX)
_JAVA_LIKE_STRANGER = re.compile(candidate_addresses.UNRECOGNIZED_NAME_REGEX)


def _is_no_file(key: str, namespace: str) -> bool:
    """Return whether a key of a local store is a path with parts such as ``..``."""
    return address_readings.is_local(namespace) and bool({"", ".", ".."} & set(key.split("/")))


def _read_address(data: bytes) -> Any:
    """Compare three ways to decide whether an address may be deleted, and two ways to make it relative."""
    try:
        address = data.decode()
    except UnicodeDecodeError:
        return REFUSED
    candidate = candidate_addresses.is_candidate_address(address)
    agree(
        candidate_addresses.are_candidate_addresses(pa.array([address]))[0].as_py(), candidate, f"candidate {address!r}"
    )
    stranger = candidate_addresses.has_unrecognized_name(address)
    agree(
        candidate_addresses.have_unrecognized_names(pa.array([address]))[0].as_py(), stranger, f"stranger {address!r}"
    )
    agree(_JAVA_LIKE_STRANGER.search(address) is not None, stranger, f"stranger {address!r}")
    agree(_JAVA_LIKE.match(address) is not None, candidate, f"the pattern of {address!r}")
    for kind in entry.AddressType:
        batch = pa.record_batch({"address": [address], "address_type": pa.array([kind], pa.int8())})
        for namespace in ("s3://bucket/ns", "local://repo/"):
            relative = addresses.relative_address(address, kind, namespace)
            below = addresses.entries_below(batch, addresses.spellings(namespace, namespace)).column("address")
            if relative is not None and not _is_no_file(relative, namespace):
                agree(below[0].as_py(), relative, f"{kind!r} {address!r}")
            elif relative is None and not {"%", "?"} & set(address):
                agree(below.to_pylist(), [], f"{kind!r} {address!r}")
            if relative is not None and relative != address:
                scheme, mark, rest = address.partition("://")
                if namespace.startswith("s3://"):  # a user name and an empty host are ignored
                    rest = re.sub(r"\A[^/?]*@", "", rest).lstrip("/")
                same = scheme.lower() + mark + rest  # the case of a scheme is ignored
                agree(addresses.normalize_namespace(namespace) + relative, same, "inside the namespace")
    with suppress(NamespaceError):
        namespace = addresses.normalize_namespace(address)
        agree(addresses.normalize_namespace(namespace), namespace, "a namespace, normalized twice")
    return candidate


def _address_seeds() -> list[bytes]:
    full = [
        "s3://bucket/ns/data/a",
        "s3://bucket/ns2/a",
        "local://repo/data/x",
        "LOCAL://repo/a",
        "s3://me@bucket/ns/a",
        "s3:///bucket/ns/a",
    ]
    below = ["data/s/id,sig", "root", "dummy", "_lakefs/x", "data/../x", "data/a\n", "data//x", "data/./x", "data/\0"]
    return [text.encode() for text in full + below]


TARGETS = (
    Target("commits_csv", _read_csv, _csv_seeds),
    Target("s3_page", _read_page, _page_seeds, (IncompleteListingError,)),
    Target("address", _read_address, _address_seeds),
)
