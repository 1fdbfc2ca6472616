"""Repeated addresses are dropped, and no address is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefs_gc.engine.collect.references import repeats
from lakefs_gc.engine.collect.references.repeats import without_repeats

SCHEMA = pa.schema([("address", pa.string()), ("number", pa.int64())])
Rows = list[tuple[str, int]]


@pytest.fixture(autouse=True)
def small_windows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "_WINDOW_ROWS", 8)
        yield


def rows_of(batches: list[list[str]]) -> Rows:
    return [(address, number) for number, address in enumerate(a for batch in batches for a in batch)]


def left(batches: list[list[str]]) -> Rows:
    rows = iter(rows_of(batches))
    given = [
        pa.RecordBatch.from_arrays(
            [pa.array(addresses, pa.string()), pa.array([next(rows)[1] for _ in addresses], pa.int64())], schema=SCHEMA
        )
        for addresses in batches
    ]
    found = list(without_repeats(given))
    assert all(batch.schema == SCHEMA for batch in found)
    return [(row["address"], row["number"]) for batch in found for row in batch.to_pylist()]


@given(st.lists(st.lists(st.sampled_from(["a", "b", "ä", "", "c/d", "c/e", "x", "y", "z"]) | st.text(), max_size=9)))
def test_no_address_is_lost(batches: list[list[str]]) -> None:
    rows, found = rows_of(batches), left(batches)
    assert {address for address, _ in found} == {address for address, _ in rows}
    assert found == [row for row in rows if row in set(found)], "rows of the input, in their order, each once"
    first = dict(reversed(rows))
    assert set(first.items()) <= set(found), "the first of each"
    assert len(found) == len(first) or len(rows) > 8, "within a window there is each once"


def test_batches_of_the_same_addresses_become_one() -> None:
    assert left([["a", "b", "c"]] * 100) == [("a", 0), ("b", 1), ("c", 2)]


def test_windows_are_skipped_after_one_without_repeats() -> None:
    different = [[f"{batch}/{row}" for row in range(8)] for batch in range(8)]
    repeated = [["a"] * 8] * 3
    assert len(left(different)) == 64
    # One window of different addresses, and seven that are not compared, whatever their content.
    assert len(left(different[:1] + repeated * 3)) == 8 + 7 * 8 + 1


def test_a_window_half_full_of_different_addresses_is_yielded() -> None:
    """Otherwise memory would grow with the number of different addresses."""
    half = [[f"a{row % 5}" for row in range(8)]] * 4
    assert len(left(half)) == 4 * 5


def test_a_row_with_another_size_stays() -> None:
    schema = pa.schema([("address", pa.string()), ("size", pa.int64())])
    rows = [("a", 1), ("b", 2), ("a", 1), ("a", 5), ("b", 2)]
    batches = [pa.RecordBatch.from_pylist([{"address": address, "size": size} for address, size in rows], schema)]
    kept = [(row["address"], row["size"]) for batch in without_repeats(batches) for row in batch.to_pylist()]
    assert kept == [("a", 1), ("b", 2), ("a", 5)]
