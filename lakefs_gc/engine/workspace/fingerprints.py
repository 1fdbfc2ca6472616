"""Fingerprints of addresses, for the index of a history: a fingerprint can only cost a read (``history_index``).

They are stored, so another rule for them needs another version of the index.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa

from lakefs_gc.formats.jit import compiled
from lakefs_gc.formats.sstable.memory import load_32, load_64

Prints = np.ndarray[Any, np.dtype[np.uint32]]
"""The fingerprints of the addresses of a range: 32-bit numbers."""

_READ_BYTES = 16  # the end of an address differs most
_OFFSET_BYTES = 4
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


def fingerprints(addresses: pa.StringArray) -> Prints:
    """Return a fingerprint of each address, which depends on nothing but its bytes. There must be no nulls.

    417 addresses take 4 microseconds, and 60 with NumPy's functions.
    """
    prints = np.empty(len(addresses), np.uint32)
    if not len(addresses):
        return prints
    _, offsets, content = addresses.buffers()
    content_at = content.address if content is not None else 0
    if _of_long(offsets.address + _OFFSET_BYTES * addresses.offset, content_at, prints):
        for row, address in enumerate(addresses.to_pylist()):
            if len(encoded := address.encode()) < _READ_BYTES:
                prints[row] = int.from_bytes(hashlib.blake2b(encoded, digest_size=4).digest(), "little")
    return prints


@compiled
def _of_long(offsets: int, content: int, prints: Prints) -> bool:
    """Write the fingerprint of each address that is long enough; return whether some are not.

    ``offsets`` and ``content`` are the addresses of Arrow's buffers: of the offset of the first row, and of the bytes.
    """
    some_short = False
    end: int = load_32(offsets)
    for row in range(prints.size):
        start = end
        end = load_32(offsets + 4 * row + 4)
        if end - start < _READ_BYTES:
            some_short = True
            continue
        mixed = load_64(content + end - 8) * _FACTORS[0] ^ load_64(content + end - 16) * _FACTORS[1]
        prints[row] = np.uint32(mixed >> np.uint64(32))
    return some_short
