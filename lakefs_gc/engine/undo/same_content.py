"""Whether two objects have the same content, or one has what was recorded of it, and what proves it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from lakefs_gc.errors import BackupError
from lakefs_gc.storage.base import ContentFacts, ObjectStore

_BLOCK_BYTES = 1024 * 1024
_READABLE = ("md5", "sha256")
# Best first.  A CRC is no proof against malice, but it and the size are one against accidents.
_STORED = ("sha256", "md5", "crc64nvme", "sha1", "crc32c", "crc32")


@dataclass(frozen=True)
class Proof:
    """What shows that two objects are the same: the checksum, its algorithm, and where it came from.

    ``by`` is ``stores`` when both stores said it, or ``reading`` when at least one of the two objects was read.
    """

    algorithm: str
    checksum: str
    by: str

    def __str__(self) -> str:
        return f"{self.algorithm} by {self.by}"


def same_content(
    left: ObjectStore, left_key: str, right: ObjectStore, right_key: str, *, known: ContentFacts | None = None
) -> tuple[Proof | None, ContentFacts | None, ContentFacts | None]:
    """The proof that both objects exist and are the same, None when they are not; and what is known of each.

    The stores are asked first (the left one only without ``known``, its object's facts), and an object is read only
    where they have no checksum in common.  Raises ``ObjectNotFoundError`` for an object that disappears while it is
    read.
    """
    here, there = known or left.content_facts(left_key), right.content_facts(right_key)
    if here is None or there is None or here.size_bytes != there.size_bytes:
        return None, here, there
    ours, theirs = dict(here.checksums), dict(there.checksums)
    algorithm, by = next((a for a in _STORED if a in ours and a in theirs), ""), "stores"
    if not algorithm:
        algorithm, by = next((a for a in _READABLE if a in ours or a in theirs), "sha256"), "reading"
        for checksums, store, key in ((ours, left, left_key), (theirs, right, right_key)):
            if algorithm not in checksums:
                checksums[algorithm] = checksum_of(store, key, algorithm)
    if ours[algorithm] != theirs[algorithm]:
        return None, here, there
    return Proof(algorithm, ours[algorithm], by), here, there


def recorded_content(store: ObjectStore, key: str, size_bytes: int, checksum: str) -> ContentFacts | None:
    """Facts of a copy that is what a backup recorded: its size, and ``<algorithm>:<checksum>``; None when it is gone.

    The checksum is among the facts.  The copy is read only where the store does not state that algorithm.  Raises
    ``BackupError`` when it is something else, or nobody can tell, ``ObjectNotFoundError`` when it disappears meanwhile.
    """
    facts = store.content_facts(key)
    if facts is None:
        return None
    algorithm, _, recorded = checksum.partition(":")
    found = facts.checksums.get(algorithm)
    if found is None and facts.size_bytes == size_bytes:
        if algorithm not in _READABLE:
            raise BackupError(
                "the copy cannot be proved to be what was backed up: its store no longer states the checksum that was "
                f"recorded ({algorithm or 'none'})",
                remedy="look at the copy, and bring it back by hand (see README, The undo)",
            )
        found = checksum_of(store, key, algorithm)
    if (facts.size_bytes, found) != (size_bytes, recorded):
        raise BackupError(
            "the copy is not what was backed up: it was changed in the place of the backups",
            remedy="put the right copy there, from an earlier version or another copy of the place, and restore again",
        )
    return ContentFacts(size_bytes, {**facts.checksums, algorithm: recorded})


def checksum_of(store: ObjectStore, key: str, algorithm: str) -> str:
    """Hex digest (``md5`` or ``sha256``) of an object, read as a stream."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with store.open_read(key) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
