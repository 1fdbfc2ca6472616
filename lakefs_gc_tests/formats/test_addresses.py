"""Namespaces, and what an address in one of them may mean."""

from __future__ import annotations

import re
from itertools import product

import pyarrow as pa
import pytest

from lakefs_gc.errors import NamespaceError
from lakefs_gc.formats import addresses
from lakefs_gc.formats.addresses import (
    all_spellings,
    entries_below,
    is_whole_bucket,
    key_as_path,
    keys_below,
    leaving_addresses,
    local_addresses_elsewhere,
    namespaces_overlap,
    normalize_namespace,
    relative_address,
    server_spellings,
    spellings,
)
from lakefs_gc.formats.candidate_addresses import (
    is_candidate_address,
)
from lakefs_gc.formats.entry import AddressType

NAMESPACE = "s3://bucket/é/repo"


@pytest.mark.parametrize(
    ("namespace", "whole"),
    [
        ("s3://bucket", True),
        ("s3://bucket/", True),
        ("S3://bucket//", True),
        ("gs://bucket", True),
        ("https://account.blob.core.windows.net/container", True),
        ("http://account.blob.core.windows.net//container", True),
        ("s3://bucket/lake", False),
        ("gs://bucket/a/b/", False),
        ("https://account.blob.core.windows.net/container/lake", False),
        ("local://lake", False),
    ],
)
def test_a_namespace_may_be_a_whole_bucket(namespace: str, whole: bool) -> None:
    assert is_whole_bucket(namespace) == whole


@pytest.mark.parametrize(
    ("namespace", "normalized"),
    [
        ("s3://b", "s3://b/"),
        ("s3://b/p", "s3://b/p/"),
        ("s3://b/p/", "s3://b/p/"),
        ("s3://b/p//", "s3://b/p/"),
        ("local:///data/repo", "local:///data/repo/"),
        ("https://account.blob.core.windows.net/c/p", "https://account.blob.core.windows.net/c/p/"),
    ],
)
def test_a_namespace_ends_in_one_slash(namespace: str, normalized: str) -> None:
    assert normalize_namespace(namespace) == normalized


@pytest.mark.parametrize("namespace", ["", "/", "bucket/prefix", "s3://", "s3:///", "s3:/b", "://b"])
def test_these_are_not_namespaces(namespace: str) -> None:
    with pytest.raises(NamespaceError):
        normalize_namespace(namespace)


@pytest.mark.parametrize(
    ("left", "right", "overlap"),
    [
        ("s3://b/repo", "s3://b/repo/", True),
        ("s3://b/repo", "s3://b/repo/sub", True),
        ("s3://b", "s3://b/repo/", True),
        ("s3://b/repo", "s3://b/repo2", False),
        ("s3://b/repo", "s3://b/Repo", False),
        ("s3://b/repo", "s3://b2/repo", False),
        # A lakeFS server (1.84) makes repositories at each of these.
        ("s3://b/repo", "s3://me@b/repo/data/inner", True),
        ("s3://b/repo", "s3://b//repo/data/inner", True),
        ("s3://b/a repo", "s3://b/a%20repo/data/inner", True),
        ("s3://b/repo?x=1", "s3://b/repo/data/inner", True),
        ("s3://b/repo", "s3://b@b2/repo/data/inner", False),
    ],
)
def test_overlap_of_namespaces(left: str, right: str, overlap: bool) -> None:
    assert namespaces_overlap(left, right) == namespaces_overlap(right, left) == overlap


