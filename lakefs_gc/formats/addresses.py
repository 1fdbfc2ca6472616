"""Namespaces, and which addresses below them may ever be deleted.

An address is compared byte for byte as it is stored: no URL decoding, no Unicode normalisation.  ``a%20b``
and ``a b`` are two objects, and so are two spellings of ``é``; taking one for the other deletes live data.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.errors import NamespaceError
from lakefs_gc.formats.entry import AddressType

CANDIDATE_ADDRESS_REGEX = (
    r"^(?:"
    r"data(?:/(?!\.\.?(?:/|(?![\s\S])))[^/]+)+"  # in data/, no '.', '..' or empty part
    r"|"
    r"(?!(?:\.|\.\.|dummy|data|_lakefs)(?![\s\S]))[^/]+"  # directly at the root
    r")(?![\s\S])"
)
"""``is_candidate_address`` as a regular expression that Java (Spark's ``rlike``) and Python read alike.

``(?![\\s\\S])`` is the very end: ``$`` would match before a final line feed, which may be part of a key.
"""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCHEME_RE2 = r"\A[A-Za-z][A-Za-z0-9+.-]*://"
_UNSAFE_PART_RE2 = r"(?:\A|/)\.{0,2}(?:/|\z)"
_DATA_FOLDER = "data/"
_RESERVED_AT_ROOT = ("dummy", "data", "_lakefs")
"""``dummy`` is how lakeFS tests that it can write; the others are the two folders, as markers of some
stores.
"""


def normalize_namespace(namespace: str) -> str:
    """The namespace with exactly one final slash, so that it is a prefix of nothing but what lies in it.

    Raises ``NamespaceError`` when it is not a URL, or names a scheme and no place.
    """
    scheme = _SCHEME.match(namespace)
    stripped = namespace.rstrip("/")
    if scheme is None or len(stripped) < scheme.end():
        raise NamespaceError(
            f"{namespace!r} is no storage namespace",
            remedy="give the whole URL, as lakeFS shows it: s3://bucket/prefix",
        )
    return stripped + "/"


def namespaces_overlap(left: str, right: str) -> bool:
    """Whether one namespace equals or contains the other: then each could collect the other's objects."""
    left, right = normalize_namespace(left), normalize_namespace(right)
    return left.startswith(right) or right.startswith(left)


def relative_address(address: str, address_type: AddressType, namespace: str) -> str | None:
    """The address below the namespace, or None when it lies outside.

    A full address inside the namespace is the same object as its relative form.  With ``BY_PREFIX`` an
    address that begins with a scheme is full, any other relative.
    """
    is_full = address_type == AddressType.FULL or (
        address_type == AddressType.BY_PREFIX and _SCHEME.match(address) is not None
    )
    if not is_full:
        return address
    folder = normalize_namespace(namespace)
    return address.removeprefix(folder) if address.startswith(folder) else None


def relative_addresses(batch: pa.RecordBatch, namespace: str) -> pa.StringArray:
    """``relative_address`` of each row of a batch with ``address: string`` and ``address_type: int8``; null
    outside.
    """
    addresses, types = batch.column("address"), batch.column("address_type")
    if pc.all(pc.equal(types, AddressType.RELATIVE), min_count=0).as_py():  # the usual case, free of charge
        return addresses
    folder = normalize_namespace(namespace)
    is_full = pc.or_(
        pc.equal(types, AddressType.FULL),
        pc.and_(pc.equal(types, AddressType.BY_PREFIX), pc.match_substring_regex(addresses, _SCHEME_RE2)),
    )
    below = pc.utf8_slice_codeunits(addresses, start=len(folder))
    inside = pc.if_else(pc.starts_with(addresses, folder), below, pa.scalar(None, pa.string()))
    return pc.if_else(is_full, inside, addresses)


def is_candidate_address(address: str) -> bool:
    """Whether an address below the namespace is of a kind that may ever be deleted.

    True for objects in ``data/``, and for those directly at the root, where old versions of lakeFS put
    them.  False for anything else: ``_lakefs/``, ``dummy``, other folders, directory markers (a final
    slash), and keys with empty, ``.`` or ``..`` parts, which some stores and tools would resolve to another
    place.
    """
    if any(part in ("", ".", "..") for part in address.split("/")):
        return False
    return address.startswith(_DATA_FOLDER) or ("/" not in address and address not in _RESERVED_AT_ROOT)


def are_candidate_addresses(addresses: pa.StringArray) -> pa.BooleanArray:
    """``is_candidate_address`` of each address."""
    in_data = pc.starts_with(addresses, _DATA_FOLDER)
    reserved = pc.is_in(addresses, pa.array(_RESERVED_AT_ROOT))
    at_root = pc.and_not(pc.invert(pc.match_substring(addresses, "/")), reserved)
    return pc.and_not(pc.or_(in_data, at_root), pc.match_substring_regex(addresses, _UNSAFE_PART_RE2))
