"""Namespaces, and which addresses below them may ever be deleted.

An address is compared byte for byte as it is stored: no URL decoding, no Unicode normalisation.  ``a%20b``
and ``a b`` are two objects, and so are two spellings of ``é``; taking one for the other deletes live data.
Only where an entry may mean either of two keys, because lakeFS reads its address as a URL, both are live.
"""

from __future__ import annotations

import re
from functools import reduce
from urllib.parse import unquote

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

UPLOAD_PART_REGEX = r"^(?:[0-9a-f]{32}-[0-9]{5}|[\s\S]+\.(?:part_[0-9]{5}|multipart))(?![\s\S])"
"""What lakeFS keeps of uploads in parts that are under way where the store has none of its own.

In local stores ``<upload>-<number>`` at the root (``pkg/block/local/adapter.go``), in Google's
``<object>.part_<number>`` and ``<object>.multipart`` (``pkg/block/gs/adapter.go``).
"""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCHEME_RE2 = r"\A[A-Za-z][A-Za-z0-9+.-]*://"
_CAPITAL_SCHEME_RE2 = r"\A[A-Za-z0-9+.-]*[A-Z][A-Za-z0-9+.-]*://"
_UNSAFE_PART_RE2 = r"(?:\A|/)\.{0,2}(?:/|\z)"
_DATA_FOLDER = "data/"
_LOCAL_NAMESPACE, _LOCAL_STORE = "local://", "file://"
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
    address, folder = _with_small_scheme(address), normalize_namespace(namespace)
    return address.removeprefix(folder) if address.startswith(folder) else None


def _with_small_scheme(address: str) -> str:
    """A URL as lakeFS reads it: Go's ``url.Parse`` makes the scheme's letters small."""
    scheme = _SCHEME.match(address)
    return address if scheme is None else scheme[0].lower() + address[scheme.end() :]


def spellings(namespace: str, store_url: str) -> tuple[str, ...]:
    """What the full addresses of objects in a namespace begin with; ``store_url`` is where the namespace is.

    A lakeFS server with a local store names the folder itself in the addresses that it gives out for uploads
    (``local:///var/lakefs/data/repo/data/...``), and keeps them as full ones when they are linked.
    """
    folder = normalize_namespace(namespace)
    if not (folder.startswith(_LOCAL_NAMESPACE) and store_url.startswith(_LOCAL_STORE)):
        return (folder,)
    return folder, f"{_LOCAL_NAMESPACE}{store_url.removeprefix(_LOCAL_STORE).rstrip('/')}/"


def entries_below(batch: pa.RecordBatch, folders: tuple[str, ...], *, full_only: bool = False) -> pa.RecordBatch:
    """The rows whose address lies in one of ``folders`` (``spellings``), with ``address`` relative to it.

    ``batch`` has ``address: string`` and ``address_type: int8``, and whatever else.  A full address is an URL to
    lakeFS, which reads the key that it decodes to, where others read the key as it stands: a row comes once for each
    key that may be meant (``other_readings``).  ``full_only`` is for the entries of another repository, whose relative
    addresses lie in that one's namespace.
    """
    addresses, types = batch.column("address"), batch.column("address_type")
    if pc.all(pc.equal(types, AddressType.RELATIVE), min_count=0).as_py():  # the usual case, free of charge
        return batch.slice(0, 0) if full_only else batch
    is_full = pc.or_(
        pc.equal(types, AddressType.FULL),
        pc.and_(pc.equal(types, AddressType.BY_PREFIX), pc.match_substring_regex(addresses, _SCHEME_RE2)),
    )
    below = pa.nulls(batch.num_rows, pa.string()) if full_only else pc.if_else(is_full, None, addresses)
    if pc.any(pc.and_(is_full, pc.match_substring_regex(addresses, _CAPITAL_SCHEME_RE2))).as_py():
        addresses = pa.array([_with_small_scheme(address) for address in addresses.to_pylist()], pa.string())
    for folder in folders:
        is_below = pc.and_(is_full, pc.starts_with(addresses, folder))
        below = pc.if_else(is_below, pc.utf8_slice_codeunits(addresses, start=len(folder)), below)
    rows, keys = _read_otherwise(addresses, pc.and_(is_full, pc.match_substring_regex(addresses, "[%?]")), folders)
    inside = _with_addresses(batch, below).filter(pc.is_valid(below))
    if not keys:
        return inside
    others = _with_addresses(batch.take(pa.array(rows, pa.int64())), pa.array(keys, pa.string()))
    return pa.concat_batches([inside, others])


def _with_addresses(batch: pa.RecordBatch, addresses: pa.StringArray) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index("address"), "address", addresses)


def _read_otherwise(
    addresses: pa.StringArray, escaped: pa.BooleanArray, folders: tuple[str, ...]
) -> tuple[list[int], list[str]]:
    """Row and key of what full addresses below ``folders`` may mean beside what stands there."""
    # Imports are full addresses of other buckets: those that cannot lie in the folders are not looked at one by one.
    roots = {folder[: folder.index("/", folder.index("://") + 3) + 1] for folder in folders}
    near = reduce(pc.or_, (pc.starts_with(addresses, root) for root in sorted(roots)))
    found = [
        (row, reading.removeprefix(folder))
        for row in pc.indices_nonzero(pc.fill_null(pc.and_(escaped, near), False)).to_pylist()
        for reading in other_readings(addresses[row].as_py())
        for folder in folders
        if reading.startswith(folder)
    ]
    return [row for row, _ in found], [key for _, key in found]


def other_readings(address: str) -> list[str]:
    """What an address may mean where it is read as a URL: without a query, decoded, or both; not the address itself.

    lakeFS reads full addresses as Go's ``url.ParseRequestURI`` does (``pkg/block/namespace.go``, ``resolveFull``).
    """
    before_query = address.partition("?")[0]
    readings = [before_query, *(unquote(text, errors="surrogateescape") for text in (address, before_query))]
    return [text for text in dict.fromkeys(readings) if text != address and _is_utf8(text)]


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
