"""Write ranges and metaranges as lakeFS does, for the embedded server of the demo and the tests.

Both are SSTables of the kind that RocksDB calls a block based table of format version 2. Pebble, which lakeFS uses,
writes this kind by default. From the start of the file::

    data blocks | index blocks (one, or several and one above them) | properties | metaindex | footer

A block is a run of key-value pairs. Each key omits the prefix that it shares with the previous key, except at *restart
points* (every 16 pairs), with offsets at the end of the block. After each block follow one byte for its compression and
a masked CRC-32C. Keys have eight more bytes, sequence number and kind. The writer is deterministic, cuts blocks where
Pebble does, and computes the same ids and estimated sizes, provided that Snappy compresses identically.

Source of the format: https://github.com/facebook/rocksdb/wiki/Rocksdb-BlockBasedTable-Format and Pebble's
``sstable`` package; of ids and properties: lakeFS ``pkg/graveler/sstable/writer.go``.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.entry import Entry, encode_entry, encode_value, identity_of_map
from lakefs_gc.formats.protobuf import encode_varint
from lakefs_gc.formats.range_data import RangeData, encode_range_data
from lakefs_gc.formats.sstable.crc32c import masked_crc32c

BLOCK_SIZE_BYTES = 4096
BLOCK_SIZE_THRESHOLD_BYTES = (BLOCK_SIZE_BYTES * 90 + 99) // 100
"""A block above this size is closed if the next pair would exceed ``BLOCK_SIZE_BYTES``."""
DATA_RESTART_INTERVAL = 16
INDEX_RESTART_INTERVAL = 1
BLOCK_TRAILER_BYTES = 5
FOOTER_MAGIC = bytes.fromhex("f7cff485b741e288")
FOOTER_BYTES = 53

NO_COMPRESSION, SNAPPY = 0, 1
CHECKSUM_CRC32C = 1
TABLE_FORMAT_VERSION = 2
INDEX_BINARY_SEARCH, INDEX_TWO_LEVEL = 0, 2

# Eight bytes after each key: kind in the lowest byte, sequence number above it.
SET_TRAILER = struct.pack("<Q", 1)
_SEPARATOR_TRAILER = struct.pack("<Q", ((1 << 56) - 1) << 8 | 17)
_INVALID_TRAILER = struct.pack("<Q", 255)

# Pebble assumes this for the position of a block when it decides whether an index block is full.
_ASSUMED_HANDLE_BYTES = 20

_RESTART_NEVER = (1 << 31) - 1
_SNAPPY = pa.Codec("snappy")


@dataclass(frozen=True)
class WrittenTable:
    """A finished range or metarange: ``id`` is its file name below ``_lakefs/``, ``data`` its content.

    ``estimated_size_bytes`` is Pebble's estimate while writing; lakeFS stores it in both levels.
    """

    id: str
    data: bytes
    min_key: bytes
    max_key: bytes
    count: int
    estimated_size_bytes: int


def write_range(entries: Sequence[tuple[bytes, bytes, Entry]]) -> WrittenTable:
    """Write a range of (logical path, identity, entry), strictly ascending by the bytes of the path."""
    return write_table(
        [(key, encode_value(identity, encode_entry(entry))) for key, identity, entry in entries],
        {"type": "ranges"},
    )


def write_metarange(ranges: Sequence[WrittenTable]) -> WrittenTable:
    """Write the metarange of a commit: its ranges, in ascending order of their keys, without overlap."""
    pairs = []
    for table in ranges:
        data = RangeData(table.min_key, table.max_key, table.estimated_size_bytes, table.count)
        pairs.append((table.max_key, encode_value(table.id.encode(), encode_range_data(data))))
    return write_table(pairs, {"type": "metaranges"})


def write_table(pairs: Sequence[tuple[bytes, bytes]], user_properties: dict[str, str]) -> WrittenTable:
    """Write any table of lakeFS, from key-value pairs in strictly ascending order of their keys."""
    builder = TableBuilder()
    for key, value in pairs:
        builder.add(key, value)
    estimated_size_bytes = builder.estimated_size_bytes()
    min_key, max_key = (pairs[0][0], pairs[-1][0]) if pairs else (b"", b"")
    properties = {name: value.encode() for name, value in user_properties.items()} | {
        "min_key": min_key,
        "max_key": max_key,
        "count": b"%d" % len(pairs),
        "estimated_size_bytes": b"%d" % estimated_size_bytes,
    }
    return WrittenTable(
        id=table_id(pairs, user_properties),
        data=builder.finish(properties),
        min_key=min_key,
        max_key=max_key,
        count=len(pairs),
        estimated_size_bytes=estimated_size_bytes,
    )


def table_id(pairs: Sequence[tuple[bytes, bytes]], user_properties: dict[str, str]) -> str:
    """Return lakeFS's name of a table: SHA-256 in hex over its pairs and the properties set before it was closed."""
    digest = hashlib.sha256()
    for pair in pairs:
        for part in pair:
            digest.update(b"%d%b|" % (len(part), part))
    digest.update(identity_of_map(user_properties))
    return digest.hexdigest()


