"""Copies one object of a mark to its backup, and decides what the backup records about it."""

from __future__ import annotations

from dataclasses import dataclass

from lakefs_gc.engine.records.backups.manifest import ALREADY_GONE, COPIED, FAILED, SIZE_ONLY, BackupPaths
from lakefs_gc.engine.undo.same_content import Proof, best_checksum, same_content
from lakefs_gc.errors import LakeFSGCError, ObjectNotFoundError
from lakefs_gc.storage.base import ObjectStore


@dataclass(frozen=True)
class Planned:
    """An object of a mark: its size, if that is known, and the outcome that an earlier backup recorded."""

    address: str
    size: int | None
    recorded: str | None

    def has_size(self, size_bytes: int) -> bool:
        """Return whether an object or copy of this size may be the one that was marked."""
        return self.size in (None, size_bytes)


@dataclass(frozen=True)
class CopyRecord:
    """What happened to an object: a row of ``schemas.BACKUP``."""

    address: str
    size: int | None
    outcome: str
    proof: str = ""
    checksum: str = ""
    error: str = ""

    @property
    def is_without_original(self) -> bool:
        """Return whether it was recorded because the namespace does not show the object."""
        return self.outcome == ALREADY_GONE or self.proof == SIZE_ONLY


def copy_one(
    namespace: ObjectStore, target: ObjectStore, paths: BackupPaths, planned: Planned
) -> tuple[CopyRecord | None, LakeFSGCError | None]:
    """Copy and compare one object.

    Returns its record (None if the earlier record still holds), and the error if the copy failed with one.
    """
    address, copy = planned.address, paths.objects + planned.address
    try:
        if planned.recorded == COPIED:
            facts = target.content_facts(copy)
            if facts is not None and planned.has_size(facts.size_bytes):
                return None, None
            if namespace.content_facts(address) is None:
                error = "neither the original nor the copy that was recorded exists"
                return CopyRecord(address, planned.size, FAILED, error=error), None
        proof, original, _ = same_content(namespace, address, target, copy)
        if original is not None and proof is None and planned.has_size(original.size_bytes):
            namespace.copy_to(address, target, copy)
            proof, original, _ = same_content(namespace, address, target, copy)
        if original is None:
            return _without_original(target, copy, planned), None
        return _proved(planned, original.size_bytes, proof), None
    except ObjectNotFoundError as not_found:
        return _gone_or_failed(namespace, target, copy, planned, not_found)
    except LakeFSGCError as failure:
        return CopyRecord(address, planned.size, FAILED, error=failure.message), failure


def _proved(planned: Planned, size_bytes: int, proof: Proof | None) -> CopyRecord:
    if not planned.has_size(size_bytes):
        # lakeFS never changes an object, and the sweep deletes this one as the mark describes it.
        error = f"the object has {size_bytes:,} bytes, but {planned.size:,} in the mark: make a new mark"
        return CopyRecord(planned.address, planned.size, FAILED, error=error)
    if proof is None:
        return CopyRecord(planned.address, size_bytes, FAILED, error="the copy differs from the original")
    return CopyRecord(planned.address, size_bytes, COPIED, str(proof), f"{proof.algorithm}:{proof.checksum}")


def _gone_or_failed(
    namespace: ObjectStore, target: ObjectStore, copy: str, planned: Planned, error: LakeFSGCError
) -> tuple[CopyRecord, LakeFSGCError | None]:
    """Return the record of an object during whose copy something did not exist: the object, or the backup's bucket.

    If a store cannot answer which of them, the copy has failed: only a proved absence counts as gone (rule 12).
    """
    try:
        if namespace.content_facts(planned.address) is None:
            return _without_original(target, copy, planned), None
    except LakeFSGCError as failure:
        error = failure
    return CopyRecord(planned.address, planned.size, FAILED, error=error.message), error


def _without_original(target: ObjectStore, copy: str, planned: Planned) -> CopyRecord:
    """Return the record of an object that does not exist any more: its copy counts if an earlier backup made it.

    A sweep may have deleted the object, and the records of the backup may be lost or not written. Nothing but the copy
    can bring it back then. Stores show no copy before it is whole, so its size shows that it is the one.
    """
    facts = target.content_facts(copy)
    if facts is None:
        return CopyRecord(planned.address, planned.size, ALREADY_GONE)
    if not planned.has_size(facts.size_bytes):
        error = f"the original does not exist, and its copy has {facts.size_bytes:,} bytes instead of {planned.size:,}"
        return CopyRecord(planned.address, planned.size, FAILED, error=error)
    return CopyRecord(planned.address, facts.size_bytes, COPIED, SIZE_ONLY, best_checksum(target, copy, facts))
