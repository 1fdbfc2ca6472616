"""The ranges of metaranges that the process remembers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakefs_gc.engine.workspace import known_ranges as module
from lakefs_gc.engine.workspace.known_ranges import known_ranges, remember_ranges


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RANGES_OF", {})
    monkeypatch.setattr(module, "_names", 0)


def names(*ranges: str) -> pa.Table:
    return pa.table({"range_id": pa.array(ranges, pa.string()), "entries": pa.array([1] * len(ranges), pa.int64())})


def test_what_was_read_in_one_folder_is_not_known_of_another() -> None:
    remember_ranges("s3://bucket/a/", "m", names("r", "s"))
    remember_ranges("s3://bucket/a/", "empty", names())
    found = known_ranges("s3://bucket/a/", ["m", "other", "empty"])
    assert {key: ranges["range_id"].to_pylist() for key, ranges in found.items()} == {"m": ["r", "s"], "empty": []}
    assert known_ranges("s3://bucket/b/", ["m"]) == {}


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_NAMES", 5)
    for number in range(4):
        remember_ranges("", str(number), names("r", "s"))
        remember_ranges("", "0", names("r", "s"))  # once more
    remember_ranges("", "short", names("r"))
    assert known_ranges("", ["0", "1", "2", "3", "short"]).keys() == {"0", "1", "short"}
