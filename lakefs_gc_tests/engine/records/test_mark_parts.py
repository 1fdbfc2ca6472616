"""The overview that a person reads before approving, also for a mark that does not record sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefs_gc.engine.records.mark_parts import PrefixTotal, overview
from lakefs_gc.engine.records.stored_marks import read_mark
from lakefs_gc.errors import MarkError
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.client_marks import UNIFIED, write_client_mark

NAMESPACE = "local://lake/"


def test_a_mark_of_lakefs_own_client(tmp_path: Path) -> None:
    store = open_store(StoreLocation(f"file://{tmp_path}"))
    write_client_mark(
        store, UNIFIED, ["root", "data/b/1", "data/a/1"], ["data/b/2"], [f"data/{n}/x" for n in range(20)]
    )
    mark = read_mark(store, "lake", NAMESPACE, "m1")
    seen = overview(store, mark)
    assert seen.largest_prefixes[:3] == (
        PrefixTotal("data/b/", 2, 0),
        PrefixTotal("(root)", 1, 0),
        PrefixTotal("data/0/", 1, 0),
    )
    assert len(seen.largest_prefixes) == 10
    assert seen.sample == ({"address": "root"}, {"address": "data/b/1"}, {"address": "data/a/1"})
    write_client_mark(store, UNIFIED, ["root"])
    with pytest.raises(MarkError, match="was changed after the mark was made"):
        overview(store, mark)
