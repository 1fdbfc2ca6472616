"""An entry, and tables with one block replaced."""

from __future__ import annotations

import struct

from lakefs_gc.formats.entry import AddressType, Entry
from lakefs_gc.formats.sstable.crc32c import masked_crc32c

ENTRY = Entry(
    address="data/a/b",
    address_type=AddressType.RELATIVE,
    size_bytes=12,
    last_modified_ns=1_790_000_000_123_456_789,
    e_tag="e",
    metadata={"z": "", "a": "é"},
    content_type="text/plain",
)


def with_block(data: bytes, offset: int, size: int, content: bytes, compression: int = 0) -> bytes:
    """Return a table in which one block has other content of the same size, and a matching checksum."""
    assert len(content) == size
    body = content + bytes([compression])
    block = body + struct.pack("<I", masked_crc32c(body))
    return data[:offset] + block + data[offset + len(block) :]
