"""A table of the addresses that are referenced, as 64-bit hashes with the sizes that entries state, in compiled code.

The hash is MurmurHash64A (Austin Appleby, public domain). The table is an array with open addressing: 20 million
addresses take 0.6 GB, and looking one up takes 0.1 µs.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import pyarrow as pa

from lakefs_gc.formats.jit import compiled
from lakefs_gc.formats.sstable.memory import load_8, load_64

_MULTIPLIER = np.uint64(0xC6A4A7935BD1E995)
_SHIFT = np.uint64(47)
_FREE = np.uint64(0)
_FREE_HASHED = np.uint64(1)
_BYTE_BITS = np.uint64(8)
_NO_SIZE = -1
_OF_NO_OBJECT = -2
"""In place of the size: entries state several sizes, or one that no object has, a negative one."""
_SLOTS_PER_ADDRESS = 1.5

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class AddressTable:
    """The addresses of ``add``, and which of them ``find`` found with their size.

    ``rows`` is the most that are added. One thread may add; later several threads may find and read. All hashes are
    those of ``hashes_of`` with the ``seed`` of the table. It is random: for a known seed, a user could choose addresses
    whose hashes collide, and comparing them would take hours.
    """

    def __init__(self, rows: int) -> None:
        slots = 1 << max(4, int(rows * _SLOTS_PER_ADDRESS).bit_length())
        self._room = rows
        self.seed = secrets.randbits(64)
        self._hashes = np.zeros(slots, np.uint64)
        self._sizes = np.empty(slots, np.int64)
        # Two arrays, not two bits of one: several threads set them without a lock, each to one value only.
        self._found = np.zeros(slots, np.bool_)
        self._differs = np.zeros(slots, np.bool_)

    def add(self, hashes: Hashes, sizes: pa.Int64Array | None) -> None:
        """Add referenced addresses. ``sizes`` are those that entries state; None if they state none."""
        if len(hashes) > self._room:
            raise ValueError(f"{len(hashes)} addresses, but there is room for {self._room}")
        self._room -= len(hashes)
        if sizes is None:
            stated = np.full(len(hashes), _NO_SIZE)
        else:
            stated = np.where(np.less(sizes.to_numpy(), 0), _OF_NO_OBJECT, sizes.to_numpy())
        _add(self._hashes, self._sizes, hashes, stated)

    def find(self, hashes: Hashes, sizes: pa.Int64Array) -> Flags:
        """Return for each object whether it must stay: it is not in the table, or an entry states another size."""
        stays = np.zeros(len(hashes), np.bool_)
        _find(self._hashes, self._sizes, self._found, self._differs, hashes, sizes.to_numpy(), stays)
        return stays

    def unsettled(self, hashes: Hashes) -> Flags:
        """Return for each reference whether it must stay: no object with its hash was found, or one that stays."""
        stays = np.zeros(len(hashes), np.bool_)
        _unsettled(self._hashes, self._found, self._differs, hashes, stays)
        return stays


def hashes_of(addresses: pa.StringArray, seed: int = 0) -> Hashes:
    """Return the hash of the bytes of each address; never 0. The array must be valid (``Array.validate``)."""
    hashes = np.empty(len(addresses), np.uint64)
    _, offsets, data = addresses.buffers()
    if len(addresses) and data is not None:
        ends = np.frombuffer(offsets, np.int32)[addresses.offset : addresses.offset + len(addresses) + 1]
        _hash(data.address, ends, np.uint64(seed), hashes)
    elif len(addresses):  # only empty texts, without a buffer
        hashes[:] = _FREE_HASHED
    return hashes


@compiled
def _hash(data: int, ends: np.ndarray, seed: np.uint64, hashes: np.ndarray) -> None:
    for i in range(len(hashes)):
        position = data + np.int64(ends[i])
        end = data + np.int64(ends[i + 1])
        hashed = seed ^ (np.uint64(end - position) * _MULTIPLIER)
        while position + 8 <= end:
            word = load_64(position) * _MULTIPLIER
            word = (word ^ (word >> _SHIFT)) * _MULTIPLIER
            hashed = (hashed ^ word) * _MULTIPLIER
            position += 8
        if position < end:
            rest = np.uint64(0)
            while end > position:
                end -= 1
                rest = (rest << _BYTE_BITS) | np.uint64(load_8(end))
            hashed = (hashed ^ rest) * _MULTIPLIER
        hashed = (hashed ^ (hashed >> _SHIFT)) * _MULTIPLIER
        hashed ^= hashed >> _SHIFT
        hashes[i] = hashed if hashed != _FREE else _FREE_HASHED


@compiled
def _slot_of(table: np.ndarray, hashed: np.uint64) -> np.uint64:
    """Return the slot that has a hash, or the free one where it belongs."""
    mask = np.uint64(len(table) - 1)
    slot = hashed & mask
    while table[slot] != _FREE and table[slot] != hashed:
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled
def _add(table: np.ndarray, table_sizes: np.ndarray, hashes: np.ndarray, sizes: np.ndarray) -> None:
    for i in range(len(hashes)):
        slot = _slot_of(table, hashes[i])
        if table[slot] == _FREE:
            table[slot] = hashes[i]
            table_sizes[slot] = sizes[i]
        elif table_sizes[slot] == _NO_SIZE:
            table_sizes[slot] = sizes[i]
        elif sizes[i] != _NO_SIZE and sizes[i] != table_sizes[slot]:
            table_sizes[slot] = _OF_NO_OBJECT


@compiled
def _find(
    table: np.ndarray,
    table_sizes: np.ndarray,
    found: np.ndarray,
    differs: np.ndarray,
    hashes: np.ndarray,
    sizes: np.ndarray,
    stays: np.ndarray,
) -> None:
    for i in range(len(hashes)):
        slot = _slot_of(table, hashes[i])
        if table[slot] == _FREE:
            stays[i] = True
        elif table_sizes[slot] == _NO_SIZE or (table_sizes[slot] == sizes[i] and sizes[i] >= 0):
            found[slot] = True
        else:
            differs[slot] = True
            stays[i] = True


@compiled
def _unsettled(
    table: np.ndarray, found: np.ndarray, differs: np.ndarray, hashes: np.ndarray, stays: np.ndarray
) -> None:
    for i in range(len(hashes)):
        slot = _slot_of(table, hashes[i])
        stays[i] = table[slot] == _FREE or differs[slot] or not found[slot]
