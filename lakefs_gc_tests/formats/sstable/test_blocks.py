"""The entries of a metaindex and of properties, whatever their names share."""

from __future__ import annotations

from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefs_gc.formats import protobuf
from lakefs_gc.formats.sstable import blocks
from lakefs_gc.formats.sstable.snappy import SLACK_BYTES

RESTARTS = b"\0\0\0\0\1\0\0\0"
Pairs = list[tuple[bytes, bytes]]


def read_named(block: bytes, capacity: int = 100_000, rows: int = 1000) -> tuple[int, Pairs]:
    """Return the status, and the entries of a block."""
    source = np.frombuffer(block + bytes(SLACK_BYTES), np.uint8)
    content = np.zeros(capacity + SLACK_BYTES, np.uint8)
    spans = np.zeros((rows, 3), np.int64)
    status, count = blocks.read_named(int(source.ctypes.data), len(block), content, capacity, spans)
    text = content.tobytes()
    return status, [(text[name:value], text[value:end]) for name, value, end in spans[:count].tolist()]


def entry(shared: int, unshared: bytes, value: bytes) -> bytes:
    lengths = (shared, len(unshared), len(value))
    return b"".join(protobuf.encode_varint(length) for length in lengths) + unshared + value


def block_of(pairs: Pairs) -> bytes:
    encoded, before = b"", b""
    for name, value in pairs:
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, name, strict=False)))
        encoded += entry(shared, name[shared:], value)
        before = name
    return encoded + RESTARTS


@given(st.lists(st.tuples(st.binary(max_size=40) | st.sampled_from([b"p" * 200, b"p" * 201]), st.binary(max_size=300))))
def test_names_and_values_are_those_of_the_block(pairs: Pairs) -> None:
    block = block_of(pairs)
    assert read_named(block) == (blocks.OK, pairs)
    needed = sum(len(name) + len(value) for name, value in pairs)
    assert read_named(block, needed, len(pairs)) == (blocks.OK, pairs)
    if needed:
        assert read_named(block, needed - 1)[0] == blocks.TOO_MANY_BYTES
    if pairs:
        assert read_named(block, rows=len(pairs) - 1)[0] == blocks.TOO_MANY_BYTES


@pytest.mark.parametrize(
    ("block", "status"),
    [
        (entry(1, b"name", b"") + RESTARTS, blocks.BAD_ENTRY),
        (entry(0, b"name", b"") + entry(5, b"", b"value") + RESTARTS, blocks.BAD_ENTRY),
        (entry(0, b"name", b"value")[:-1] + RESTARTS, blocks.BAD_ENTRY),
        (entry(0, b"name", b"value") + b"\x00" + RESTARTS, blocks.BAD_ENTRY),
        (entry(0, b"name", b"value") + b"\0\0\0\0\0\0\0\0", blocks.BAD_RESTARTS),
        (entry(0, b"name", b"value") + b"\0\0\0\0\xff\0\0\0", blocks.BAD_RESTARTS),
        (b"", blocks.BAD_RESTARTS),
    ],
)
def test_impossible_lengths_are_refused(block: bytes, status: int) -> None:
    assert read_named(block) == (status, [])
