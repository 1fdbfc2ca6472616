"""Whether two objects have the same content, and what proves it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

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
    left: ObjectStore, left_key: str, right: ObjectStore, right_key: str
) -> tuple[Proof | None, ContentFacts | None, ContentFacts | None]:
    """The proof that both objects exist and are the same, None when they are not; and what is known of each.

    The stores are asked first, and an object is read only where they have no checksum in common.  Raises
    ``ObjectNotFoundError`` for an object that disappears while it is read.
    """
    here, there = left.content_facts(left_key), right.content_facts(right_key)
    if here is None or there is None or here.size_bytes != there.size_bytes:
        return None, here, there
    ours, theirs = dict(here.checksums), dict(there.checksums)
    algorithm, by = next((a for a in _STORED if a in ours and a in theirs), ""), "stores"
    if not algorithm:
        algorithm, by = next((a for a in _READABLE if a in ours or a in theirs), "sha256"), "reading"
        for known, store, key in ((ours, left, left_key), (theirs, right, right_key)):
            if algorithm not in known:
                known[algorithm] = checksum_of(store, key, algorithm)
    if ours[algorithm] != theirs[algorithm]:
        return None, here, there
    return Proof(algorithm, ours[algorithm], by), here, there


def checksum_of(store: ObjectStore, key: str, algorithm: str) -> str:
    """Hex digest (``md5`` or ``sha256``) of an object, read as a stream."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with store.open_read(key) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