class BlockBuilder:
    """A block that is being filled: key-value pairs without shared prefixes, and restart points for a search."""

    def __init__(self, restart_interval: int) -> None:
        self.restart_interval = restart_interval
        self.buffer = bytearray()
        self.restarts: list[int] = []
        self.count = 0
        self.last_key = b""

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self.count % self.restart_interval == 0:
            self.restarts.append(len(self.buffer))
        else:
            shared = _shared_prefix_bytes(self.last_key, key)
        self.buffer += encode_varint(shared) + encode_varint(len(key) - shared) + encode_varint(len(value))
        self.buffer += key[shared:] + value
        self.last_key = key
        self.count += 1

    @property
    def estimated_size_bytes(self) -> int:
        return len(self.buffer) + 4 * len(self.restarts) + 4

    def is_full_for(self, key: bytes, value_bytes: int) -> bool:
        """Return whether Pebble would close this block before it adds a pair of this size."""
        size = self.estimated_size_bytes
        if self.count == 0 or size <= BLOCK_SIZE_THRESHOLD_BYTES:
            return False
        grown = size + len(key) + value_bytes + 4
        grown += len(encode_varint(len(key))) + len(encode_varint(value_bytes))
        if self.count % self.restart_interval == 0:
            grown += 4
        return size >= BLOCK_SIZE_BYTES or grown > BLOCK_SIZE_BYTES

    def finish(self) -> bytes:
        restarts = self.restarts or [0]
        return bytes(self.buffer) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))


