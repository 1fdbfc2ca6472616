"""The few pieces of the protocol buffers wire format that lakeFS's own messages need.

lakeFS stores entries, range descriptions and retention rules as small proto3 messages of scalars, strings
and string maps. Reading and writing them takes a page, and spares users a dependency on ``protobuf`` and
its version pins (which clash on most Spark clusters). Source of the format:
https://protobuf.dev/programming-guides/encoding/
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
    """A 64-bit integer, unsigned or two's complement, in groups of seven bits, lowest first."""
    value &= _UINT64_MASK
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_varint(data: bytes, offset: int, *, file: str) -> tuple[int, int]:
    """The unsigned value at ``offset`` and the offset after it; raises ``CorruptFileError``."""
    value = 0
    for position in range(offset, min(offset + _MAX_VARINT_BYTES, len(data))):
        byte = data[position]
        value |= (byte & 0x7F) << (7 * (position - offset))
        if byte < 0x80:
            if value > _UINT64_MASK:
                break
            return value, position + 1
    raise CorruptFileError(file, f"a number is cut short or too long at byte {offset} of a message")


def signed(value: int, bits: int = 64) -> int:
    """Two's complement of the lowest ``bits`` bits: how proto3 stores int32 and int64."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def decode_fields(data: bytes, *, file: str) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field of a message, in the order of the file; unknown fields too.

    Varints come as unsigned integers, everything else as bytes. Raises ``CorruptFileError``.
    """
    offset = 0
    while offset < len(data):
        tag, offset = decode_varint(data, offset, file=file)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise CorruptFileError(file, f"field number 0 at byte {offset} of a message")
        if wire_type == VARINT:
            value, offset = decode_varint(data, offset, file=file)
            yield number, value
            continue
        if wire_type == BYTES:
            size, offset = decode_varint(data, offset, file=file)
        elif wire_type in _FIXED_SIZE_BYTES:
            size = _FIXED_SIZE_BYTES[wire_type]
        else:
            raise CorruptFileError(file, f"wire type {wire_type} at byte {offset} of a message")
        if size > len(data) - offset:
            raise CorruptFileError(file, f"field {number} is cut short at byte {offset} of a message")
        yield number, data[offset : offset + size]
        offset += size


def integer(value: int | bytes, *, file: str, bits: int = 64) -> int:
    """A field that must be an int32 or int64; raises ``CorruptFileError`` for another type."""
    if isinstance(value, bytes):
        raise CorruptFileError(file, "a message holds bytes where a number belongs")
    return signed(value, bits)


def binary(value: int | bytes, *, file: str) -> bytes:
    """A field that must be bytes or a message; raises ``CorruptFileError`` for another type."""
    if isinstance(value, int):
        raise CorruptFileError(file, "a message holds a number where bytes belong")
    return value


def text(value: int | bytes, *, file: str) -> str:
    """A field that must be a string; raises ``CorruptFileError`` for another type and for invalid UTF-8."""
    try:
        return binary(value, file=file).decode()
    except UnicodeDecodeError as error:
        raise CorruptFileError(file, f"a message holds a string that is not UTF-8: {error.reason}") from None


def integer_field(number: int, value: int) -> bytes:
    """An integer field; nothing for zero, as proto3 leaves defaults out."""
    return encode_varint(number << 3 | VARINT) + encode_varint(value) if value else b""


def bytes_field(number: int, value: bytes, *, keep_empty: bool = False) -> bytes:
    """A string, bytes or message field; nothing for an empty one, unless ``keep_empty`` (messages, map
    entries).
    """
    if not value and not keep_empty:
        return b""
    return encode_varint(number << 3 | BYTES) + encode_varint(len(value)) + value