RELATIVE, FULL, BY_PREFIX = AddressType.RELATIVE, AddressType.FULL, AddressType.BY_PREFIX
RESOLVED = [
    ("data/a", RELATIVE, "data/a"),
    ("s3://bucket/é/repo/data/a", RELATIVE, "s3://bucket/é/repo/data/a"),
    ("s3://bucket/é/repo/data/a", FULL, "data/a"),
    ("s3://bucket/é/repo/pct%20a", FULL, "pct%20a"),
    ("s3://bucket/é/repo/", FULL, ""),
    ("s3://bucket/é/repo", FULL, None),
    ("s3://bucket/é/repo-evil/data/a", FULL, None),
    ("s3://bucket/e\u0301/repo/data/a", FULL, None),
    ("gs://bucket/é/repo/data/a", FULL, None),
    ("data/a", FULL, "data/a"),
    ("abcdef", BY_PREFIX, "abcdef"),
    ("s3://bucket/é/repo/root", BY_PREFIX, "root"),
    ("s3://other/root", BY_PREFIX, None),
    ("data/x://y", BY_PREFIX, "data/x://y"),
    ("S3://bucket/é/repo/data/capital", FULL, "data/capital"),
    ("s3://Bucket/é/repo/data/a", FULL, None),
    ("S3://bucket/é/repo/data/a", RELATIVE, "S3://bucket/é/repo/data/a"),
    ("s3://somebody@bucket/é/repo/data/named", FULL, "data/named"),
    ("s3://somebody@bucket/é/repo/data/a", RELATIVE, "s3://somebody@bucket/é/repo/data/a"),
]


@pytest.mark.parametrize("namespace", [NAMESPACE, NAMESPACE + "/"])
@pytest.mark.parametrize(("address", "address_type", "expected"), RESOLVED)
def test_relative_address(address: str, address_type: AddressType, expected: str | None, namespace: str) -> None:
    assert relative_address(address, address_type, namespace) == expected


def batch_of(rows: list[tuple[str, AddressType, str | None]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([row[0] for row in rows], pa.string()), pa.array([int(row[1]) for row in rows], pa.int8())],
        names=["address", "address_type"],
    )


def test_the_entries_of_a_batch_below_a_namespace() -> None:
    expected = [row[2] for row in RESOLVED if row[2] is not None]
    found = entries_below(batch_of(RESOLVED), spellings(NAMESPACE, NAMESPACE)).column("address").to_pylist()
    assert found == [*expected, "pct a", "data/x:/y"]  # lakeFS reads the one, a store with paths the other
    full = [row[2] for row in RESOLVED if row[2] is not None and row[2] != row[0]]
    found = entries_below(batch_of(RESOLVED), spellings(NAMESPACE, NAMESPACE), full_only=True)
    assert found.column("address").to_pylist() == [*full, "pct a"]


def test_the_entries_of_a_usual_batch_are_not_copied() -> None:
    batch = batch_of([row for row in RESOLVED if row[1] == RELATIVE and "//" not in row[0]])
    folders = spellings(NAMESPACE, NAMESPACE)
    assert entries_below(batch, folders) is batch
    assert entries_below(batch, folders, full_only=True).num_rows == 0
    assert entries_below(batch_of([]), folders).num_rows == 0


