"""A repository with three live objects and two garbage objects."""

from __future__ import annotations

from lakefs_gc_tests.support.lake import LakeRepository

LIVE, GARBAGE = 3, 2


def with_garbage(repository: LakeRepository) -> LakeRepository:
    for number in range(LIVE):
        repository.put(f"live/{number}")
    repository.commit()
    for number in range(GARBAGE):
        repository.put_stray(f"data/garbage-{number}", b"twelve bytes")
    return repository
