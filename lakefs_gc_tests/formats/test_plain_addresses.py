"""Batches that are taken as they are: whatever looks at each row must come to the same result."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefs_gc.errors import NamespaceError
from lakefs_gc.formats.addresses import spellings
from lakefs_gc.formats.entry import AddressType
from lakefs_gc.formats.plain_addresses import are_only_keys, are_plain
from lakefs_gc.lakefs import known_folders
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.addresses import CANDIDATES, ISSUED, OTHERS

NAMESPACES = {
    "s3://bucket/lake/": "s3://bucket/lake/",
    "s3://bucket/": "s3://bucket/",
    "https://a.blob.core.windows.net/bucket/lake/": "https://a.blob.core.windows.net/bucket/lake/",
    "local://lake/": "file:///var/lake/",
    "local:///var/lake/": "file:///var/lake/",
}
TYPES = [AddressType.RELATIVE] * 6 + [AddressType.FULL, AddressType.BY_PREFIX]


def batch_of(*entries: tuple[str, int]) -> pa.RecordBatch:
    addresses, types = zip(*entries, strict=True) if entries else ((), ())
    columns = [pa.array(addresses, pa.string()), pa.array(types, pa.int8())]
    return pa.record_batch(columns, names=["address", "address_type"])


def relative(*addresses: str) -> pa.RecordBatch:
    return batch_of(*((address, AddressType.RELATIVE) for address in addresses))


def known(namespace: str) -> KnownFolders:
    url = NAMESPACES[namespace]
    return KnownFolders(namespace, StoreLocation(url), tuple(spellings(namespace, url)), (), ())


def looked_at_one_by_one(batch: pa.RecordBatch, namespace: str, of_other: tuple[str, ...]) -> pa.RecordBatch | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_folders, "are_only_keys", lambda batch: False)
        try:
            return known(namespace).entries(batch, of_other=of_other)
        except NamespaceError:
            return None


def check(batch: pa.RecordBatch) -> bool:
    if not are_only_keys(batch):
        return False
    for namespace in NAMESPACES:
        for of_other in ((), (namespace.replace("lake", "other"),)):
            taken = known(namespace).entries(batch, of_other=of_other)
            assert taken == looked_at_one_by_one(batch, namespace, of_other), (batch.to_pylist(), namespace, of_other)
    return True


@given(
    st.lists(
        st.tuples(
            st.sampled_from(CANDIDATES + OTHERS) | st.text("da/.:%\\lS3x", max_size=12) | st.text("ab./", max_size=4),
            st.sampled_from(TYPES),
        ),
        max_size=4,
    )
)
def test_what_is_taken_as_it_is(entries: list[tuple[str, int]]) -> None:
    check(batch_of(*entries))


def test_every_short_address() -> None:
    texts = ["".join(letters) for length in range(5) for letters in product("/.:a%\\", repeat=length)]
    taken = [text for text in texts if are_only_keys(relative(text))]
    assert {"a", "a/a", "a.a", "aa/a"} <= set(taken)
    assert not {"", "/", "/a", "a/", "a//a", "./a", "a/.", "a/..", "..", "a:a", "a%a", "a\\a"} & set(taken)
    for text in taken:
        # Beside others, too: all rows of a batch are looked through at once.
        assert check(relative("a", text, "a")), text


def test_issued_addresses_are_taken_from_any_part_of_a_column() -> None:
    batch = relative("/", *ISSUED, "a/")
    assert not are_only_keys(batch)
    assert not are_only_keys(batch.slice(1))
    assert check(batch.slice(1, len(ISSUED)))
    assert are_plain(batch.slice(1, len(ISSUED)))
    assert check(batch.slice(1, 0))


@pytest.mark.parametrize("address_type", [AddressType.FULL, AddressType.BY_PREFIX])
def test_only_relative_addresses_are_taken(address_type: AddressType) -> None:
    assert not are_only_keys(batch_of((ISSUED[0], AddressType.RELATIVE), (ISSUED[0], address_type)))


def test_plain_addresses_need_not_be_taken_as_they_are() -> None:
    assert are_plain(relative("data/x/"))
    assert not are_only_keys(relative("data/x/"))
    assert not are_plain(relative(ISSUED[0], "data/../x"))