@pytest.mark.parametrize(
    ("address", "keys"),
    [
        ("s3://b/repo/q?x=1", ["q?x=1", "q"]),
        ("s3://b/repo/a%2Cb", ["a%2Cb", "a,b"]),
        ("s3://b/repo/a%3Fb", ["a%3Fb", "a?b"]),
        ("s3://b/repo/%C3%A9", ["%C3%A9", "é"]),
        ("S3://b/repo/A%2CB", ["A%2CB", "A,B"]),
        ("s3://b/repo/%C3", ["%C3"]),  # no name in UTF-8
        ("s3://b/repo/100%", ["100%"]),
        ("s3://b/r%65po/a", ["a"]),
        ("s3://b/repo2/a%20b", []),
        ("s3://other/repo/a%20b", []),
        ("local:///srv/data/repo/a", []),
        # A lakeFS server (1.84) reads each of these: Go takes a user's name out of the host, and SeaweedFS, which
        # keeps keys as paths, takes several slashes for one.
        ("s3://somebody@b/repo/data/a", ["data/a"]),
        ("S3://some:body@b/repo/data/a", ["data/a"]),
        ("s3://x@y@b/repo/data/a", ["data/a"]),
        ("s3://@b/repo/a%2Cb", ["a%2Cb", "a,b"]),
        ("s3:///b/repo/data/a", ["data/a"]),
        ("s3://b//repo/data/a", ["data/a"]),
        ("s3://b/repo//data/a", ["/data/a", "data/a"]),
        ("s3://b/repo/data//s///a", ["data//s///a", "data/s/a"]),
        ("s3://b/repo/data/a@b", ["data/a@b"]),
        ("s3://b@other/repo/data/a", []),
        ("s3://b/./repo/data/a", ["data/a"]),
        ("s3://b/repo/data/./a", ["data/./a", "data/a"]),
        ("s3://b/other/../repo/data/a", ["data/a"]),
        ("s3://b/repo/data/a/", ["data/a/"]),
        ("s3://b/../repo/data/a", []),
        ("s3://other?x@b/repo/data/a", []),
    ],
)
def test_what_a_full_address_may_mean(address: str, keys: list[str]) -> None:
    batch = batch_of([("data/first", RELATIVE, None), (address, FULL, None)])
    batch = batch.append_column("size", pa.array([1, 2]))
    found = entries_below(batch, spellings("s3://b/repo", "s3://b/repo/"))
    assert found.column("address").to_pylist() == ["data/first", *keys]
    assert found.column("size").to_pylist() == [1, *(2 for _ in keys)]


# As lakeFS 1.84 reads them (``pkg/block/azure/adapter.go``): the account is the first label of the host, the path is
# decoded, then trimmed.
IN_AZURE = [
    ("https://me.blob.core.windows.net/c/repo/data/a", ["data/a"]),
    ("http://me.blob.core.windows.net/c/repo/data/a", ["data/a"]),
    ("https://ME.Blob.core.windows.net/c/repo/data/a", ["data/a"]),
    ("https://me.blob.core.windows.net:443/c/repo/data/a", ["data/a"]),
    ("https://me.blob.core.windows.net:80/c/repo/data/a", ["data/a"]),
    ("https://me-secondary.blob.core.windows.net/c/repo/data/a", ["data/a"]),
    ("https://me.blob.core.chinacloudapi.cn/c/repo/data/a", ["data/a"]),
    ("https://me.z12.blob.storage.azure.net/c/repo/data/a", ["data/a"]),
    ("https://me.dfs.core.windows.net/c/repo/data/a", ["data/a"]),
    ("https://someone:secret@me.blob.core.windows.net/c/repo/data/a", ["data/a"]),
    ("HTTPS://me.blob.core.windows.net/c//repo/data/a", ["data/a"]),
    ("https://me.blob.core.windows.net//c/repo/data/a", ["data/a"]),
    ("https://me.blob.core.windows.net/%63/r%65po/data/a", ["data/a"]),
    ("https://me.blob.core.windows.net/%2Fc/repo/data/a", ["data/a"]),
    ("https://me.blob.core.windows.net/c%2Frepo%2Fdata%2Fa", ["data/a"]),
    ("https://me.blob.core.windows.net/c/repo/data/a?snapshot=x", ["data/a?snapshot=x", "data/a"]),
    ("https://me.blob.core.windows.net/c/repo/data/a%20b", ["data/a%20b", "data/a b"]),
    ("https://me.blob.core.windows.net/c/repo/data/a/", ["data/a/", "data/a"]),
    ("https://me.blob.core.windows.net/c/repo/data/a%2F", ["data/a%2F", "data/a", "data/a/"]),
    ("https://me.blob.core.windows.net/C/repo/data/a", []),
    ("https://me.blob.core.windows.net/c/repo2/data/a", []),
    ("https://you.blob.core.windows.net/c/repo/data/a", []),
    ("https://you@me2.blob.core.windows.net/c/repo/data/a", []),
    ("s3://me.blob.core.windows.net/c/repo/data/a", []),
]
AZURE = "https://me.blob.core.windows.net/c/repo"


