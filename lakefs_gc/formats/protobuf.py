"""The parts of the protocol buffers wire format that lakeFS's own messages need.

lakeFS stores entries, range descriptions and retention rules as small proto3 messages of scalars, strings and string
maps. Reading and writing them takes one module, and avoids a dependency on ``protobuf``, with version pins that clash
on most Spark clusters. Source of the format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

from lakefs_gc.errors import CorruptFileError

VARINT = 0
FIXED64 = 1
BYTES = 2
FIXED32 = 5

_FIXED_SIZE_BYTES = {FIXED64: 8, FIXED32: 4}
_MAX_VARINT_BYTES = 10
_UINT64_MASK = (1 << 64) - 1


def encode_varint(value: int) -> bytes:
    """Encode a 64-bit integer, unsigned or two's complement, in groups of seven bits, lowest first."""
    value &= _UINT64_MASK
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_varint(data: bytes, offset: int, *, file: str) -> tuple[int, int]:
    """Return the unsigned value at ``offset``, and the offset after it. Raise ``CorruptFileError``."""
    if offset < len(data) and data[offset] < 0x80:  # most numbers have one byte
        return data[offset], offset + 1
    value, position = 0, offset
    for byte in data[offset : offset + _MAX_VARINT_BYTES]:
        value |= (byte & 0x7F) << (7 * (position - offset))
        position += 1
        if byte < 0x80:
            if value > _UINT64_MASK:
                break
            return value, position
    raise CorruptFileError(file, f"a number is truncated or too long at byte {offset} of a message")


def signed(value: int, bits: int = 64) -> int:
    """Read the lowest ``bits`` bits as two's complement, as proto3 stores int32 and int64."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def decode_fields(data: bytes, *, file: str) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field of a message, in the order of the file, including unknown fields.

    Varints are unsigned integers, all other values are bytes. Raise ``CorruptFileError``.
    """
    offset, end = 0, len(data)
    while offset < end:
        # Most numbers have one byte: to call nothing for them halves the time of a staged entry.
        tag, offset = (data[offset], offset + 1) if data[offset] < 0x80 else decode_varint(data, offset, file=file)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise CorruptFileError(file, f"invalid field number 0 at byte {offset} of a message")
        if wire_type == VARINT:
            value, offset = decode_varint(data, offset, file=file)
            yield number, value
            continue
        if wire_type == BYTES:
            if offset < end and data[offset] < 0x80:
                size, offset = data[offset], offset + 1
            else:
                size, offset = decode_varint(data, offset, file=file)
        elif wire_type in _FIXED_SIZE_BYTES:
            size = _FIXED_SIZE_BYTES[wire_type]
        else:
            raise CorruptFileError(file, f"unknown wire type {wire_type} at byte {offset} of a message")
        if size > end - offset:
            raise CorruptFileError(file, f"field {number} is truncated at byte {offset} of a message")
        yield number, data[offset : offset + size]
        offset += size


def integer(value: int | bytes, *, file: str, bits: int = 64) -> int:
    """Return a field that must be an int32 or int64. Raise ``CorruptFileError`` for another type."""
    if isinstance(value, bytes):
        raise CorruptFileError(file, "a message has bytes where a number is required")
    return signed(value, bits)


def binary(value: int | bytes, *, file: str) -> bytes:
    """Return a field that must be bytes or a message. Raise ``CorruptFileError`` for another type."""
    if isinstance(value, int):
        raise CorruptFileError(file, "a message has a number where bytes are required")
    return value


def text(value: int | bytes, *, file: str) -> str:
    """Return a field that must be a string. Raise ``CorruptFileError`` for another type and for invalid UTF-8."""
    try:
        return binary(value, file=file).decode()
    except UnicodeDecodeError as error:
        raise CorruptFileError(file, f"a message has a string that is not UTF-8: {error.reason}") from None


def integer_field(number: int, value: int) -> bytes:
    """Encode an integer field; empty for zero, because proto3 omits defaults."""
    return encode_varint(number << 3 | VARINT) + encode_varint(value) if value else b""


def bytes_field(number: int, value: bytes, *, keep_empty: bool = False) -> bytes:
    """Encode a string, bytes or message field; empty for an empty value, unless ``keep_empty`` (messages, maps)."""
    if not value and not keep_empty:
        return b""
    return encode_varint(number << 3 | BYTES) + encode_varint(len(value)) + value
