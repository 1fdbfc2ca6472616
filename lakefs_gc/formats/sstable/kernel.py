"""Decode the data blocks of a whole table to the buffers of Arrow columns, in compiled code.

A block of 4 KiB has about twenty entries, so one call into Python for each block or entry would take most of the time.
The functions here process a whole file without Python. The caller allocates all memory, keeps it alive, and passes all
bounds.

Strings and binaries have Arrow's form: ``offsets[i]`` to ``offsets[i + 1]`` of one buffer of bytes.
"""

from __future__ import annotations

import numpy as np

from lakefs_gc.formats.jit import compiled, inlined
from lakefs_gc.formats.sstable.blocks import (
    BAD,
    BAD_ENTRY,
    BAD_KEY,
    BAD_MESSAGE,
    BAD_RESTARTS,
    BAD_TIME,
    BAD_VALUE,
    OK,
    TOO_MANY_BYTES,
    TOO_MANY_ENTRIES,
    UNKNOWN_ADDRESS_TYPE,
    UNKNOWN_KIND,
    UNORDERED_KEYS,
    Array,
    address_of,
    entries_end,
    load_block,
    read_entry_header,
    read_varint,
)
from lakefs_gc.formats.sstable.memory import load_8, store_8
from lakefs_gc.formats.sstable.snappy import copy_literal

KEY_TRAILER_BYTES = 8
"""The bytes after each key: kind (1 byte) and sequence number (7 bytes)."""

KIND_SET = 1
MOST_DIGITS = 10
"""Of the length of a key or value."""
_ZERO, _BAR = ord("0"), ord("|")
MAX_ARROW_BYTES = (1 << 31) - 1

# The results of decode_entry: positions in a row of int64.
ADDRESS, ADDRESS_BYTES, E_TAG, E_TAG_BYTES, CONTENT_TYPE, CONTENT_TYPE_BYTES, TYPE, SIZE, TIME_US = range(9)
ENTRY_FIELDS = 9

# Tags of the Entry message: field number and wire type in one number.
_TAG_ADDRESS = 1 << 3 | 2
_TAG_LAST_MODIFIED = 2 << 3 | 2
_TAG_SIZE = 3 << 3
_TAG_E_TAG = 4 << 3 | 2
_TAG_ADDRESS_TYPE = 6 << 3
_TAG_CONTENT_TYPE = 7 << 3 | 2
_METADATA_FIELD = 5
_LAST_ENTRY_FIELD = 7

# Tags of the Timestamp message.
_TAG_SECONDS = 1 << 3
_TAG_NANOSECONDS = 2 << 3
_LAST_TIME_FIELD = 2

# The years 1 to 9999, outside of which a Timestamp is invalid (and its microseconds may not fit).
_MIN_SECONDS, _MAX_SECONDS = -62_135_596_800, 253_402_300_799


@inlined
def ascends(previous: int, previous_size: int, suffix: int, shared: int, size: int) -> bool:
    """Return whether a key sorts after the previous one, by bytes.

    The key has ``size`` bytes: the first ``shared`` are at ``previous``, the others at ``suffix``.
    """
    common = min(previous_size, size)
    position = shared
    while position < common:
        old: int = load_8(previous + position)
        new: int = load_8(suffix + position - shared)
        if old != new:
            return new > old
        position += 1
    return size > previous_size


@inlined
def next_key(key: int, key_size: int, shared: int, suffix: int, unshared: int, first_of_block: bool) -> tuple[int, int]:
    """Change the key at ``key`` into the next one, in place; return a status and its new size, with the trailer.

    ``key_size`` is the size of the previous key, with the trailer (0 before the first key of a file). The caller must
    check that the next key fits.
    """
    size = shared + unshared
    if shared > key_size or (first_of_block and shared > 0) or size < KEY_TRAILER_BYTES:
        return BAD_KEY, 0
    if key_size > 0 and not ascends(key, key_size - KEY_TRAILER_BYTES, suffix, shared, size - KEY_TRAILER_BYTES):
        return UNORDERED_KEYS, 0
    copy_literal(suffix, key + shared, unshared)
    if load_8(key + size - KEY_TRAILER_BYTES) != KIND_SET:
        return UNKNOWN_KIND, 0
    return OK, size


@compiled
def skip_field(tag: int, address: int, end: int) -> int:
    """Return the address after the content of an ignored field, or ``BAD``."""
    wire_type = tag & 7
    if wire_type == 0:
        _, address = read_varint(address, end)
        return address
    if wire_type == 2:
        size, address = read_varint(address, end)
        if address == BAD or size < 0 or size > end - address:
            return BAD
        return address + size
    size = 8 if wire_type == 1 else 4
    if (wire_type != 1 and wire_type != 5) or size > end - address:
        return BAD
    return address + size


