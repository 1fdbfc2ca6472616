"""Batches of addresses that nothing can read otherwise: nearly all are, and then no row need be looked at alone.

A batch has ``address: string`` and ``address_type: int8``, as in ``addresses.entries_below``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.formats.entry import AddressType

_NOT_PLAIN_RE2 = r"\.\.|[:%\\]|//|\A/"
_MARKS_OF_OTHER_READINGS = (b":", b"%", b"\\")

_Bytes = np.ndarray[Any, np.dtype[Any]]


def are_only_keys(batch: pa.RecordBatch) -> bool:
    """Return whether every address of a batch is relative, and nothing but its own key.

    That is so for all addresses that lakeFS issues. False does not say that an address can be read otherwise. For 417
    addresses this takes 0.02 ms, and what it spares in ``KnownFolders.entries`` 0.25 ms.
    """
    addresses = batch.column("address")
    if not len(addresses):
        return True
    types = batch.column("address_type").to_numpy()
    offsets, content = _bytes_of(addresses)
    if (types != AddressType.RELATIVE).any() or (offsets[1:] == offsets[:-1]).any():
        return False
    text = content.tobytes()
    if any(mark in text for mark in _MARKS_OF_OTHER_READINGS):
        return False
    slashes = content == ord("/")
    joints = slashes | (content == ord("."))
    starts = offsets - offsets[0]
    return not ((joints[:-1] & joints[1:]).any() or slashes[starts[:-1]].any() or slashes[starts[1:] - 1].any())


def are_plain(batch: pa.RecordBatch) -> bool:
    """Return whether all addresses of a batch stay in their namespace, whatever namespace and store that is.

    They are relative, and no program can read them as a URL or as a path out of the folder.
    """
    if are_only_keys(batch):
        return True
    is_relative = pc.equal(batch.column("address_type"), AddressType.RELATIVE)
    is_plain = pc.and_(is_relative, pc.invert(pc.match_substring_regex(batch.column("address"), _NOT_PLAIN_RE2)))
    return bool(pc.all(is_plain, min_count=0).as_py())


def may_have_empty_parts_inside(addresses: pa.StringArray) -> bool:
    """Return whether ``//``, ``./`` or ``/.`` occurs in any address, or where one ends and the next one begins.

    For a million addresses this takes 0.02 s, and Arrow's functions take 0.35.
    """
    if not len(addresses):
        return False
    _, content = _bytes_of(addresses)
    slashes, dots = content == ord("/"), content == ord(".")
    return bool(np.any((slashes | dots)[:-1] & slashes[1:]) or np.any(slashes[:-1] & dots[1:]))


def _bytes_of(addresses: pa.StringArray) -> tuple[_Bytes, _Bytes]:
    """Return the offsets of strings in the buffer of their bytes, and these bytes, from the first offset on."""
    offsets = np.frombuffer(addresses.buffers()[1], np.int32)[addresses.offset : addresses.offset + len(addresses) + 1]
    return offsets, np.frombuffer(addresses.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