@pytest.mark.parametrize("address_type", [FULL, BY_PREFIX, RELATIVE])
@pytest.mark.parametrize(
    "namespace", [AZURE, f"{AZURE}/", "http://ME.blob.core.usgovcloudapi.net:80/c//repo", f"{AZURE[:-4]}%72epo"]
)
@pytest.mark.parametrize(("address", "keys"), IN_AZURE)
def test_what_an_azure_address_may_mean(
    address: str, keys: list[str], namespace: str, address_type: AddressType
) -> None:
    """Whatever its type says: Azure's adapter reads each URL as a full address."""
    if address_type == RELATIVE and not address.lower().startswith("http"):
        keys = [address]
    folders = spellings(namespace, namespace)
    batch = batch_of([("data/first", RELATIVE, None), (address, address_type, None)])
    found = entries_below(batch, folders).column("address").to_pylist()
    assert found[0] == "data/first"
    assert set(found[1:]) == set(keys), address
    of_others = entries_below(batch, folders, full_only=True).column("address").to_pylist()
    assert set(of_others) == (set() if address.startswith("s3") else set(keys))
    if len(keys) == 1 and "%" not in address + namespace and "//repo" not in address + namespace:
        assert relative_address(address, address_type, namespace) == keys[0]


def test_other_spellings_of_an_azure_namespace_overlap() -> None:
    for other in ("http://me-secondary.blob.core.windows.net/c/repo/inner", "https://ME.blob.other.test:80//c/%72epo"):
        assert namespaces_overlap(AZURE, other), other
    for other in ("https://me.blob.core.windows.net/c/repo2", "https://you.blob.core.windows.net/c/repo"):
        assert not namespaces_overlap(AZURE, other), other


def test_a_relative_azure_address_is_a_literal_key() -> None:
    """lakeFS does not decode it, and it is not trimmed."""
    addresses = ["data/a%20b", "data/a?b", "data/https"]
    batch = batch_of([(address, RELATIVE, None) for address in addresses])
    assert entries_below(batch, spellings(AZURE, AZURE)).column("address").to_pylist() == addresses


@pytest.mark.parametrize(
    ("base", "folder"),
    [
        ("https://me.blob.core.windows.net/c/other/", "http://ME.blob.core.chinacloudapi.cn/c/repo/"),
        ("https://me.blob.core.windows.net/c/other/", f"{AZURE}/"),
    ],
)
def test_a_relative_azure_address_may_leave_its_namespace(base: str, folder: str) -> None:
    assert key_as_path("../repo/data/x", base, folder) == "data/x"


@pytest.mark.parametrize(
    ("address", "keys"),
    [
        ("gs://b/repo/data/a", ["data/a"]),
        ("GS://b/repo/data/a", ["data/a"]),
        ("gs://someone@b/repo/data/a", ["data/a"]),
        # Go keeps an encoded path if it is not the usual encoding (``RawPathFromURI``): the first is what lakeFS reads.
        ("gs://b/repo/data/a%2Fb", ["data/a%2Fb", "data/a/b"]),
        ("gs://b/repo/data/a%20b", ["data/a%20b", "data/a b"]),
        ("gs://b/repo/data/a?b", ["data/a?b", "data/a"]),
        ("gs://b/repo/data/a#b", ["data/a#b"]),
        ("gs://b/repo/data/a/", ["data/a/"]),
        ("gs://b//repo/data/a", ["data/a"]),
        ("gs:///b/repo/data/a", []),  # no bucket
        ("gs://B/repo/data/a", []),
        ("gs://b:80/repo/data/a", []),
        ("gs://b.example.com/repo/data/a", []),
        ("s3://b/repo/data/a", []),
    ],
)
def test_what_an_address_in_google_s_store_may_mean(address: str, keys: list[str]) -> None:
    found = entries_below(batch_of([(address, FULL, None)]), spellings("gs://b/repo", "gs://b/repo/"))
    assert found.column("address").to_pylist() == keys