class TableBuilder:
    """The file so far, the data block and the index block that are being filled, and sums for the properties."""

    def __init__(self) -> None:
        self.file = bytearray()
        self.data_block = BlockBuilder(DATA_RESTART_INTERVAL)
        self.index_block = BlockBuilder(INDEX_RESTART_INTERVAL)
        self.full_index_blocks: list[BlockBuilder] = []
        self.count = 0
        self.data_blocks = 0
        self.raw_key_bytes = 0
        self.raw_value_bytes = 0
        self.last_key: bytes | None = None

    def add(self, key: bytes, value: bytes) -> None:
        if self.last_key is not None and key <= self.last_key:
            raise ConfigurationError(
                f"The keys of a table must ascend: {key[:80]!r} follows {self.last_key[:80]!r}",
                remedy="Sort the entries by the bytes of their keys, and pass each key once",
            )
        internal_key = key + SET_TRAILER
        if self.last_key is not None and self.data_block.is_full_for(internal_key, len(value)):
            self._finish_data_block(_separator(self.last_key, key))
        self.data_block.add(internal_key, value)
        self.last_key = key
        self.count += 1
        self.raw_key_bytes += len(internal_key)
        self.raw_value_bytes += len(value)

    def add_block(
        self, block: BlockBuilder, key_bytes: int, value_bytes: int, last_key: bytes, next_key: bytes
    ) -> None:
        """Add a data block that the caller filled as far as ``BlockBuilder.is_full_for`` demands.

        ``key_bytes`` (without trailers) and ``value_bytes`` are sums over its pairs; ``next_key`` is empty after the
        last block. Not to be mixed with ``add``.
        """
        self.data_block = block
        self.last_key = last_key
        self.count += block.count
        self.raw_key_bytes += key_bytes + block.count * len(SET_TRAILER)
        self.raw_value_bytes += value_bytes
        if next_key:
            self._finish_data_block(_separator(last_key, next_key))

    def estimated_size_bytes(self) -> int:
        """Return Pebble's estimate of the size of an open table: the written bytes and those of the open blocks."""
        return len(self.file) + self.data_block.estimated_size_bytes + self.index_block.estimated_size_bytes

    def finish(self, user_properties: dict[str, bytes]) -> bytes:
        last = _INVALID_TRAILER if self.last_key is None else _successor(self.last_key)
        self._finish_data_block(last)
        data_bytes = len(self.file)
        properties = {name.encode(): value for name, value in user_properties.items()} | _FIXED_PROPERTIES
        index_handle = self._write_index(properties)
        properties |= {
            b"rocksdb.data.size": encode_varint(data_bytes),
            b"rocksdb.num.data.blocks": encode_varint(self.data_blocks),
            b"rocksdb.num.entries": encode_varint(self.count),
            b"rocksdb.raw.key.size": encode_varint(self.raw_key_bytes),
            b"rocksdb.raw.value.size": encode_varint(self.raw_value_bytes),
        }
        properties_block = BlockBuilder(_RESTART_NEVER)
        for name in sorted(properties):
            properties_block.add(name, properties[name])
        properties_handle = self._write_block(properties_block.finish(), compress=False)
        metaindex = BlockBuilder(1)
        metaindex.add(b"rocksdb.properties", properties_handle)
        metaindex_handle = self._write_block(metaindex.finish(), compress=False)
        handles = bytes([CHECKSUM_CRC32C]) + metaindex_handle + index_handle
        version = struct.pack("<I", TABLE_FORMAT_VERSION)
        self.file += handles.ljust(FOOTER_BYTES - len(version) - len(FOOTER_MAGIC), b"\0") + version + FOOTER_MAGIC
        return bytes(self.file)

    def _finish_data_block(self, separator: bytes) -> None:
        """Write the open data block, and add it to the index with a key between it and the next block."""
        handle = self._write_block(self.data_block.finish(), compress=True)
        self.data_block = BlockBuilder(DATA_RESTART_INTERVAL)
        self.data_blocks += 1
        if self.index_block.is_full_for(separator, _ASSUMED_HANDLE_BYTES):
            self.full_index_blocks.append(self.index_block)
            self.index_block = BlockBuilder(INDEX_RESTART_INTERVAL)
        self.index_block.add(separator, handle)

    def _write_index(self, properties: dict[bytes, bytes]) -> bytes:
        """Write the index, in two levels if it fills more than one block; return the position of its top."""
        index_type = INDEX_TWO_LEVEL if self.full_index_blocks else INDEX_BINARY_SEARCH
        properties[b"rocksdb.block.based.table.index.type"] = struct.pack("<I", index_type)
        if not self.full_index_blocks:
            index_bytes = self.index_block.estimated_size_bytes + BLOCK_TRAILER_BYTES
            properties[b"rocksdb.index.size"] = encode_varint(index_bytes)
            return self._write_block(self.index_block.finish(), compress=True)
        top = BlockBuilder(INDEX_RESTART_INTERVAL)
        partitions = [*self.full_index_blocks, self.index_block]
        for partition in partitions:
            top.add(partition.last_key, self._write_block(partition.finish(), compress=True))
        index_bytes = sum(block.estimated_size_bytes for block in [*partitions, top]) + BLOCK_TRAILER_BYTES
        properties[b"rocksdb.index.partitions"] = encode_varint(len(partitions))
        properties[b"rocksdb.index.size"] = encode_varint(index_bytes)
        properties[b"rocksdb.top-level.index.size"] = encode_varint(top.estimated_size_bytes)
        return self._write_block(top.finish(), compress=True)

    def _write_block(self, block: bytes, *, compress: bool) -> bytes:
        """Append a block with its trailer; return its *handle*, that is, its encoded offset and size."""
        compression = NO_COMPRESSION
        if compress:
            compressed = _SNAPPY.compress(block, asbytes=True)
            if len(compressed) < len(block) - len(block) // 8:
                block, compression = compressed, SNAPPY
        handle = encode_varint(len(self.file)) + encode_varint(len(block))
        body = block + bytes([compression])
        self.file += body + struct.pack("<I", masked_crc32c(body))
        return handle


