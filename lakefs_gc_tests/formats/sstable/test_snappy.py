"""Decompression, and the two ways to compute checksums."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefs_gc.formats.jit import USE_SSE42
from lakefs_gc.formats.sstable.crc32c import crc32c_portable, crc32c_sse42
from lakefs_gc.formats.sstable.snappy import SLACK_BYTES, decompress


def decompressed(body: bytes, size: int) -> bytes | None:
    """What our decoder makes of a Snappy block without its length; None if it refuses. Checks that it keeps bounds."""
    source = np.frombuffer(body + b"\xaa" * SLACK_BYTES, np.uint8)
    target = np.full(size + SLACK_BYTES + 64, 0x55, np.uint8)
    well = decompress(int(source.ctypes.data), int(source.ctypes.data) + len(body), int(target.ctypes.data), size)
    assert (target[size + SLACK_BYTES :] == 0x55).all()
    return target[:size].tobytes() if well else None


def body_of(content: bytes) -> bytes:
    compressed = pa.Codec("snappy").compress(content, asbytes=True)
    length_bytes = next(i for i, byte in enumerate(compressed) if byte < 0x80) + 1
    return bytes(compressed[length_bytes:])


@settings(deadline=None)  # the first call may compile
@given(st.lists(st.sampled_from([b"a", b"ab", b"abcdefg", b"0123456789abcdef", b"\0" * 70, bytes(range(200))])))
def test_compressed_data_is_restored(parts: list[bytes]) -> None:
    content = b"".join(parts)
    assert decompressed(body_of(content), len(content)) == content


@pytest.mark.parametrize("distance", [1, 2, 3, 7, 8, 9, 15, 16, 17, 100])
def test_copies_that_overlap_themselves(distance: int) -> None:
    start = bytes(i % 251 for i in range(distance))
    literal = bytes([60 << 2, distance - 1]) + start
    for length in (1, 4, 8, 16, 60, 64):
        copy = bytes([(length - 1) << 2 | 2]) + distance.to_bytes(2, "little")
        far_copy = bytes([(length - 1) << 2 | 3]) + distance.to_bytes(4, "little")
        expected = (start * 100)[: distance + length]
        assert decompressed(literal + copy, distance + length) == expected
        assert decompressed(literal + far_copy, distance + length) == expected


@pytest.mark.parametrize("length_bytes", [1, 2, 3, 4])
def test_long_literals(length_bytes: int) -> None:
    content = random.Random(1).randbytes(200)
    body = bytes([(59 + length_bytes) << 2]) + (199).to_bytes(length_bytes, "little") + content
    assert decompressed(body, 200) == content
    assert decompressed(body[:-1], 200) is None
    assert decompressed(body, 199) is None
    assert decompressed(body, 201) is None


@pytest.mark.parametrize(
    "body",
    [
        b"\x00",  # a literal without its byte
        b"\xf0",  # a literal without its length
        b"\x00a\x01",  # a copy without its distance
        b"\x00a\x02\x01",
        b"\x00a\x03\x01\x00\x00",
        b"\x00a\x02\x00\x00",  # a distance of zero
        b"\x00a\x02\x02\x00",  # before the beginning
    ],
)
def test_broken_blocks_are_refused(body: bytes) -> None:
    assert decompressed(body, 2) is None


@settings(deadline=None)  # the first call may compile
@given(st.binary(max_size=40), st.integers(0, 100))
def test_any_bytes_are_decoded_or_refused_within_bounds(body: bytes, size: int) -> None:
    decompressed(body, size)


@pytest.mark.skipif(not USE_SSE42, reason="this processor has no SSE 4.2")
@settings(deadline=None)  # the first call may compile
@given(st.binary(max_size=100))
def test_the_portable_checksum_is_the_processors(data: bytes) -> None:
    array = np.frombuffer(data + b"\0", np.uint8)
    address = int(array.ctypes.data)
    assert crc32c_portable(address, len(data)) == crc32c_sse42(address, len(data))
