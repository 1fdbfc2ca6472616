"""Whether a delete gives the bytes back: versions, soft delete and object lock keep them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakefs_gc.errors import StorageError
from lakefs_gc.storage.base import ObjectStore


@dataclass(frozen=True)
class DeletedBytes:
    """``fate`` of the bytes of a deleted object, and why; ``unknown`` where the credentials may not ask."""

    fate: Literal["go", "stay", "unknown"]
    why: str

    def __str__(self) -> str:
        return f"{self.fate}: {self.why}"


def deleted_bytes(store: ObjectStore) -> DeletedBytes:
    """What becomes of the bytes when an object of this store is deleted. Raises nothing for a store that refuses."""
    try:
        why = store.keeps_deleted_bytes()
    except StorageError as error:
        return DeletedBytes("unknown", error.message)
    return DeletedBytes("stay", why) if why else DeletedBytes("go", "the store keeps no versions")