def _shared_prefix_bytes(left: bytes, right: bytes) -> int:
    shortest = min(len(left), len(right))
    if left[:shortest] == right[:shortest]:
        return shortest
    return next(i for i in range(shortest) if left[i] != right[i])


def _separator(left: bytes, right: bytes) -> bytes:
    """Return a short internal key at or after ``left`` and before ``right``: the key of a block in the index."""
    shared = _shared_prefix_bytes(left, right)
    if shared == len(left):  # ``left`` is a prefix of ``right``: no shorter key is between them
        return left + SET_TRAILER
    if left[shared] + 1 < right[shared] or shared + 1 < len(right):
        return _shortened(left, shared)
    return _successor(left, shared + 1)


def _successor(key: bytes, first: int = 0) -> bytes:
    """Return a short internal key at or after ``key``, with one byte, the ``first`` or a later one, increased."""
    for position in range(first, len(key)):
        if key[position] != 0xFF:
            return _shortened(key, position)
    return key + SET_TRAILER


def _shortened(key: bytes, position: int) -> bytes:
    """Return ``key`` cut after ``position``, with that byte increased by one.

    Sequence number and kind sort before any real ones.
    """
    short = key[:position] + bytes([key[position] + 1])
    return short + _SEPARATOR_TRAILER


# Properties that Pebble writes into every table of lakeFS; no reader of lakeFS uses them.
_FIXED_PROPERTIES = {
    b"rocksdb.block.based.table.prefix.filtering": b"0",
    b"rocksdb.block.based.table.whole.key.filtering": b"0",
    b"rocksdb.column.family.id": encode_varint((1 << 31) - 1),
    b"rocksdb.comparator": b"leveldb.BytewiseComparator",
    b"rocksdb.compression": b"Snappy",
    b"rocksdb.compression_options": (
        b"window_bits=-14; level=32767; strategy=0; max_dict_bytes=0; zstd_max_train_bytes=0; enabled=0; "
    ),
    b"rocksdb.creation.time": b"\0",
    b"rocksdb.deleted.keys": b"\0",
    b"rocksdb.external_sst_file.global_seqno": bytes(8),
    b"rocksdb.external_sst_file.version": struct.pack("<I", 2),
    b"rocksdb.filter.size": b"\0",
    b"rocksdb.fixed.key.length": b"\0",
    b"rocksdb.format.version": b"\0",
    b"rocksdb.index.key.is.user.key": b"\0",
    b"rocksdb.index.value.is.delta.encoded": b"\0",
    b"rocksdb.merge.operands": b"\0",
    b"rocksdb.merge.operator": b"pebble.concatenate",
    b"rocksdb.num.range-deletions": b"\0",
    b"rocksdb.oldest.key.time": b"\0",
    b"rocksdb.prefix.extractor.name": b"nullptr",
    b"rocksdb.property.collectors": b"[static]",
}
