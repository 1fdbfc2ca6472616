"""Whether a delete frees space: versions, soft delete and object lock keep the bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakefs_gc.errors import StorageError
from lakefs_gc.storage.base import ObjectStore


@dataclass(frozen=True)
class FreedSpace:
    """Whether a delete frees space at once, and why; ``unknown`` if the credentials do not permit the question."""

    state: Literal["freed at once", "not freed", "unknown"]
    why: str

    def __str__(self) -> str:
        return f"{self.state}: {self.why}"


def freed_space(store: ObjectStore) -> FreedSpace:
    """Return whether a delete in this store frees space at once; ``unknown`` if the store refuses to answer."""
    try:
        why = store.space_not_freed()
    except StorageError as error:
        return FreedSpace("unknown", error.message)
    return FreedSpace("not freed", why) if why else FreedSpace("freed at once", "the store keeps no versions")
