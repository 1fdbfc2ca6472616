"""Encode and decode the entry that lakeFS stores for each path, its identity, and the frame around both.

A range maps the logical path of an object to a *value*: an identity and data, each after its length. The data is an
``Entry`` message. The identity is a digest of the facts by which a diff compares two objects: size, ETag, metadata and
content type, and **not** the address. In a metarange, the identity of the value is the range id, and the data is a
``RangeData`` message (see ``range_data``).

Source: lakeFS ``pkg/catalog/catalog.proto``, ``pkg/catalog/entry.go``, ``pkg/graveler/committed/value.go``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum

from lakefs_gc.errors import CorruptFileError
from lakefs_gc.formats import protobuf
from lakefs_gc.units import EPOCH

_NS_PER_S = 1_000_000_000
# The years 1 to 9999, outside of which a Timestamp message is invalid.
_MIN_SECONDS, _MAX_SECONDS = -62_135_596_800, 253_402_300_799


class AddressType(IntEnum):
    """How to read the address of an entry."""

    BY_PREFIX = 0
    """Full if it has a scheme (``s3://...``), otherwise relative; only old versions of lakeFS write it."""
    RELATIVE = 1
    """Relative to the repository's storage namespace."""
    FULL = 2
    """A whole URL, inside or outside the namespace."""


_ADDRESS_TYPES = {int(each): each for each in AddressType}


@dataclass(frozen=True)
class Entry:
    """One object of a commit or a staging area.

    ``last_modified_ns`` is in nanoseconds since 1970 (UTC), because ``datetime`` cannot hold the nanoseconds of lakeFS.
    ``metadata`` keeps the order of the file, so that an entry that is read and written again has the same bytes.
    """

    address: str
    address_type: AddressType
    size_bytes: int
    last_modified_ns: int
    e_tag: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    content_type: str = ""

    @property
    def last_modified(self) -> datetime:
        """Return the time in UTC, truncated to microseconds."""
        return EPOCH + timedelta(microseconds=self.last_modified_ns // 1000)


def to_ns(moment: datetime) -> int:
    """Return the nanoseconds since 1970 of a time with a time zone."""
    return (moment - EPOCH) // timedelta(microseconds=1) * 1000


def encode_entry(entry: Entry) -> bytes:
    """Return the ``Entry`` message, byte for byte as lakeFS writes it (Go leaves the metadata unordered)."""
    seconds, nanoseconds = divmod(entry.last_modified_ns, _NS_PER_S)
    timestamp = protobuf.integer_field(1, seconds) + protobuf.integer_field(2, nanoseconds)
    metadata = b"".join(
        protobuf.bytes_field(
            5,
            protobuf.bytes_field(1, key.encode(), keep_empty=True)
            + protobuf.bytes_field(2, value.encode(), keep_empty=True),
        )
        for key, value in entry.metadata.items()
    )
    return (
        protobuf.bytes_field(1, entry.address.encode())
        + protobuf.bytes_field(2, timestamp, keep_empty=True)
        + protobuf.integer_field(3, entry.size_bytes)
        + protobuf.bytes_field(4, entry.e_tag.encode())
        + metadata
        + protobuf.integer_field(6, entry.address_type)
        + protobuf.bytes_field(7, entry.content_type.encode())
    )


def decode_entry(data: bytes, *, file: str = "entry") -> Entry:
    """Return the entry of an ``Entry`` message; fields that this version does not know are ignored.

    Raise ``CorruptFileError``, which names ``file``.
    """
    address = e_tag = content_type = ""
    address_type = size_bytes = last_modified_ns = 0
    metadata: dict[str, str] = {}
    for number, value in protobuf.decode_fields(data, file=file):
        if number == 1:
            address = protobuf.text(value, file=file)
        elif number == 2:
            last_modified_ns = _decode_timestamp(protobuf.binary(value, file=file), file=file)
        elif number == 3:
            size_bytes = protobuf.integer(value, file=file)
        elif number == 4:
            e_tag = protobuf.text(value, file=file)
        elif number == 5:
            key, item = _decode_map_item(protobuf.binary(value, file=file), file=file)
            metadata[key] = item
        elif number == 6:
            address_type = protobuf.integer(value, file=file, bits=32)
        elif number == 7:
            content_type = protobuf.text(value, file=file)
    known_type = _ADDRESS_TYPES.get(address_type)
    if known_type is None:
        raise CorruptFileError(file, f"an entry has the unknown address type {address_type}")
    return Entry(address, known_type, size_bytes, last_modified_ns, e_tag, metadata, content_type)


def entry_identity(entry: Entry) -> bytes:
    """Return the 32 bytes by which lakeFS compares two entries: SHA-256 of size, ETag, metadata and content type."""
    digest = hashlib.sha256(
        _identity_int64(entry.size_bytes) + _identity_text(entry.e_tag) + identity_of_map(entry.metadata)
    )
    if entry.content_type:  # omitted if empty: entries older than content types keep their identity
        digest.update(_identity_text(entry.content_type))
    return digest.digest()


def identity_of_map(items: dict[str, str]) -> bytes:
    """Return the bytes of a map of strings in a lakeFS digest (``pkg/ident``), sorted by the bytes of the keys."""
    pairs = sorted((key.encode(), value.encode()) for key, value in items.items())
    texts = b"".join(_identity_bytes(part) for pair in pairs for part in pair)
    return b"\x04" + _identity_int64(len(items)) + texts


def _identity_int64(value: int) -> bytes:
    return b"\x02\x08" + value.to_bytes(8, "big", signed=True)


def _identity_text(value: str) -> bytes:
    return _identity_bytes(value.encode())


def _identity_bytes(value: bytes) -> bytes:
    return b"\x01" + _identity_int64(len(value)) + value


def encode_value(identity: bytes, data: bytes) -> bytes:
    """Return the value of a range or metarange: zigzag length, identity, zigzag length, data."""
    return b"".join(protobuf.encode_varint(len(part) << 1) + part for part in (identity, data))


def decode_value(value: bytes, *, file: str = "value") -> tuple[bytes, bytes]:
    """Return the identity and data of a value; bytes after them are ignored. Raise ``CorruptFileError``."""
    parts = []
    offset = 0
    for part in ("identity", "data"):
        zigzag, offset = protobuf.decode_varint(value, offset, file=file)
        size = zigzag >> 1
        if zigzag & 1 or size > len(value) - offset:
            raise CorruptFileError(file, f"a value has an invalid length of its {part}")
        parts.append(value[offset : offset + size])
        offset += size
    return parts[0], parts[1]


def _decode_timestamp(data: bytes, *, file: str) -> int:
    seconds = nanoseconds = 0
    for number, value in protobuf.decode_fields(data, file=file):
        if number == 1:
            seconds = protobuf.integer(value, file=file)
        elif number == 2:
            nanoseconds = protobuf.integer(value, file=file, bits=32)
    if not (0 <= nanoseconds < _NS_PER_S and _MIN_SECONDS <= seconds <= _MAX_SECONDS):
        raise CorruptFileError(file, f"an invalid time: {seconds} s and {nanoseconds} ns")
    return seconds * _NS_PER_S + nanoseconds


def _decode_map_item(data: bytes, *, file: str) -> tuple[str, str]:
    key = item = ""
    for number, value in protobuf.decode_fields(data, file=file):
        if number == 1:
            key = protobuf.text(value, file=file)
        elif number == 2:
            item = protobuf.text(value, file=file)
    return key, item
