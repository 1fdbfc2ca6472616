"""What several moves use."""

from __future__ import annotations

from collections.abc import Callable

from lakefs_gc.engine.collect.references.active_ranges import METADATA_FOLDER, METADATA_ID
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc_tests.properties.asset_collector import AssetCollector
from lakefs_gc_tests.properties.seeded import SeededHistory

OTHERS = "other_repositories_were_read"


def new_mark(h: SeededHistory, collector: AssetCollector, also_on: set[str] | None = None) -> Mark:
    """Mark with this collector; ``also_on`` are checks that may fail."""
    return h.mark_with(collector, also_on)


def usual_overrides(mark: Mark) -> list[str]:
    """The checks that a person overrides in a test. An unknown other repository is never overridden."""
    return [check.name for check in mark.checks if not check.passed and check.name != OTHERS]


def sweep_safely(h: SeededHistory, collector: AssetCollector, mark: Mark) -> None:
    """Sweep the approved mark, and assert that no live object is lost."""
    with h.nothing_live_is_lost():
        collector.sweep_approved(mark)
    h._count_swept(collector)


def spoil(store: ObjectStore, keys: list[str], how: str) -> Callable[[], object]:
    """Remove, truncate or change objects. Return a function that repairs them."""
    if how != "gone":
        keys = [key for key in keys if METADATA_ID.fullmatch(key.removeprefix(METADATA_FOLDER))]
    before = dict(store.read_many(keys))
    if how == "gone":
        store.delete_many(keys)
    for key, content in before.items():
        if how != "gone":
            store.put(key, spoiled(content, how))
    return lambda: [store.put(key, content) for key, content in before.items()]


def spoiled(content: bytes, how: str) -> bytes:
    """Return the content truncated, or with one bit changed."""
    middle = len(content) // 2
    if how == "truncated":
        return content[:middle]
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
