"""Read the blocks of an SSTable in compiled code: checksum, decompression, entries, and the index of the data blocks.

Compiled code cannot raise errors with messages. Functions return a *status*: ``OK`` or another of the numbers below,
with a message in ``STATUS_MESSAGES``. ``BAD`` marks an address that could not be computed.

The arguments describe a file by the address of its first byte and by ``limit``, the beginning of its footer. No block
reaches into the footer, so at least 53 bytes can be read after any block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lakefs_gc.formats.jit import compiled, inlined
from lakefs_gc.formats.sstable.crc32c import crc32c_at, mask
from lakefs_gc.formats.sstable.memory import load_8, load_32
from lakefs_gc.formats.sstable.snappy import MAX_RATIO, copy_literal, decompress

Array = np.ndarray[Any, np.dtype[Any]]

TRAILER_BYTES = 5
"""The bytes after each block: its compression (1 byte) and its checksum (4 bytes)."""

NO_COMPRESSION, SNAPPY = 0, 1

BAD = -1

OK = 0
BLOCK_OUTSIDE = 1
WRONG_CHECKSUM = 2
UNKNOWN_COMPRESSION = 3
BAD_SNAPPY = 4
BAD_RESTARTS = 5
BAD_ENTRY = 6
BAD_KEY = 7
UNKNOWN_KIND = 8
UNORDERED_KEYS = 9
BAD_INDEX = 10
BAD_VALUE = 11
BAD_MESSAGE = 12
UNKNOWN_ADDRESS_TYPE = 13
BAD_TIME = 14
TOO_MANY_ENTRIES = 15
TOO_MANY_BYTES = 16

STATUS_MESSAGES = {
    BLOCK_OUTSIDE: "a block is outside the file",
    WRONG_CHECKSUM: "the checksum of a block does not match its content",
    UNKNOWN_COMPRESSION: "unsupported compression of a block",
    BAD_SNAPPY: "a block cannot be decompressed",
    BAD_RESTARTS: "the restart points of a block do not match its entries",
    BAD_ENTRY: "an entry reaches beyond its block",
    BAD_KEY: "a key has impossible lengths",
    UNKNOWN_KIND: "unsupported kind of an entry (not a plain value)",
    UNORDERED_KEYS: "the keys are not in ascending order",
    BAD_INDEX: "the index of the blocks is inconsistent",
    BAD_VALUE: "the lengths within a value are impossible",
    BAD_MESSAGE: "a message cannot be parsed",
    UNKNOWN_ADDRESS_TYPE: "unsupported type of an address",
    BAD_TIME: "a time is out of range",
    TOO_MANY_ENTRIES: "the table has more entries than its properties state",
    TOO_MANY_BYTES: "the table has more bytes than its properties state, or than fit into a batch",
}


@inlined
def address_of(array: Array) -> int:
    """Return the address of an array's content. The array must outlive it: an address does not keep the array alive."""
    return np.int64(array.ctypes.data)  # type: ignore[return-value]


@inlined
def read_varint(address: int, end: int) -> tuple[int, int]:
    """Read a 64-bit integer in groups of seven bits, lowest first; return it with the address after it, or ``BAD``.

    The integer is two's complement: a value that does not fit into 63 bits is negative.
    """
    if address >= end:
        return 0, BAD
    byte = load_8(address)
    if byte < 0x80:  # most values are short
        return byte, address + 1
    value = byte & 0x7F
    shift = 7
    while shift < 64:
        address += 1
        if address >= end:
            return 0, BAD
        byte = load_8(address)
        if shift == 63 and byte > 1:
            return 0, BAD
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, address + 1
        shift += 7
    return 0, BAD


@compiled
def content_size(file: int, limit: int, offset: int, size: int) -> tuple[int, int]:
    """Return a status and the decompressed size of a block; only the plausibility of the size is verified."""
    if offset < 0 or size < 0 or offset > limit or size > limit - offset - TRAILER_BYTES:
        return BLOCK_OUTSIDE, 0
    if load_8(file + offset + size) != SNAPPY:
        return OK, size
    decompressed, address = read_varint(file + offset, file + offset + size)
    if address == BAD or decompressed < 0 or decompressed > MAX_RATIO * size:
        return BAD_SNAPPY, 0
    return OK, decompressed


@compiled
def load_block(file: int, limit: int, offset: int, size: int, scratch: int) -> tuple[int, int, int]:
    """Verify a block, and decompress it to ``scratch`` if needed; return a status, and the content's address and size.

    ``scratch`` needs room for ``content_size`` and ``SLACK_BYTES``.
    """
    status, decompressed_size = content_size(file, limit, offset, size)
    if status != OK:
        return status, BAD, 0
    start = file + offset
    stored = load_32(start + size + 1)
    if np.int64(mask(crc32c_at(start, size + 1))) != stored:
        return WRONG_CHECKSUM, BAD, 0
    compression = load_8(start + size)
    if compression == NO_COMPRESSION:
        return OK, start, size
    if compression != SNAPPY:
        return UNKNOWN_COMPRESSION, BAD, 0
    _, behind_length = read_varint(start, start + size)
    if not decompress(behind_length, start + size, scratch, decompressed_size):
        return BAD_SNAPPY, BAD, 0
    return OK, scratch, decompressed_size


