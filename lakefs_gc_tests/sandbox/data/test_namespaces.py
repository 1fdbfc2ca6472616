"""The namespaces that a sandbox accepts, and how addresses are stored and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefs_gc.errors import ConfigurationError, NamespaceError
from lakefs_gc.formats.entry import AddressType, Entry
from lakefs_gc.sandbox.data.namespaces import Namespaces, relative_if_data, shown_address
from lakefs_gc.sandbox.problems import ApiError
from lakefs_gc.storage.location import StoreLocation

S3 = Namespaces(StoreLocation("s3://bucket/root"))
LOCAL = Namespaces(StoreLocation("file:///somewhere"))


@pytest.mark.parametrize("namespace", ["s3://bucket/root/repo", "s3://bucket/root/repo/"])
def test_a_namespace_inside_the_root_is_accepted(namespace: str) -> None:
    S3.check_namespace(namespace)


@pytest.mark.parametrize("namespace", ["s3://bucket/root-evil/x", "s3://other/root/x", "s3://bucket", "local://x"])
def test_a_namespace_outside_the_root_is_rejected(namespace: str) -> None:
    with pytest.raises(ApiError) as caught:
        S3.check_namespace(namespace)
    assert caught.value.status == 400


@pytest.mark.parametrize("namespace", ["local://../x", "local://a/../../x", "local://a//b", "local://"])
def test_a_local_namespace_that_leads_outside_the_root_is_rejected(namespace: str) -> None:
    with pytest.raises((ApiError, NamespaceError)):
        LOCAL.check_namespace(namespace)


def test_a_root_of_an_unsupported_store_is_rejected() -> None:
    with pytest.raises(ConfigurationError):
        Namespaces(StoreLocation("oss://bucket/x"))


@pytest.mark.parametrize(
    ("address", "address_type"),
    [
        ("data/s/1", AddressType.RELATIVE),
        ("local://demo/data/s/1", AddressType.FULL),
        ("local://demo/data/s/1", AddressType.BY_PREFIX),
        ("data/s/1", AddressType.BY_PREFIX),
    ],
)
def test_one_object_has_several_addresses(tmp_path: Path, address: str, address_type: AddressType) -> None:
    namespaces = Namespaces(StoreLocation(tmp_path.as_uri()))
    namespaces.store("local://demo").put("data/s/1", b"bytes")
    store, key = namespaces.place("local://demo", Entry(address, address_type, 5, 0))
    assert store.read(key) == b"bytes"


def test_an_address_outside_the_namespace_is_read_at_its_location(tmp_path: Path) -> None:
    namespaces = Namespaces(StoreLocation(tmp_path.as_uri()))
    namespaces.store("local://demo-evil").put("a/b", b"outside")
    store, key = namespaces.place("local://demo", Entry("local://demo-evil/a/b", AddressType.FULL, 7, 0))
    assert store.read(key) == b"outside"


@pytest.mark.parametrize(
    ("address", "stored"),
    [
        ("s3://b/repo/data/s/1", ("data/s/1", AddressType.RELATIVE)),
        ("s3://b/repo/other/1", ("s3://b/repo/other/1", AddressType.FULL)),
        ("s3://b/repo/database/1", ("s3://b/repo/database/1", AddressType.FULL)),
        ("s3://b/repo-evil/data/1", ("s3://b/repo-evil/data/1", AddressType.FULL)),
    ],
)
def test_only_addresses_in_data_are_stored_relative(address: str, stored: tuple[str, AddressType]) -> None:
    for namespace in ("s3://b/repo", "s3://b/repo/"):
        assert relative_if_data(namespace, address) == stored


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("s3://b/plain", "s3://b/plain"),
        ("s3://b/pct%20a", "s3://b/pct a"),
        ("s3://b/pct%2Bc", "s3://b/pct%2Bc"),
        ("s3://b/cut?x=1", "s3://b/cut"),
        ("s3://b/hash#1", "s3://b/hash#1"),
        ("s3://b/é", "s3://b/é"),
    ],
)
def test_full_addresses_are_shown_as_go_parses_them(address: str, shown: str) -> None:
    assert shown_address("s3://b/repo", address, AddressType.FULL) == shown
