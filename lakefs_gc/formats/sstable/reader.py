"""Read SSTables, the files in which lakeFS stores ranges, metaranges and dumps of its references.

See ``table_writer`` for the layout. Supported are tables of format version 2, the default of Pebble and RocksDB, with
CRC-32C checksums, with Snappy or no compression, and with an index of one or two levels. Everything else (newer
formats, other checksums or codecs) raises an error: no file is ever read in part.

All bytes that matter are verified: the checksum of each block, all lengths, the order of the keys, and the number of
entries in the properties.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from lakefs_gc.errors import CorruptFileError, CorruptRangeError
from lakefs_gc.formats.entry import identity_of_map
from lakefs_gc.formats.protobuf import decode_varint
from lakefs_gc.formats.sstable import blocks, kernel
from lakefs_gc.formats.sstable.blocks import Array
from lakefs_gc.formats.sstable.snappy import SLACK_BYTES

PAIRS_SCHEMA = pa.schema([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)])
"""Columns of ``read_pairs``."""

FOOTER_BYTES = 53
FOOTER_MAGIC = bytes.fromhex("f7cff485b741e288")
TABLE_FORMAT_VERSION = 2
CHECKSUM_CRC32C = 1

_OTHER_MAGIC = {
    bytes.fromhex("57fb808b247547db"): "a LevelDB table",
    "🪳🪳".encode(): "a table of a Pebble-only format",
}
_CHECKSUMS = {0: "none", 2: "xxHash", 3: "xxHash64", 4: "XXH3"}
_COMPARATOR = b"leveldb.BytewiseComparator"
_INDEX_ONE_LEVEL, _INDEX_TWO_LEVEL = 0, 2
_PROPERTIES_BLOCK = b"rocksdb.properties"
_SET_LAST = {"min_key", "max_key", "count", "estimated_size_bytes"}
"""The properties that lakeFS sets when it has the name of a file."""

# An entry has at least three bytes, for the lengths of the parts of its key and of its value.
_MIN_ENTRY_BYTES = 3
# Of names that share their first bytes; those of a table take a quarter more than its block.
_MOST_NAMED_TIMES = 16

_CHECK_THE_WRITER = "No known version of lakeFS wrote this file, so do not collect this repository"


Handle = tuple[int, int]
"""The offset of a block, and its size without the trailer."""


@dataclass(frozen=True)
class TableProperties:
    """The properties of a table.

    ``entries`` is the number of plain entries (without range deletions); ``user`` are the properties that the writer's
    application set, for lakeFS ``type``, ``min_key``, ``max_key``, ``count``, ``estimated_size_bytes``, ``entity``;
    ``raw_key_bytes`` is the size of all keys, each with its trailer of eight bytes.
    """

    entries: int
    user: dict[str, bytes]
    two_level_index: bool
    raw_key_bytes: int


class Table:
    """A table with verified footer and properties, and with located data blocks.

    ``data`` is not copied, and must not change. The constructor and every method raise ``CorruptRangeError``.
    """

    def __init__(self, data: Any, file: str) -> None:
        self.data = data
        self.file = file
        self._bytes: Array = np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)
        self._at = int(self._bytes.ctypes.data)
        self._limit = self._bytes.size - FOOTER_BYTES
        metaindex, self._index = self._read_footer()
        self.properties = self._read_properties(metaindex)

    def pairs(self) -> pa.RecordBatch:
        """Return all keys (without their trailers) and values, as ``PAIRS_SCHEMA``."""
        return pa.RecordBatch.from_arrays(
            [self.decoded.keys().binary(), self.decoded.values().binary()], schema=PAIRS_SCHEMA
        )

    def name(self) -> str:
        """Return the name that lakeFS gives to a file with this content.

        It is the SHA-256 in hex of its pairs and of the properties that lakeFS sets before it closes the file
        (``pkg/graveler/sstable/writer.go``).
        """
        digest = hashlib.sha256(self.decoded.content[: self.decoded.size_bytes].data)
        early = {name: text for name, text in self.properties.user.items() if name not in _SET_LAST}
        digest.update(identity_of_map({name: text.decode(errors="replace") for name, text in early.items()}))
        return digest.hexdigest()

    @cached_property
    def decoded(self) -> DecodedPairs:
        """Return all pairs. They are decoded once: for the name, and for the columns of a range."""
        handles = self._read_handles(np.array([self._index], np.int64))
        if self.properties.two_level_index:
            handles = self._read_handles(handles)
        total, largest = self._measure(handles)
        rows = self.properties.entries
        if rows > total // _MIN_ENTRY_BYTES:
            raise self.corrupt(f"{rows} entries do not fit into {total} bytes")
        # The longest key fits into a block; a larger sum is invalid, and must not be allocated.
        key_bytes = self.properties.raw_key_bytes
        if key_bytes > rows * largest:
            raise self.corrupt(f"{rows} keys cannot have {key_bytes} bytes")
        block, key = (np.empty(largest + SLACK_BYTES, np.uint8) for _ in range(2))
        # Memory that is never written is not allocated, so capacities may be large.
        capacity = key_bytes + total + rows * 2 * kernel.MOST_FRAME_BYTES
        content = np.empty(capacity + SLACK_BYTES, np.uint8)
        spans = np.empty((rows, kernel.SPAN_FIELDS), np.int64)
        status, offset, count, size_bytes = kernel.decode_pairs(
            self._at, self._limit, handles, block, key, key_bytes, content, capacity, spans
        )
        self.check(status, offset)
        if count != rows:
            raise self.corrupt(f"the table has {count} entries, but its properties state {rows}")
        return DecodedPairs(self.file, content, size_bytes, spans, key_bytes, total)

    def corrupt(self, reason: str, offset: int = 0) -> CorruptRangeError:
        return CorruptRangeError(self.file, reason, offset=offset)

    def unsupported(self, reason: str, offset: int = 0) -> CorruptRangeError:
        return CorruptRangeError(self.file, f"unsupported: {reason}", offset=offset, remedy=_CHECK_THE_WRITER)

    def check(self, status: int, offset: int) -> None:
        if status in (blocks.UNKNOWN_COMPRESSION, blocks.UNKNOWN_KIND, blocks.UNKNOWN_ADDRESS_TYPE):
            raise self.unsupported(blocks.STATUS_MESSAGES[status].removeprefix("unsupported "), offset)
        if status != blocks.OK:
            raise self.corrupt(blocks.STATUS_MESSAGES[status], offset)

    def _read_footer(self) -> tuple[Handle, Handle]:
        """Return the handles of the metaindex and of the (top) index, from the footer.

        The footer has the checksum type, these handles, padding, the version, and the magic bytes.
        """
        footer = self._bytes[-FOOTER_BYTES:].tobytes()
        magic = footer[-len(FOOTER_MAGIC) :]
        if magic in _OTHER_MAGIC:
            raise self.unsupported(_OTHER_MAGIC[magic], len(self._bytes))
        if self._limit < 0 or magic != FOOTER_MAGIC:
            raise self.corrupt("not an SSTable, or its end is missing", len(self._bytes))
        checksum, (version,) = footer[0], struct.unpack_from("<I", footer, FOOTER_BYTES - 12)
        if version != TABLE_FORMAT_VERSION:
            raise self.unsupported(f"table format version {version}", self._limit)
        if checksum != CHECKSUM_CRC32C:
            name = _CHECKSUMS.get(checksum, f"type {checksum}")
            raise self.unsupported(f"checksums of type {name}", self._limit)
        metaindex, offset = self._read_handle(footer, 1)
        index, _ = self._read_handle(footer, offset)
        return metaindex, index

    def _read_properties(self, metaindex: Handle) -> TableProperties:
        encoded_handle = self._named_values(metaindex).get(_PROPERTIES_BLOCK)
        if encoded_handle is None:
            raise self.corrupt("the table has no properties", metaindex[0])
        handle, _ = self._read_handle(encoded_handle, 0)
        values = self._named_values(handle)
        offset = handle[0]

        def number(name: bytes, default: int | None = None) -> int:
            if name in values:
                return self._varint(values[name], offset)
            if default is None:
                raise self.corrupt(f"the property {name.decode()} is missing", offset)
            return default

        if values.get(b"rocksdb.comparator", _COMPARATOR) != _COMPARATOR:
            raise self.unsupported(f"keys in the order of {values[b'rocksdb.comparator']!r}", offset)
        index_type = int.from_bytes(values.get(b"rocksdb.block.based.table.index.type", b""), "little")
        if index_type not in (_INDEX_ONE_LEVEL, _INDEX_TWO_LEVEL):
            raise self.unsupported(f"index type {index_type}", offset)
        entries = number(b"rocksdb.num.entries") - number(b"rocksdb.num.range-deletions", 0)
        if entries < 0:
            raise self.corrupt("the table has more deletions than entries", offset)
        return TableProperties(
            entries=entries,
            user={
                name.decode(errors="replace"): value
                for name, value in values.items()
                if not name.startswith((b"rocksdb.", b"pebble."))
            },
            two_level_index=index_type == _INDEX_TWO_LEVEL,
            raw_key_bytes=number(b"rocksdb.raw.key.size"),
        )

    def _read_handles(self, index: Array) -> Array:
        """Return the handles that index blocks contain, in rows (offset, size)."""
        total, largest = self._measure(index)
        # An entry of an index has three lengths, the key's trailer and two numbers.
        handles = np.empty((total // (_MIN_ENTRY_BYTES + 2) + 1, 2), np.int64)
        scratch = np.empty(largest + SLACK_BYTES, np.uint8)
        status, offset, count = blocks.read_handles(self._at, self._limit, index, scratch, handles)
        self.check(status, offset)
        return handles[:count]

    def _measure(self, handles: Array) -> tuple[int, int]:
        status, offset, total, largest = blocks.measure_blocks(self._at, self._limit, handles)
        self.check(status, offset)
        return total, largest

    def _named_values(self, handle: Handle) -> dict[bytes, bytes]:
        """Return the entries of the metaindex or of the properties; their keys have no trailers."""
        offset, stored_bytes = handle
        status, size = blocks.content_size(self._at, self._limit, offset, stored_bytes)
        self.check(status, offset)
        scratch = np.empty(size + SLACK_BYTES, np.uint8)
        capacity = _MOST_NAMED_TIMES * size
        named = np.empty(capacity + SLACK_BYTES, np.uint8)
        spans = np.empty((size // _MIN_ENTRY_BYTES, 3), np.int64)
        status, count = blocks.load_named(self._at, self._limit, offset, stored_bytes, scratch, named, capacity, spans)
        self.check(status, offset)
        positions = spans[:count].tolist()
        text = named[: positions[-1][2] if positions else 0].tobytes()
        return {text[name:value]: text[value:end] for name, value, end in positions}

    def _read_handle(self, data: bytes, position: int) -> tuple[Handle, int]:
        """Return a block's offset and size, and the position after them."""
        offset, position = self._varint_at(data, position, self._limit)
        size, position = self._varint_at(data, position, self._limit)
        if max(offset, size) > self._limit:
            raise self.corrupt(blocks.STATUS_MESSAGES[blocks.BLOCK_OUTSIDE], self._limit)
        return (offset, size), position

    def _varint(self, data: bytes, offset: int) -> int:
        return self._varint_at(data, 0, offset)[0]

    def _varint_at(self, data: bytes, position: int, offset: int) -> tuple[int, int]:
        try:
            return decode_varint(data, position, file=self.file)
        except CorruptFileError as error:
            raise self.corrupt(error.facts["reason"], offset) from None


