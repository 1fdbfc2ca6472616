"""The permissions on the page are exactly those that requests to Azure's and Google's stores need.

The requests are recorded before the emulators.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.storage.base import VersionedTarget
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.emulators import EMULATORS
from lakefs_gc_tests.support.needed_permissions import documented, needed
from lakefs_gc_tests.support.store_proxy import before_azurite, before_fake_gcs


@pytest.mark.parametrize("kind", ["azure", "gcs"])
def test_what_a_run_asks_a_store_for_needs_the_permissions_of_the_page(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = request.getfixturevalue(f"{kind}_namespace")
    emulator = request.getfixturevalue(EMULATORS[kind])
    with before_azurite(emulator) if kind == "azure" else before_fake_gcs(emulator) as (proxy, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        store = open_store(location)
        keys = ["data/a", "data/b", "data/c"]
        for key in keys:
            store.put(key, b"1")
        assert not store.put("data/a", b"2", if_absent=True)
        assert store.list_level("data/")[1].num_rows == len(keys)
        assert store.read("data/a") == store.read_end("data/a", 1) == b"1"
        assert store.content_md5(keys)
        store.now()
        store.space_not_freed()
        seen = store.stat_many([*keys, "data/none"])
        newest = utc_now() + timedelta(minutes=1)
        store.delete_unchanged([VersionedTarget(key, seen[key], newest) for key in keys[:2]])
        assert store.stat_many(keys).keys() == {"data/c"}
        store.copy_to("data/c", store, "data/d")
        assert needed(kind, proxy.requests) == documented(kind) != set()
