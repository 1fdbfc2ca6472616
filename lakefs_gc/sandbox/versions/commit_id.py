"""Compute the id of a commit: a digest of its fields.

Source: lakeFS ``pkg/ident/ident.go`` and ``Commit.Identity`` in ``pkg/graveler/graveler.go``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from lakefs_gc.formats.entry import identity_of_map


def commit_id(
    *,
    committer: str,
    message: str,
    meta_range_id: str,
    creation_date: int,
    metadata: Mapping[str, str],
    parents: Sequence[str],
) -> str:
    """Return the id, in hex, that lakeFS gives to a commit; ``creation_date`` in seconds since 1970."""
    texts = b"".join(_text(text) for text in ("commit:v1", committer, message, meta_range_id))
    parents_digest = hashlib.sha256(b"\x03" + _int64(len(parents)) + b"".join(map(_text, parents))).digest()
    parents_part = b"\x05" + b"\x00" + _int64(len(parents_digest)) + parents_digest
    content = texts + _int64(creation_date) + identity_of_map(dict(metadata)) + parents_part
    return hashlib.sha256(content).hexdigest()


def _int64(value: int) -> bytes:
    return b"\x02\x08" + value.to_bytes(8, "big", signed=True)


def _text(value: str) -> bytes:
    data = value.encode()
    return b"\x01" + _int64(len(data)) + data