def test_a_full_address_may_name_a_local_store_by_its_folder() -> None:
    folders = spellings("local://repo", "file:///srv/lake fs/repo/")
    assert folders == ("local://repo/", "local:///srv/lake fs/repo/")
    addresses = ["local://repo/data/a", "local:///srv/lake fs/repo/data/b", "local:///srv/lake fs/repo2/data/c"]
    found = entries_below(batch_of([(address, FULL, None) for address in addresses]), folders)
    assert found.column("address").to_pylist() == ["data/a", "data/b"]
    assert spellings("s3://b/repo", "s3://b/repo/") == ("s3://b/repo/",)


@pytest.mark.parametrize(
    ("address", "keys"),
    [
        ("local://repo/./data/a", ["data/a"]),
        ("local:///srv/repo/../repo/data/a", ["data/a"]),
        ("local:///srv/repo//data/a", ["data/a"]),
        ("local:///srv/repo/%2E/data/a", ["%2E/data/a", "data/a"]),
        ("local:///srv/repo/../alias/data/a", []),
        ("local:///srv/repo/data/..", []),
        ("local:///srv/repo/data/a/", ["data/a"]),
    ],
)
def test_a_path_with_dots_names_one_file(address: str, keys: list[str]) -> None:
    """A key with ``..`` would count as a missing live object."""
    folders = spellings("local://repo", "file:///srv/repo/")
    batch = batch_of([(address, FULL, None)])
    assert entries_below(batch, folders).column("address").to_pylist() == keys
    is_elsewhere = bool(local_addresses_elsewhere(batch, folders))
    assert is_elsewhere == (not keys), "what leaves the folder is looked at by the file that is there"
    found = entries_below(batch, folders, elsewhere={address: {"data/b"}} if is_elsewhere else {})
    assert found.column("address").to_pylist() == (keys or ["data/b"])


_XID = "d8qkpnu7d2p1v8s6l5j0"


@pytest.mark.parametrize(
    ("address", "keys"),
    [
        ("local:///data/data/data/s/a", ["data/s/a"]),
        ("local:///data/data/data/data/s/a", ["data/data/s/a", "data/s/a"]),
        ("local:///data/data/a", ["a"]),
    ],
)
def test_of_two_folders_one_may_be_in_the_other(address: str, keys: list[str]) -> None:
    """A server whose folder is ``/data`` has the namespace ``local://data``; it shows some addresses with it twice."""
    folders = ("local://data/", *server_spellings(f"local:///data/data/data/{_XID}/{_XID}", "local://data"))
    assert folders[1:] == ("local:///data/data/", "local:///data/data/data/")
    for order in (folders, (folders[0], *reversed(folders[1:]))):
        found = entries_below(batch_of([(address, FULL, None), ("data/b", RELATIVE, None)]), order)
        assert {key for key in found.column("address").to_pylist() if is_candidate_address(key)} == {*keys, "data/b"}
        assert {key for key in keys_below(address, order) if is_candidate_address(key)} == set(keys)


def test_of_two_folders_the_one_of_the_server_is_meant() -> None:
    """The server's folder is ``/data``; the collector has the namespace ``local://lake`` itself at ``/data``."""
    folders = all_spellings("local://lake", "file:///data/", ("local:///data/lake/",))
    address = "local:///data/lake/data/s/a"
    found = entries_below(batch_of([(address, FULL, None)]), folders)
    assert found.column("address").to_pylist() == ["data/s/a"], "another key would count as a lost object"
    assert keys_below(address, folders)[0] == "data/s/a"


