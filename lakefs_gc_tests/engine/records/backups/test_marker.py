"""A local backup location is told from the empty folder where its disk is mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefs_gc.engine.records.backups.marker import MARKER, why_unproved, write_marker
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store


def test_a_folder_shows_that_it_is_a_backup_location_by_its_marker_or_a_backup(tmp_path: Path) -> None:
    store = open_store(StoreLocation(tmp_path.as_uri()))
    assert MARKER in why_unproved(store, [])
    assert MARKER in why_unproved(store, ["lake/no mark/"])
    for key in ("cache/tmp/x", "lake/m1/objects/data/s/a", "Lost+Found/m1/began.json", "lake/no mark/began.json"):
        store.put(key, b"")
    folders = ["Lost+Found/m1/", "cache/tmp/", "lake/m1/", "lake/m2/", "lake/no mark/"]
    assert MARKER in why_unproved(store, folders)
    for record in ("lake/m1/backup.json", "lake/m2/began.json"):
        store.put(record, b"")
        assert why_unproved(store, folders) == ""
        store.delete_many([record])
    store.delete_many([key for batch in store.list() for key in batch.column("address").to_pylist()])
    for _ in range(2):
        write_marker(store)
        assert why_unproved(store, []) == ""
    assert store.list_level("")[1].column("address").to_pylist() == [MARKER]


@pytest.mark.parametrize(
    "url", ["s3://bucket/backups", "gs://bucket/backups", "https://account.blob.core.windows.net/c/b"]
)
def test_a_bucket_is_asked_for_no_marker(url: str) -> None:
    store = open_store(StoreLocation(url))
    write_marker(store)
    assert why_unproved(store, []) == ""
