"""Objects that no branch shows, with unusual names among them."""

from __future__ import annotations

from lakefs_gc_tests.support.lake import LakeRepository

KEYS = ("data/s/one", "data/s/two", "data/t/id,signature", "data/t/é +%", "root object")


def strays(repository: LakeRepository, keys: tuple[str, ...] = KEYS) -> dict[str, bytes]:
    """Put objects with these keys, and return the content of each."""
    contents = {key: f"content of {key}".encode() for key in keys}
    for key, content in contents.items():
        repository.put_stray(key, content)
    return contents