@dataclass(frozen=True)
class DecodedPairs:
    """The pairs of a table: ``size_bytes`` of ``content``, and where they are in it (``kernel.decode_pairs``).

    ``key_bytes`` and ``value_bytes`` limit the size of all keys, and of all values.
    """

    file: str
    content: Array
    size_bytes: int
    spans: Array
    key_bytes: int
    value_bytes: int

    def keys(self) -> BytesColumn:
        return self._column(kernel.KEY, self.key_bytes)

    def values(self) -> BytesColumn:
        return self._column(kernel.VALUE, self.value_bytes)

    def _column(self, start: int, capacity: int) -> BytesColumn:
        column = BytesColumn(len(self.spans), capacity)
        if not kernel.copy_spans(self.content, self.spans, start, column.offsets, column.content, column.capacity):
            raise CorruptRangeError(self.file, blocks.STATUS_MESSAGES[blocks.TOO_MANY_BYTES])
        return column


class BytesColumn:
    """A column of strings or binaries that a kernel fills: ``rows`` values with ``capacity`` bytes in total."""

    def __init__(self, rows: int, capacity: int) -> None:
        self.capacity = min(capacity, kernel.MAX_ARROW_BYTES)
        self.offsets: Array = np.zeros(rows + 1, np.int32)
        # Memory that is never written is not allocated, so capacities may be large.
        self.content: Array = np.empty(self.capacity + SLACK_BYTES, np.uint8)

    def binary(self) -> pa.BinaryArray:
        return pa.Array.from_buffers(pa.binary(), len(self.offsets) - 1, self._buffers())

    def string(self, file: str, what: str) -> pa.StringArray:
        """Return the column as strings. Raise ``CorruptRangeError`` if a row is not valid UTF-8."""
        array = pa.Array.from_buffers(pa.string(), len(self.offsets) - 1, self._buffers())
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorruptRangeError(file, f"{what} is not valid UTF-8") from error
        return array

    def _buffers(self) -> list[pa.Buffer | None]:
        # A copy, so that a column that is kept does not keep its whole capacity.
        return [None, pa.py_buffer(self.offsets), pa.py_buffer(self.content[: self.offsets[-1]].copy())]


TableData = bytes | Table
"""The content of a file, or its table if it was opened before: for its name, or its properties."""


def opened(data: Any, file: str) -> Table:
    """Return the table of ``TableData``. Errors name ``file``. Raise ``CorruptRangeError``."""
    if not isinstance(data, Table):
        return Table(data, file)
    data.file = file
    return data


def read_properties(data: Any, file: str) -> TableProperties:
    """Return the properties of a table (``TableData``). Raise ``CorruptRangeError``."""
    return opened(data, file).properties


def read_pairs(data: Any, file: str) -> pa.RecordBatch:
    """Return all keys and values of any table (``TableData``), as ``PAIRS_SCHEMA``. Raise ``CorruptRangeError``."""
    return opened(data, file).pairs()
