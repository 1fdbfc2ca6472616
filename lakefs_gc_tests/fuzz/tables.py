"""SSTables for the fuzzer: corrected checksums, and a second reader of ranges."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pyarrow as pa

from lakefs_gc.formats import protobuf
from lakefs_gc.formats.entry import _decode_timestamp, decode_value
from lakefs_gc.formats.protobuf import decode_varint
from lakefs_gc.formats.sstable.crc32c import masked_crc32c
from lakefs_gc.formats.sstable.reader import FOOTER_BYTES, read_pairs

_FILE = "fuzzed"


def with_right_checksums(data: bytes) -> bytes:
    """Return the table with correct checksums of all blocks that can be found, so that the decoder reads them."""
    changed = bytearray(data)
    footer = data[-FOOTER_BYTES:]
    with suppress(Exception):  # blocks that cannot be found stay unchanged
        metaindex, position = _handle(footer, 1)
        index, _ = _handle(footer, position)
        for place in (metaindex, index):
            _seal(changed, place)
        for value in _values(data, metaindex):
            _seal(changed, _handle(value, 0)[0])
        for value in _values(data, index):
            block, _ = _handle(value, 0)
            _seal(changed, block)
            with suppress(Exception):  # an index of two levels
                handles = [(_handle(below, 0), len(below)) for below in _values(data, block)]
                if all(behind == length for (_, behind), length in handles):
                    for (place, _), _ in handles:
                        _seal(changed, place)
    return bytes(changed)


def _seal(table: bytearray, place: tuple[int, int]) -> None:
    offset, size = place
    if offset + size + 5 <= len(table) - FOOTER_BYTES:
        struct.pack_into("<I", table, offset + size + 1, masked_crc32c(bytes(table[offset : offset + size + 1])))


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = decode_varint(data, position, file=_FILE)
    size, position = decode_varint(data, position, file=_FILE)
    return (offset, size), position


def _values(table: bytes, place: tuple[int, int]) -> list[bytes]:
    offset, size = place
    content = table[offset : offset + size]
    if table[offset + size] == 1:
        length, _ = decode_varint(content, 0, file=_FILE)
        content = bytes(pa.Codec("snappy").decompress(content, min(length, 1 << 20)))
    (restarts,) = struct.unpack_from("<I", content, len(content) - 4)
    end, position, values = len(content) - 4 - 4 * restarts, 0, []
    while position < end:
        _, position = decode_varint(content, position, file=_FILE)
        unshared, position = decode_varint(content, position, file=_FILE)
        length, position = decode_varint(content, position, file=_FILE)
        values.append(content[position + unshared : position + unshared + length])
        position += unshared + length
    return values


def rows_by_hand(data: bytes) -> list[tuple[Any, ...]]:
    """Return key, address, its type, size, microseconds, ETag and content type of each entry, decoded in plain Python.

    Raise the errors of the decoders of single messages. Metadata are ignored, as in ``read_range``.
    """
    rows = []
    pairs = read_pairs(data, _FILE)
    for key, value in zip(pairs["key"].to_pylist(), pairs["value"].to_pylist(), strict=True):
        _, message = decode_value(value, file=_FILE)
        row: dict[int, Any] = {1: "", 2: 0, 3: 0, 4: "", 6: 0, 7: ""}
        for number, item in protobuf.decode_fields(message, file=_FILE):
            if number in (1, 4, 7):
                row[number] = protobuf.binary(item, file=_FILE)
            elif number == 2:
                row[2] = _decode_timestamp(protobuf.binary(item, file=_FILE), file=_FILE) // 1000
            elif number in (3, 6):
                row[number] = protobuf.integer(item, file=_FILE, bits=64 if number == 3 else 32)
        texts = {number: protobuf.text(row[number] or b"", file=_FILE) for number in (1, 4, 7)}
        rows.append((key, texts[1], row[6], row[3], row[2], texts[4], texts[7]))
    return rows
