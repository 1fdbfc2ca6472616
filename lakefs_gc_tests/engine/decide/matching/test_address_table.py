"""The hash of an address, and the table of references."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from lakefs_gc.engine.decide.matching.address_table import AddressTable, hashes_of

_MASK = (1 << 64) - 1
_MULTIPLIER = 0xC6A4A7935BD1E995


def murmur(data: bytes, seed: int) -> int:
    """MurmurHash64A, as its author wrote it; 1 in place of 0, which marks a free slot."""
    hashed = seed ^ len(data) * _MULTIPLIER & _MASK
    for i in range(0, len(data) - len(data) % 8, 8):
        word = int.from_bytes(data[i : i + 8], "little") * _MULTIPLIER & _MASK
        hashed = (hashed ^ ((word ^ word >> 47) * _MULTIPLIER & _MASK)) * _MULTIPLIER & _MASK
    if rest := data[len(data) - len(data) % 8 :]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 47) * _MULTIPLIER & _MASK
    return (hashed ^ hashed >> 47) or 1


def test_the_hash_is_murmurs() -> None:
    chosen = random.Random(1)
    texts = ["", "é" * 9, *("".join(chosen.choices("abcé/%", k=length)) for length in range(40))]
    for seed in (0, AddressTable(1).seed, _MASK):
        assert hashes_of(pa.array(texts), seed).tolist() == [murmur(text.encode(), seed) for text in texts]


def test_nobody_knows_the_hashes_of_a_table_in_advance() -> None:
    """Names with hashes that collide are easily made for a known seed."""
    assert AddressTable(1).seed != AddressTable(1).seed


@pytest.mark.parametrize("texts", [[], [""], ["", ""]])
def test_arrays_without_text(texts: list[str]) -> None:
    assert hashes_of(pa.array(texts, pa.string())).tolist() == [1] * len(texts)


def test_a_part_of_an_array_has_its_own_hashes() -> None:
    addresses = pa.array([f"data/{n}" * (n % 7) for n in range(100)])
    assert hashes_of(addresses[13:57]).tolist() == hashes_of(addresses).tolist()[13:57]


def test_an_object_is_found_with_its_size() -> None:
    stored = pa.array(["same", "other size", "staged", "staged and committed", "two sizes", "unreferenced"])
    table = AddressTable(9)
    table.add(hashes_of(pa.array(["staged", "staged and committed"])), None)
    committed = pa.array(["same", "other size", "staged and committed", "two sizes", "two sizes", "absent"])
    table.add(hashes_of(committed), pa.array([1, 2, 4, 5, 6, 7]))
    table.add(hashes_of(pa.array(["same"])), None)

    stays = table.find(hashes_of(stored), pa.array([1, 9, 3, 4, 5, 6]))

    assert stored.filter(pa.array(stays)).to_pylist() == ["other size", "two sizes", "unreferenced"]
    left = committed.filter(pa.array(table.unsettled(hashes_of(committed)))).to_pylist()
    assert left == ["other size", "two sizes", "two sizes", "absent"]
    # Not in the table: no object can have been found by it.
    assert table.unsettled(hashes_of(pa.array(["staged", "never added"]))).tolist() == [False, True]


@pytest.mark.parametrize("stated", [[-1], [-2], [-1, 7], [7, -1], [-1, None], [None, -1], [-3, 7, None]])
def test_an_object_whose_entry_states_a_size_that_no_object_has_stays(stated: list[int | None]) -> None:
    """Clients state -1 for an unknown size. Such an entry hides what a later one with its size puts in its place."""
    table, address = AddressTable(3), hashes_of(pa.array(["a"]))
    for size in stated:
        table.add(address, None if size is None else pa.array([size]))
    assert table.find(address, pa.array([7])).tolist() == [True]
    assert table.unsettled(address).tolist() == [True]


def test_two_objects_with_one_hash_keep_their_references() -> None:
    one_hash = np.array([5, 5], np.uint64)
    table = AddressTable(1)
    table.add(one_hash[:1], pa.array([1]))
    assert table.find(one_hash, pa.array([1, 2])).tolist() == [False, True]
    assert table.unsettled(one_hash[:1]).tolist() == [True]


def test_a_full_table_finds_all_and_refuses_more() -> None:
    addresses = pa.array([f"data/{n}" for n in range(5000)])
    sizes = pa.array(range(5000))
    table = AddressTable(5000)
    table.add(hashes_of(addresses), sizes)
    assert not table.find(hashes_of(addresses), sizes).any()
    assert table.find(hashes_of(pa.array([f"data/x{n}" for n in range(5000)])), sizes).all()
    with pytest.raises(ValueError, match="1 addresses, but there is room for 0"):
        table.add(hashes_of(pa.array(["one more"])), None)


def test_a_table_without_references_finds_nothing() -> None:
    assert AddressTable(0).find(hashes_of(pa.array(["data/a"])), pa.array([1])).tolist() == [True]
