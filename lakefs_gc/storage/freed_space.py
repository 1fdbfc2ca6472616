"""Whether a delete frees space: versions, soft delete and object lock keep the bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakefs_gc.errors import StorageError
from lakefs_gc.formats.address_readings import LOCAL_STORE, is_local
from lakefs_gc.storage.base import ObjectStore


@dataclass(frozen=True)
class FreedSpace:
    """Whether a delete frees space at once, and why; ``unknown`` if the credentials do not permit the question."""

    state: Literal["freed at once", "not freed", "unknown"]
    why: str

    def __str__(self) -> str:
        return f"{self.state}: {self.why}"


def hides_versions(store: ObjectStore, namespace: str) -> bool:
    """Return whether a store is a folder, and its namespace in an object store: its versions are not in the folder.

    A bucket that is mounted as a folder shows its current objects only. So does a copy.
    """
    return store.location.url.startswith(LOCAL_STORE) and not is_local(namespace)


def freed_space(store: ObjectStore, namespace: str = "") -> FreedSpace:
    """Return whether a delete in this store frees space at once; ``unknown`` if the store refuses to answer.

    With the URL of the ``namespace``, also if the store is only a folder through which that is reached.
    """
    if namespace and hides_versions(store, namespace):
        return FreedSpace("unknown", f"`mounts` leads from {namespace} to a folder, which does not show its versions")
    try:
        why = store.space_not_freed()
    except StorageError as error:
        return FreedSpace("unknown", error.message)
    return FreedSpace("not freed", why) if why else FreedSpace("freed at once", "the store keeps no versions")