@inlined
def decode_time_us(address: int, end: int) -> tuple[int, int]:
    """Return a status, and the microseconds since 1970 of a Timestamp message."""
    seconds = 0
    nanoseconds = 0
    while address < end:
        tag, address = read_varint(address, end)
        if address == BAD or tag >> 3 == 0:
            return BAD_MESSAGE, 0
        if tag == _TAG_SECONDS:
            seconds, address = read_varint(address, end)
        elif tag == _TAG_NANOSECONDS:
            nanoseconds, address = read_varint(address, end)
        elif tag >> 3 <= _LAST_TIME_FIELD:
            return BAD_MESSAGE, 0  # a known field with an unexpected type
        else:
            address = skip_field(tag, address, end)
        if address == BAD:
            return BAD_MESSAGE, 0
    if seconds < _MIN_SECONDS or seconds > _MAX_SECONDS or nanoseconds < 0 or nanoseconds > 999_999_999:
        return BAD_TIME, 0
    return OK, seconds * 1_000_000 + nanoseconds // 1000


@inlined
def decode_value_frame(address: int, end: int) -> tuple[int, int]:
    """Return the begin and end of the data of a value, or ``BAD`` if the lengths before it are impossible.

    A value has the zigzag length of the identity, the identity, the zigzag length of the data, and the data.
    """
    zigzag, address = read_varint(address, end)
    if address == BAD or zigzag < 0 or zigzag & 1 or zigzag >> 1 > end - address:
        return BAD, BAD
    address += zigzag >> 1
    zigzag, address = read_varint(address, end)
    if address == BAD or zigzag < 0 or zigzag & 1 or zigzag >> 1 > end - address:
        return BAD, BAD
    return address, address + (zigzag >> 1)


@inlined
def decode_entry(address: int, end: int, entry: Array) -> int:
    """Write the addresses, lengths and numbers of an Entry message to the row ``entry``; return a status."""
    for i in range(ENTRY_FIELDS):
        entry[i] = 0
    while address < end:
        tag, address = read_varint(address, end)
        if address == BAD or tag >> 3 == 0:
            return BAD_MESSAGE
        if tag == _TAG_SIZE:
            entry[SIZE], address = read_varint(address, end)
        elif tag == _TAG_ADDRESS_TYPE:
            entry[TYPE], address = read_varint(address, end)
        elif tag in (_TAG_ADDRESS, _TAG_E_TAG, _TAG_CONTENT_TYPE, _TAG_LAST_MODIFIED):
            size, address = read_varint(address, end)
            if address == BAD or size < 0 or size > end - address:
                return BAD_MESSAGE
            if tag == _TAG_ADDRESS:
                entry[ADDRESS] = address
                entry[ADDRESS_BYTES] = size
            elif tag == _TAG_E_TAG:
                entry[E_TAG] = address
                entry[E_TAG_BYTES] = size
            elif tag == _TAG_CONTENT_TYPE:
                entry[CONTENT_TYPE] = address
                entry[CONTENT_TYPE_BYTES] = size
            else:
                status, entry[TIME_US] = decode_time_us(address, address + size)
                if status != OK:
                    return status
            address += size
        elif tag >> 3 <= _LAST_ENTRY_FIELD and tag >> 3 != _METADATA_FIELD:
            return BAD_MESSAGE  # a known field with an unexpected type
        else:
            address = skip_field(tag, address, end)
        if address == BAD:
            return BAD_MESSAGE
    if entry[TYPE] < 0 or entry[TYPE] > 2:
        return UNKNOWN_ADDRESS_TYPE
    return OK


@inlined
def append(source: int, size: int, offsets: Array, row: int, target: int, capacity: int) -> bool:
    """Append a string to an Arrow column as its next row; return False if it does not fit."""
    used = int(offsets[row])
    if size > capacity - used:
        return False
    copy_literal(source, target + used, size)
    offsets[row + 1] = used + size
    return True