@compiled
def entries_end(start: int, size: int) -> int:
    """Return the address after the last entry of a block, where its restart points begin, or ``BAD``."""
    if size < 8:
        return BAD
    restarts: int = load_32(start + size - 4)
    if restarts == 0 or restarts > (size - 4) // 4:
        return BAD
    return start + size - 4 - 4 * restarts


@inlined
def read_entry_header(address: int, end: int) -> tuple[int, int, int, int]:
    """Return the lengths of the shared and unshared parts of a key and of its value, and the address after them.

    The address is ``BAD`` unless that many bytes follow and no length is negative.
    """
    shared, address = read_varint(address, end)
    if address == BAD:
        return 0, 0, 0, BAD
    unshared, address = read_varint(address, end)
    if address == BAD:
        return 0, 0, 0, BAD
    value_size, address = read_varint(address, end)
    if address == BAD or shared < 0 or unshared < 0 or value_size < 0:
        return 0, 0, 0, BAD
    if unshared > end - address or value_size > end - address - unshared:
        return 0, 0, 0, BAD
    return shared, unshared, value_size, address


@compiled
def measure_blocks(file: int, limit: int, handles: Array) -> tuple[int, int, int, int]:
    """Return a status, the offset of the faulty block, and the sum and maximum of the content sizes of blocks.

    ``handles`` has rows (offset, size). The blocks must follow one another in the file, so that none is decoded twice.
    """
    total = 0
    largest = 0
    behind = 0
    for i in range(handles.shape[0]):
        offset = handles[i, 0]
        size = handles[i, 1]
        if offset < behind:
            return BAD_INDEX, offset, 0, 0
        status, decompressed_size = content_size(file, limit, offset, size)
        if status != OK:
            return status, offset, 0, 0
        total += decompressed_size
        largest = max(largest, decompressed_size)
        behind = offset + size + TRAILER_BYTES
    return OK, 0, total, largest


@compiled
def read_handles(file: int, limit: int, index: Array, scratch: Array, handles: Array) -> tuple[int, int, int]:
    """Return a status, the offset of the faulty block, and the number of blocks that index blocks point to.

    ``index`` and the result ``handles`` have rows (offset, size). All blocks are read, so the index keys are not
    needed.
    """
    scratch_at = address_of(scratch)
    count = 0
    for i in range(index.shape[0]):
        block_offset = index[i, 0]
        status, start, size = load_block(file, limit, block_offset, index[i, 1], scratch_at)
        if status != OK:
            return status, block_offset, 0
        end = entries_end(start, size)
        if end == BAD:
            return BAD_RESTARTS, block_offset, 0
        address = start
        while address < end:
            _, unshared, value_size, address = read_entry_header(address, end)
            if address == BAD:
                return BAD_ENTRY, block_offset, 0
            address += unshared
            value_end = address + value_size
            offset, address = read_varint(address, value_end)
            if address == BAD:
                return BAD_INDEX, block_offset, 0
            block_size, address = read_varint(address, value_end)
            if address == BAD or count == handles.shape[0]:
                return BAD_INDEX, block_offset, 0
            handles[count, 0] = offset
            handles[count, 1] = block_size
            count += 1
            address = value_end
    return OK, 0, count


@compiled
def read_named(start: int, size: int, content: Array, capacity: int, spans: Array) -> tuple[int, int]:
    """Read a block of the metaindex or of the properties, whose keys have no trailers. Return a status and the entries.

    ``content`` gets each name and its value, one after the other; ``capacity`` is its size without the slack. ``spans``
    gets a row for each entry: the positions of name and value in ``content``, and of what follows them.
    """
    end = entries_end(start, size)
    if end == BAD:
        return BAD_RESTARTS, 0
    content_at = address_of(content)
    room = capacity
    name = content_at
    name_size = 0
    target = content_at
    count = 0
    address = start
    while address < end:
        shared, unshared, value_size, address = read_entry_header(address, end)
        if address == BAD or shared > name_size:
            return BAD_ENTRY, 0
        room -= shared + unshared + value_size
        if room < 0 or count == spans.shape[0]:
            return TOO_MANY_BYTES, 0
        copy_literal(name, target, shared)
        copy_literal(address, target + shared, unshared)
        name = target
        name_size = shared + unshared
        copy_literal(address + unshared, target + name_size, value_size)
        address += unshared + value_size
        target += name_size + value_size
        spans[count, 0] = name - content_at
        spans[count, 1] = name - content_at + name_size
        spans[count, 2] = target - content_at
        count += 1
    return OK, count


@compiled
def load_named(
    file: int, limit: int, offset: int, size: int, scratch: Array, content: Array, capacity: int, spans: Array
) -> tuple[int, int]:
    """``load_block``, then ``read_named`` from it."""
    status, start, content_bytes = load_block(file, limit, offset, size, address_of(scratch))
    if status != OK:
        return status, 0
    return read_named(start, content_bytes, content, capacity, spans)
