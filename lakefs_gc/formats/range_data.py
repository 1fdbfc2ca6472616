"""Encode and decode the description of a range in a metarange.

Source: lakeFS ``pkg/graveler/committed/committed.proto``.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakefs_gc.formats import protobuf


@dataclass(frozen=True)
class RangeData:
    """The first and last key of a range (logical paths, as bytes), its estimated size, and its number of entries."""

    min_key: bytes
    max_key: bytes
    estimated_size_bytes: int
    count: int


def encode_range_data(data: RangeData) -> bytes:
    """Return the ``RangeData`` message, byte for byte as lakeFS writes it."""
    return (
        protobuf.bytes_field(1, data.min_key)
        + protobuf.bytes_field(2, data.max_key)
        + protobuf.integer_field(3, data.estimated_size_bytes)
        + protobuf.integer_field(4, data.count)
    )


def decode_range_data(data: bytes, *, file: str = "range data") -> RangeData:
    """Return the content of a ``RangeData`` message. Raise ``CorruptFileError``, which names ``file``."""
    min_key = max_key = b""
    estimated_size_bytes = count = 0
    for number, value in protobuf.decode_fields(data, file=file):
        if number == 1:
            min_key = protobuf.binary(value, file=file)
        elif number == 2:
            max_key = protobuf.binary(value, file=file)
        elif number == 3:
            estimated_size_bytes = protobuf.integer(value, file=file) & ((1 << 64) - 1)
        elif number == 4:
            count = protobuf.integer(value, file=file)
    return RangeData(min_key, max_key, estimated_size_bytes, count)
