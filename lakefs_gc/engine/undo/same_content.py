"""Whether two objects have the same content, and which evidence proves it.

Used by a backup (original and copy) and by a restore (copy and object, copy and recorded checksum).  Deletes depend on
these answers, so a comparison that cannot be made is never a match (rule 12).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from lakefs_gc.errors import BackupError
from lakefs_gc.storage.base import ContentFacts, ObjectStore

_BLOCK_BYTES = 1024 * 1024
_COMPUTABLE = ("md5", "sha256")
# Best first.  A CRC does not protect against a malicious change; together with the size it detects accidents.
_PREFERENCE = ("sha256", "md5", "crc64nvme", "sha1", "crc32c", "crc32")


@dataclass(frozen=True)
class Proof:
    """The checksum that shows that two objects are the same, its algorithm, and its source.

    ``by`` is ``stores`` when both stores reported the checksum, or ``reading`` when at least one object was read.
    """

    algorithm: str
    checksum: str
    by: str

    def __str__(self) -> str:
        return f"{self.algorithm} by {self.by}"


def same_content(
    left: ObjectStore, left_key: str, right: ObjectStore, right_key: str, *, known: ContentFacts | None = None
) -> tuple[Proof | None, ContentFacts | None, ContentFacts | None]:
    """Return a proof that both objects exist and have the same content (None: they have not), and the facts of each.

    The facts of an object that does not exist are None.  ``known`` are the facts of the left object; without them the
    left store is asked.  An object is read only if the stores report no checksum of a common algorithm.  Raises
    ``ObjectNotFoundError`` for an object that disappears while it is read.
    """
    left_facts, right_facts = known or left.content_facts(left_key), right.content_facts(right_key)
    if left_facts is None or right_facts is None or left_facts.size_bytes != right_facts.size_bytes:
        return None, left_facts, right_facts
    left_checksums, right_checksums = dict(left_facts.checksums), dict(right_facts.checksums)
    algorithm, by = next((a for a in _PREFERENCE if a in left_checksums and a in right_checksums), ""), "stores"
    if not algorithm:
        algorithm = next((a for a in _COMPUTABLE if a in left_checksums or a in right_checksums), "sha256")
        by = "reading"
        for checksums, store, key in ((left_checksums, left, left_key), (right_checksums, right, right_key)):
            if algorithm not in checksums:
                checksums[algorithm] = checksum_of(store, key, algorithm)
    if left_checksums[algorithm] != right_checksums[algorithm]:
        return None, left_facts, right_facts
    return Proof(algorithm, left_checksums[algorithm], by), left_facts, right_facts


def recorded_content(store: ObjectStore, key: str, size_bytes: int, checksum: str) -> ContentFacts | None:
    """Return the facts of a copy whose content is what the backup recorded; None if the copy does not exist.

    ``checksum`` is ``<algorithm>:<value>``; the returned facts include it.  The copy is read only if its store does not
    report that algorithm.  Raises ``BackupError`` if the content differs or cannot be verified, and
    ``ObjectNotFoundError`` if the copy disappears while it is read.
    """
    facts = store.content_facts(key)
    if facts is None:
        return None
    algorithm, _, recorded = checksum.partition(":")
    actual = facts.checksums.get(algorithm)
    if actual is None and facts.size_bytes == size_bytes:
        if algorithm not in _COMPUTABLE:
            raise BackupError(
                "The copy cannot be verified: its store no longer reports the recorded checksum "
                f"({algorithm or 'none'})",
                remedy="Inspect the copy, then copy it back manually (docs/guides/backup-and-restore.md)",
            )
        actual = checksum_of(store, key, algorithm)
    if (facts.size_bytes, actual) != (size_bytes, recorded):
        raise BackupError(
            "The copy was changed in the backup location: its content is not what the backup recorded",
            remedy="Replace it by the right copy, from an earlier version or another copy of the backup location, and "
            "restore again",
        )
    return ContentFacts(size_bytes, {**facts.checksums, algorithm: recorded})


def best_checksum(store: ObjectStore, key: str, facts: ContentFacts) -> str:
    """Return a checksum of an object, as ``recorded_content`` expects it. Without one in ``facts``, it is read."""
    for algorithm in _PREFERENCE:
        if algorithm in facts.checksums:
            return f"{algorithm}:{facts.checksums[algorithm]}"
    return f"sha256:{checksum_of(store, key, 'sha256')}"


def checksum_of(store: ObjectStore, key: str, algorithm: str) -> str:
    """Return the hex digest (``md5`` or ``sha256``) of an object, read as a stream."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with store.open_read(key) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
