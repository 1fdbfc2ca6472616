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
MOST_FRAME_BYTES = 20
"""Around a key or a value in what ``decode_pairs`` writes: the digits of its length, and a bar."""
_ZERO, _BAR = ord("0"), ord("|")

KEY, KEY_BYTES, VALUE, VALUE_BYTES, BLOCK = range(5)
"""The columns of the spans of a table: positions and sizes in what ``decode_pairs`` writes, and in the file."""
SPAN_FIELDS = 5
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


@inlined
def _frame(source: int, size: int, target: int) -> int:
    """Write a key or value after its size, as decimal digits, and before a bar; return the address of its content."""
    digits, rest = 1, size // 10
    while rest:
        digits += 1
        rest //= 10
    rest = size
    for position in range(digits - 1, -1, -1):
        store_8(target + position, np.uint8(_ZERO + rest % 10))
        rest //= 10
    copy_literal(source, target + digits, size)
    store_8(target + digits + size, np.uint8(_BAR))
    return target + digits


@compiled
def decode_pairs(
    file: int,
    limit: int,
    handles: Array,
    scratch: Array,
    key: Array,
    key_capacity: int,
    content: Array,
    capacity: int,
    spans: Array,
) -> tuple[int, int, int, int]:
    """Decode the pairs of any table. Return a status, the offset of the faulty block, and the pairs and bytes written.

    ``handles`` has rows (offset, size) of the data blocks; ``key`` has room for the longest key, ``scratch`` for the
    largest block. ``content`` gets each key and value in a ``_frame``: what the name of a table is a digest of.
    ``spans`` gets a row for each pair. ``key_capacity`` is the size of all keys, ``capacity`` that of ``content``
    without the slack after it.
    """
    scratch_at = address_of(scratch)
    key_at = address_of(key)
    content_at = address_of(content)
    target = content_at
    rows = spans.shape[0]
    row = 0
    key_size = 0
    for i in range(handles.shape[0]):
        offset = handles[i, 0]
        status, start, size = load_block(file, limit, offset, handles[i, 1], scratch_at)
        if status != OK:
            return status, offset, row, 0
        end = entries_end(start, size)
        if end == BAD:
            return BAD_RESTARTS, offset, row, 0
        address = start
        while address < end:
            first_of_block = address == start
            shared, unshared, value_size, address = read_entry_header(address, end)
            if address == BAD:
                return BAD_ENTRY, offset, row, 0
            status, key_size = next_key(key_at, key_size, shared, address, unshared, first_of_block)
            if status != OK:
                return status, offset, row, 0
            if row == rows:
                return TOO_MANY_ENTRIES, offset, row, 0
            address += unshared
            bare_size = key_size - KEY_TRAILER_BYTES
            key_capacity -= bare_size
            if key_capacity < 0 or bare_size + value_size + 2 * MOST_FRAME_BYTES > content_at + capacity - target:
                return TOO_MANY_BYTES, offset, row, 0
            key_start = _frame(key_at, bare_size, target)
            value_start = _frame(address, value_size, key_start + bare_size + 1)
            target = value_start + value_size + 1
            spans[row, KEY] = key_start - content_at
            spans[row, KEY_BYTES] = bare_size
            spans[row, VALUE] = value_start - content_at
            spans[row, VALUE_BYTES] = value_size
            spans[row, BLOCK] = offset
            row += 1
            address += value_size
    return OK, 0, row, target - content_at


@compiled
def copy_spans(content: Array, spans: Array, start: int, offsets: Array, column: Array, capacity: int) -> bool:
    """Copy keys (``start`` is ``KEY``) or values (``VALUE``) to an Arrow column; return False if they do not fit."""
    content_at = address_of(content)
    column_at = address_of(column)
    for row in range(spans.shape[0]):
        if not append(content_at + spans[row, start], spans[row, start + 1], offsets, row, column_at, capacity):
            return False
    return True


@compiled
def decode_entries(
    content: Array,
    spans: Array,
    address_offsets: Array,
    address_bytes: Array,
    address_types: Array,
    sizes: Array,
    times_us: Array,
    capacity: int,
    want_details: bool,
    e_tag_offsets: Array,
    e_tag_bytes: Array,
    content_type_offsets: Array,
    content_type_bytes: Array,
) -> tuple[int, int]:
    """Decode the values of a range that ``decode_pairs`` wrote. Return a status, and the offset of the faulty block.

    ``capacity`` is the bytes that fit into each column of strings, without the slack after them.
    """
    entry = np.empty(ENTRY_FIELDS, np.int64)
    content_at = address_of(content)
    addresses_at = address_of(address_bytes)
    e_tags_at = address_of(e_tag_bytes)
    content_types_at = address_of(content_type_bytes)
    for row in range(spans.shape[0]):
        start = content_at + spans[row, VALUE]
        data, data_end = decode_value_frame(start, start + spans[row, VALUE_BYTES])
        if data == BAD:
            return BAD_VALUE, spans[row, BLOCK]
        status = decode_entry(data, data_end, entry)
        if status != OK:
            return status, spans[row, BLOCK]
        fits = append(entry[ADDRESS], entry[ADDRESS_BYTES], address_offsets, row, addresses_at, capacity)
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
            return TOO_MANY_BYTES, spans[row, BLOCK]
        address_types[row] = entry[TYPE]
        sizes[row] = entry[SIZE]
        times_us[row] = entry[TIME_US]
    return OK, 0