@pytest.mark.parametrize(
    ("namespace", "address", "keys"),
    [
        ("s3://b/repo", "data//s/a", ["data//s/a", "data/s/a"]),
        ("s3://b", "/data/s/a", ["/data/s/a", "data/s/a"]),
        ("s3://b/repo", "data/s./a", ["data/s./a"]),
        ("local://repo", "data//s/a", ["data/s/a"]),
        ("local://repo", "data/s/../s/a", ["data/s/a"]),
        ("local://repo", "data/./s/a", ["data/s/a"]),
        ("local://repo", "data/s./a", ["data/s./a"]),
        ("local://repo", "data/../../repo/data/a", ["data/a"]),
        ("local://repo", "data/../../other/data/a", []),
        ("local://repo", "data/s/a/.", ["data/s/a"]),
        ("local://repo", "data/s/a/", ["data/s/a"]),
        ("s3://b/repo", "data/./s/a", ["data/./s/a", "data/s/a"]),
        ("s3://b/repo", "data/s/../a", ["data/s/../a", "data/a"]),
        ("s3://b/repo", "data/s/a/", ["data/s/a/"]),
        ("s3://b/repo", "../repo/data/a", ["../repo/data/a", "data/a"]),
    ],
)
@pytest.mark.parametrize("beside", [RELATIVE, FULL])
def test_what_a_relative_address_names_as_a_path(
    namespace: str, address: str, keys: list[str], beside: AddressType
) -> None:
    batch = batch_of([(address, RELATIVE, None), ("s3://elsewhere/a" if beside == FULL else "data/b", beside, None)])
    found = entries_below(batch, spellings(namespace, namespace)).column("address").to_pylist()
    assert [key for key in found if key != "data/b"] == keys
    assert entries_below(batch, spellings(namespace, namespace), full_only=True).num_rows == 0


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("data/../../lake/data/x", "data/x"),
        ("../lake/data/x", "data/x"),
        ("data/x/../../../lake//data/./x", "data/x"),
        ("data/x", None),
        ("data/../data/x", None),
        ("../lake-2/data/x", None),
        ("../../lake/data/x", None),
    ],
)
@pytest.mark.parametrize("root", ["file:///srv/", "s3://b/", "s3://b/a/"])
def test_a_relative_address_of_another_repository_that_leads_here(address: str, key: str | None, root: str) -> None:
    assert key_as_path(address, f"{root}other/", f"{root}lake/") == key
    batch = batch_of([("data/b", RELATIVE, None), (address, RELATIVE, None)])
    assert leaving_addresses(batch) == ([address] if ".." in address else [])
    elsewhere = {address: {key}} if key else {}
    found = entries_below(batch, spellings("s3://b/lake", "s3://b/lake"), full_only=True, elsewhere=elsewhere)
    assert found.column("address").to_pylist() == ([key] if key else [])


@pytest.mark.parametrize("namespace", ["s3://me@b/repo", "s3://b//repo", "s3:///b/repo", "S3://b/repo"])
def test_a_namespace_may_be_spelled_differently_from_an_address(namespace: str) -> None:
    """A mount leads to it, and lakeFS reads both as the same folder."""
    for address in (f"{namespace}/data/a", "s3://b/repo/data/a"):
        found = entries_below(batch_of([(address, FULL, None)]), spellings(namespace, "s3://b/repo/"))
        assert set(found.column("address").to_pylist()) == {"data/a"}, address


UNTIDY = re.compile(r"\A/|//|\./|/\.{0,2}\Z")


def test_addresses_that_may_have_empty_parts_are_found() -> None:
    """Alone, and beside others: the whole column is looked through first."""
    texts = ["".join(letters) for length in range(6) for letters in product("/.a", repeat=length)]
    expected = [bool(UNTIDY.search(text)) for text in texts]
    assert 0 < expected.count(True) < len(texts)
    for text, is_untidy in zip(texts, expected, strict=True):
        assert addresses._may_be_untidy(pa.array([text], pa.string())).to_pylist() == [is_untidy], text
    column = pa.array(["//", *texts, "a"], pa.string())
    assert addresses._may_be_untidy(column.slice(1, len(texts))).to_pylist() == expected
    tidy = [text for text, is_untidy in zip(texts, expected, strict=True) if not is_untidy]
    column = pa.array(["//", *tidy, "./"], pa.string())
    assert not any(addresses._may_be_untidy(column.slice(1, len(tidy))).to_pylist())
    assert addresses._may_be_untidy(pa.array([], pa.string())).to_pylist() == []