@compiled
def decode_range(
    file: int,
    limit: int,
    handles: Array,
    scratch: Array,
    key: Array,
    address_offsets: Array,
    address_bytes: Array,
    address_types: Array,
    sizes: Array,
    times_us: Array,
    capacity: int,
    want_keys: bool,
    key_offsets: Array,
    key_bytes: Array,
    key_capacity: int,
    want_details: bool,
    e_tag_offsets: Array,
    e_tag_bytes: Array,
    content_type_offsets: Array,
    content_type_bytes: Array,
) -> tuple[int, int, int]:
    """Decode the entries of a range; return a status, the offset of the faulty block, and the number of entries.

    ``handles`` has rows (offset, size) of the data blocks; ``key`` has room for the longest key, ``scratch`` for the
    largest block. ``capacity`` and ``key_capacity`` are the bytes that fit into the columns, without the slack after
    them.
    """
    entry = np.empty(ENTRY_FIELDS, np.int64)
    scratch_at = address_of(scratch)
    key_at = address_of(key)
    addresses_at = address_of(address_bytes)
    keys_at = address_of(key_bytes)
    e_tags_at = address_of(e_tag_bytes)
    content_types_at = address_of(content_type_bytes)
    rows = sizes.size
    row = 0
    key_size = 0
    for i in range(handles.shape[0]):
        offset = handles[i, 0]
        status, start, size = load_block(file, limit, offset, handles[i, 1], scratch_at)
        if status != OK:
            return status, offset, row
        end = entries_end(start, size)
        if end == BAD:
            return BAD_RESTARTS, offset, row
        address = start
        while address < end:
            first_of_block = address == start
            shared, unshared, value_size, address = read_entry_header(address, end)
            if address == BAD:
                return BAD_ENTRY, offset, row
            status, key_size = next_key(key_at, key_size, shared, address, unshared, first_of_block)
            if status != OK:
                return status, offset, row
            if row == rows:
                return TOO_MANY_ENTRIES, offset, row
            address += unshared
            value_end = address + value_size
            data, data_end = decode_value_frame(address, value_end)
            if data == BAD:
                return BAD_VALUE, offset, row
            status = decode_entry(data, data_end, entry)
            if status != OK:
                return status, offset, row
            fits = append(entry[ADDRESS], entry[ADDRESS_BYTES], address_offsets, row, addresses_at, capacity)
            if want_keys and fits:
                fits = append(key_at, key_size - KEY_TRAILER_BYTES, key_offsets, row, keys_at, key_capacity)
            if want_details and fits:
                fits = append(entry[E_TAG], entry[E_TAG_BYTES], e_tag_offsets, row, e_tags_at, capacity) and append(
                    entry[CONTENT_TYPE],
                    entry[CONTENT_TYPE_BYTES],
                    content_type_offsets,
                    row,
                    content_types_at,
                    capacity,
                )
            if not fits:
                return TOO_MANY_BYTES, offset, row
            address_types[row] = entry[TYPE]
            sizes[row] = entry[SIZE]
            times_us[row] = entry[TIME_US]
            row += 1
            address = value_end
    return OK, 0, row


@compiled
def decode_pairs(
    file: int,
    limit: int,
    handles: Array,
    scratch: Array,
    key: Array,
    key_offsets: Array,
    key_bytes: Array,
    key_capacity: int,
    value_offsets: Array,
    value_bytes: Array,
    value_capacity: int,
) -> tuple[int, int, int]:
    """Decode the pairs of any table; return a status, the offset of the faulty block, and the number of pairs."""
    scratch_at = address_of(scratch)
    key_at = address_of(key)
    keys_at = address_of(key_bytes)
    values_at = address_of(value_bytes)
    rows = key_offsets.size - 1
    row = 0
    key_size = 0
    for i in range(handles.shape[0]):
        offset = handles[i, 0]
        status, start, size = load_block(file, limit, offset, handles[i, 1], scratch_at)
        if status != OK:
            return status, offset, row
        end = entries_end(start, size)
        if end == BAD:
            return BAD_RESTARTS, offset, row
        address = start
        while address < end:
            first_of_block = address == start
            shared, unshared, value_size, address = read_entry_header(address, end)
            if address == BAD:
                return BAD_ENTRY, offset, row
            status, key_size = next_key(key_at, key_size, shared, address, unshared, first_of_block)
            if status != OK:
                return status, offset, row
            if row == rows:
                return TOO_MANY_ENTRIES, offset, row
            address += unshared
            if not append(key_at, key_size - KEY_TRAILER_BYTES, key_offsets, row, keys_at, key_capacity):
                return TOO_MANY_BYTES, offset, row
            if not append(address, value_size, value_offsets, row, values_at, value_capacity):
                return TOO_MANY_BYTES, offset, row
            row += 1
            address += value_size
    return OK, 0, row


@compiled
def write_identity(
    key_offsets: Array, key_bytes: Array, value_offsets: Array, value_bytes: Array, identity: Array
) -> int:
    """Write what the name of a table is a digest of: each key and value with its length. Return the number of bytes.

    ``identity`` has room for ``MOST_DIGITS + 1`` bytes besides each of them, and for the slack of ``copy_literal``.
    """
    target = address_of(identity)
    end = target
    for row in range(key_offsets.size - 1):
        end = _write_part(address_of(key_bytes), key_offsets, row, end)
        end = _write_part(address_of(value_bytes), value_offsets, row, end)
    return end - target


@inlined
def _write_part(source: int, offsets: Array, row: int, target: int) -> int:
    start = int(offsets[row])
    size = int(offsets[row + 1]) - start
    digits, rest = 1, size // 10
    while rest:
        digits += 1
        rest //= 10
    rest = size
    for position in range(digits - 1, -1, -1):
        store_8(target + position, np.uint8(_ZERO + rest % 10))
        rest //= 10
    copy_literal(source + start, target + digits, size)
    store_8(target + digits + size, np.uint8(_BAR))
    return target + digits + size + 1
