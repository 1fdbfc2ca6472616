"""What an address may mean beside its own key, by the kind of the store."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakefs_gc.formats.addresses import entries_below, key_as_path, leaving_addresses, spellings
from lakefs_gc.formats.entry import AddressType

AZURE = "https://me.blob.core.windows.net/c/repo"


def keys_of(namespace: str, address: str, address_type: AddressType) -> list[str]:
    """Return the keys that an address of an entry may mean in a namespace, beside a usual entry."""
    types = [AddressType.RELATIVE, address_type]
    columns = [pa.array(["data/first", address]), pa.array(types, pa.int8())]
    batch = pa.record_batch(columns, names=["address", "address_type"])
    found: list[str] = entries_below(batch, spellings(namespace, namespace)).column("address").to_pylist()
    return found[1:]


@pytest.mark.parametrize(
    ("address", "keys"),
    [
        (r"data/s\a", ["data/s/a"]),
        (r"data\s\a", ["data/s/a"]),
        (r"data/s/a\b.parquet", ["data/s/a/b.parquet"]),
        (r"data/s\\a", ["data/s/a"]),
        (r"data/s\..\a", ["data/a"]),
        (r"_lakefs\a", []),
    ],
)
@pytest.mark.parametrize("namespace", ["s3://b/repo", "gs://b/repo", AZURE, "s3://b"])
def test_backslashes_of_a_relative_address_may_be_slashes(namespace: str, address: str, keys: list[str]) -> None:
    assert keys_of(namespace, address, AddressType.RELATIVE) == [address, *keys]


@pytest.mark.parametrize(
    ("address", "keys"),
    [
        (r"data/s\a", [r"data/s\a", "data/s/a"]),
        ("data/s%5Ca", ["data/s%5Ca", r"data/s\a", "data/s/a"]),
        (r"data/s\a?x", [r"data/s\a?x", r"data/s\a", "data/s/a?x", "data/s/a"]),
    ],
)
@pytest.mark.parametrize("namespace", ["s3://b/repo", AZURE])
def test_backslashes_of_a_full_address_may_be_slashes(namespace: str, address: str, keys: list[str]) -> None:
    found = keys_of(namespace, f"{namespace}/{address}", AddressType.FULL)
    assert found[0] == keys[0]
    assert set(keys) <= set(found)


def test_a_file_system_keeps_backslashes() -> None:
    for address_type, address in ((AddressType.RELATIVE, r"data/s\a"), (AddressType.FULL, r"local://repo/data/s\a")):
        assert keys_of("local://repo", address, address_type) == [r"data/s\a"]
    assert key_as_path(r"data/s\a", "file:///srv/lake/", "file:///srv/lake/") is None


def test_backslashes_may_lead_out_of_the_namespace_of_another_repository() -> None:
    address = r"..\lake\data\x"
    columns = [pa.array([address]), pa.array([AddressType.RELATIVE], pa.int8())]
    assert leaving_addresses(pa.record_batch(columns, names=["address", "address_type"])) == [address]
    assert key_as_path(address, "s3://b/other/", "s3://b/lake/") == "data/x"
