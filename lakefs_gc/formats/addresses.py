"""Namespaces, and which objects below them the addresses of entries name.

Addresses are compared byte for byte as they are stored: no URL decoding, no Unicode normalisation. ``a%20b`` and
``a b`` are two objects, and so are two spellings of ``é``; confusing them deletes live data. If an entry may mean
either of two keys, because lakeFS reads its address as a URL, both keys are live.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from functools import reduce
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.errors import NamespaceError
from lakefs_gc.formats.address_readings import (
    LOCAL_SCHEME,
    LOCAL_STORE,
    SCHEME,
    UNTIDY_PATH,
    as_read,
    is_in_azure,
    is_local,
    may_be_read_otherwise,
    other_readings,
    with_slashes,
    with_small_scheme,
)
from lakefs_gc.formats.candidate_addresses import are_candidate_addresses, is_candidate_address
from lakefs_gc.formats.entry import AddressType
from lakefs_gc.formats.plain_addresses import may_have_empty_parts_inside

ADDRESS_READING = "7"
"""Raised with each change of which objects an address may name: ranges that were read otherwise are read again."""
ADDRESSES_READ_AS = "address_reading"
"""The name of ``ADDRESS_READING`` among the versions that a mark records."""

_SCHEME_RE2 = r"\A[A-Za-z][A-Za-z0-9+.-]*://"
_OTHER_ORIGIN_RE2 = r"\A[A-Za-z0-9+.-]*[A-Z][A-Za-z0-9+.-]*://|\A[A-Za-z0-9+.-]+://[^/?]*@|\As3:///|\Ahttp://"
"""Addresses that ``as_read`` changes, and a few others. Of those in Azure, the ones that are not ``_USUAL_AZURE``."""
_HTTPS_RE2 = r"\Ahttps://"
_USUAL_AZURE_RE2 = r"\Ahttps://[a-z0-9]+\.blob\.core\.windows\.net/[^/]"
_AZURE_URL_RE2 = r"(?i)\Ahttps?://"
_UNTIDY_KEY = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)")
"""A key that no file can have: with an empty part, ``.`` or ``..``."""
_ISSUED_FOLDER = re.compile(r"(?P<folder>local://.+/)data/[0-9a-v]{20}/[0-9a-v]{20}(?:,[A-Za-z0-9_-]+)?")
"""The address that a server with a local store issues for an upload; ``folder`` is its spelling of the namespace."""


def normalize_namespace(namespace: str) -> str:
    """Return the namespace with exactly one final slash, so that it is a prefix of its own content only.

    Raise ``NamespaceError`` if it is not a URL, or has nothing after its scheme.
    """
    scheme = SCHEME.match(namespace)
    stripped = namespace.rstrip("/")
    if scheme is None or len(stripped) < scheme.end():
        raise NamespaceError(
            f"{namespace!r} is not a storage namespace",
            remedy="Pass the whole URL, as lakeFS shows it: s3://bucket/prefix",
        )
    return stripped + "/"


def namespaces_overlap(left: str, right: str) -> bool:
    """Return whether one namespace may equal or contain the other, so that each could collect the other's objects.

    A server creates repositories under every spelling that it reads (``s3://me@bucket/prefix``), so all are compared.
    """
    lefts, rights = (
        {normalize_namespace(reading) for reading in (namespace, *other_readings(namespace))}
        for namespace in (left, right)
    )
    return any(one.startswith(two) or two.startswith(one) for one in lefts for two in rights)


def relative_address(address: str, address_type: AddressType, namespace: str) -> str | None:
    """Return the address relative to the namespace, or None if it is outside.

    A full address inside the namespace is the same object as its relative form. An address without a scheme is relative
    whatever its type says, because a lakeFS server with a local store reads it so. In Azure an address with a scheme
    is full whatever its type says.
    """
    is_full = address_type != AddressType.RELATIVE or (is_in_azure(namespace) and is_in_azure(address))
    if not is_full or SCHEME.match(address) is None:
        return address
    address, folder = as_read(address), as_read(normalize_namespace(namespace))
    return address.removeprefix(folder) if address.startswith(folder) else None


def all_spellings(namespace: str, store_url: str, server_folders: Collection[str]) -> tuple[str, ...]:
    """Return ``spellings`` and ``server_folders``: the namespace itself, how the server spells it, then the others.

    Where one folder is in another, an address means what the server reads. The other meanings are less likely.
    """
    return tuple(dict.fromkeys((normalize_namespace(namespace), *server_folders, *spellings(namespace, store_url))))


def spellings(namespace: str, store_url: str) -> tuple[str, ...]:
    """Return the prefixes of the full addresses of objects in a namespace, which is at ``store_url``.

    A lakeFS server with a local store uses the folder itself in the addresses that it issues for uploads
    (``local:///var/lakefs/data/repo/data/...``), and stores them as full addresses when they are linked. The server's
    path of the folder may differ from the collector's: see ``server_spellings``.
    """
    folder = normalize_namespace(namespace)
    if not (is_local(folder) and store_url.startswith(LOCAL_STORE)):
        # A namespace may itself be spelled otherwise than the addresses that lead into it (``s3://me@bucket/prefix``).
        return tuple(dict.fromkeys((folder, *map(normalize_namespace, other_readings(folder)))))
    return folder, f"{LOCAL_SCHEME}{store_url.removeprefix(LOCAL_STORE).rstrip('/')}/"


def server_spellings(issued: str, namespace: str) -> tuple[str, ...]:
    """Return the prefixes of full addresses on a server with a local store that issued ``issued`` for an upload.

    They are the folder as the server spells it, and as it shows stored full addresses: with its own folder before them
    once more (``QualifiedKey.Format`` in ``pkg/block/local/adapter.go``). Empty for an address that a server does not
    issue.
    """
    match = _ISSUED_FOLDER.fullmatch(issued)
    if match is None:
        return ()
    folder = match["folder"]
    base = folder_above(folder, namespace)
    if not base:
        return (folder,)
    return folder, base + folder.removeprefix(LOCAL_SCHEME).lstrip("/")


def folder_above(folder: str, namespace: str) -> str:
    """Return ``folder`` without the path of the namespace at its end; empty if it does not end in that path."""
    path = normalize_namespace(namespace).partition("://")[2]
    return folder.removesuffix(path) if folder.endswith("/" + path) else ""


def entries_below(
    batch: pa.RecordBatch,
    folders: tuple[str, ...],
    *,
    full_only: bool = False,
    elsewhere: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> pa.RecordBatch:
    """Return the rows with an address in one of ``folders`` (``spellings``), with ``address`` relative to it.

    ``batch`` has ``address: string``, ``address_type: int8`` and any other columns. lakeFS reads a full address as a
    URL, and uses the key that it decodes to; other programs use the key as written; and one of ``folders`` may be in
    another. A row is therefore returned once for each key that it may mean. ``full_only`` is for the entries of another
    repository, with relative addresses in that repository's namespace. ``elsewhere`` maps other addresses that lead
    into the namespace to their keys (``KnownFolders.entries``).
    """
    addresses, types = batch.column("address"), batch.column("address_type")
    if pc.all(pc.equal(types, AddressType.RELATIVE), min_count=0).as_py():  # the usual case, at almost no cost
        if full_only and not elsewhere and not _has_urls_in_azure(addresses, folders):
            return batch.slice(0, 0)
        if not full_only and not pc.any(_may_be_untidy(addresses), min_count=0).as_py():
            return batch
    is_full = _are_full(batch, folders)
    below = pa.nulls(batch.num_rows, pa.string()) if full_only else pc.if_else(is_full, None, addresses)
    if pc.any(pc.and_(is_full, _may_be_of_other_origin(addresses))).as_py():
        addresses = pa.array([as_read(address) for address in addresses.to_pylist()], pa.string())
    rows, keys = _read_otherwise(addresses, pc.and_(is_full, may_be_read_otherwise(addresses)), folders)
    is_named = pa.repeat(False, batch.num_rows)
    for folder in folders:
        is_below = pc.and_(is_full, pc.starts_with(addresses, folder))
        key = pc.utf8_slice_codeunits(addresses, start=len(folder))
        again = pc.and_(is_below, is_named)
        if pc.any(again, min_count=0).as_py():
            again = pc.and_(again, are_candidate_addresses(key))
            rows += pc.indices_nonzero(again).to_pylist()
            keys += key.filter(again).to_pylist()
        below = pc.if_else(pc.and_not(is_below, is_named), key, below)
        is_named = pc.or_(is_named, is_below)
    if not full_only:
        for row, key in _tidied(addresses, pc.and_not(_may_be_untidy(addresses), is_full), folders):
            rows.append(row)
            keys.append(key)
    if is_local(folders[0]):
        # No file can have such a name: the object is what the path leads to, which is among the other readings. As a
        # separate key it would count as a missing live object.
        is_untidy = pc.match_substring_regex(below, _UNTIDY_KEY.pattern.replace(r"\Z", r"\z"))
        below = pc.if_else(pc.fill_null(is_untidy, False), None, below)
    for row in pc.indices_nonzero(pc.is_in(batch.column("address"), pa.array([*elsewhere], pa.string()))).to_pylist():
        found = elsewhere[batch.column("address")[row].as_py()]
        rows += [row] * len(found)
        keys += found
    inside = _with_addresses(batch, below).filter(pc.is_valid(below))
    if not keys:
        return inside
    others = _with_addresses(batch.take(pa.array(rows, pa.int64())), pa.array(keys, pa.string()))
    return pa.concat_batches([inside, others])


def _may_be_untidy(addresses: pa.StringArray) -> pa.BooleanArray:
    """Return whether a relative address may have backslashes, or empty, ``.`` or ``..`` parts; nearly all have none."""
    outside = pc.or_(pc.starts_with(addresses, "/"), pc.ends_with(addresses, "/"))
    outside = pc.or_(outside, pc.match_substring(addresses, "\\"))
    if not may_have_empty_parts_inside(addresses):
        return outside
    return reduce(
        pc.or_,
        (
            outside,
            pc.match_substring(addresses, "//"),
            pc.match_substring(addresses, "./"),
            pc.ends_with(addresses, "/."),
            pc.ends_with(addresses, "/.."),
        ),
    )


def _tidied(addresses: pa.StringArray, untidy: pa.BooleanArray, folders: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield the ``untidy`` rows with each ``key_as_path``, and with the key that a store may make of backslashes.

    An address may climb above the namespace, and come back.
    """
    for row in pc.indices_nonzero(untidy).to_pylist():
        address = addresses[row].as_py()
        keys = [key_as_path(address, folder, folder) for folder in folders]
        converted = with_slashes(address, folders[0])
        if converted != address and is_candidate_address(converted):
            keys.append(converted)
        yield from ((row, key) for key in dict.fromkeys(keys) if key is not None)


def key_as_path(address: str, base: str, folder: str) -> str | None:
    """Return the key below ``folder`` that an address relative to ``base`` names if it is read as a path.

    ``base`` and ``folder`` are URLs with a final slash, of namespaces or of stores. None for an address that is its own
    key, leads elsewhere, or to what can never be garbage. Local stores, and others that keep keys as paths (SeaweedFS),
    resolve ``.``, ``..`` and several slashes, and convert backslashes (``with_slashes``); lakeFS itself drops a first
    slash if the namespace is a whole bucket (``formatPathWithNamespace``).
    """
    stored = with_slashes(address, folder)
    if is_in_azure(folder):
        base, folder = as_read(base), as_read(folder)
    (base_scheme, _, base_path), (scheme, _, path) = base.partition("://"), folder.partition("://")
    resolved, root = posixpath.normpath(base_path + stored), posixpath.normpath(path)
    if base_scheme != scheme or not resolved.startswith(root + "/"):
        return None
    key = resolved[len(root) + 1 :]
    if stored.endswith("/") and not is_local(folder):  # the key of a directory marker is another object
        key += "/"
    return key if is_candidate_address(key) and (base, key) != (folder, address) else None


def leaving_addresses(batch: pa.RecordBatch) -> list[str]:
    """Return the relative addresses of a batch (``entries_below``) that may leave their namespace through ``..``."""
    addresses = batch.column("address")
    leaving = pc.and_not(pc.match_substring_regex(addresses, r"\.\.[/\\]"), _are_full(batch, ("",)))
    return addresses.filter(leaving).unique().to_pylist() if pc.any(leaving, min_count=0).as_py() else []


def _are_full(batch: pa.RecordBatch, folders: tuple[str, ...]) -> pa.BooleanArray:
    """Return which rows have a whole URL; an address of type ``FULL`` without a scheme is a key in a local store.

    In Azure lakeFS does not look at the type: it reads each URL as a full address (``resolveBlobURLInfo``).
    """
    has_scheme = pc.match_substring_regex(batch.column("address"), _SCHEME_RE2)
    is_full = pc.and_(pc.not_equal(batch.column("address_type"), AddressType.RELATIVE), has_scheme)
    if is_in_azure(folders[0]):
        return pc.or_(is_full, pc.match_substring_regex(batch.column("address"), _AZURE_URL_RE2))
    return is_full


def _has_urls_in_azure(addresses: pa.StringArray, folders: tuple[str, ...]) -> bool:
    """Return whether relative addresses of a repository in Azure include URLs, which lakeFS reads as full."""
    if not is_in_azure(folders[0]):
        return False
    return bool(pc.any(pc.match_substring_regex(addresses, _AZURE_URL_RE2), min_count=0).as_py())


def _may_be_of_other_origin(addresses: pa.StringArray) -> pa.BooleanArray:
    """Return whether ``as_read`` may change an address; it does not change the others."""
    is_https = pc.match_substring_regex(addresses, _HTTPS_RE2)
    is_unusual = pc.and_not(is_https, pc.match_substring_regex(addresses, _USUAL_AZURE_RE2))
    return pc.or_(is_unusual, pc.match_substring_regex(addresses, _OTHER_ORIGIN_RE2))


def local_addresses_elsewhere(batch: pa.RecordBatch, folders: tuple[str, ...]) -> list[str]:
    """Return the full addresses of a local store that lead to none of ``folders``; ``batch`` as in ``entries_below``.

    They may be another spelling of a folder of the namespace, or begin with a folder and leave it through ``..``. The
    result is empty unless the namespace is in a local store.
    """
    if not is_local(folders[0]) or pc.all(pc.equal(batch.column("address_type"), AddressType.RELATIVE)).as_py():
        return []
    full = batch.column("address").filter(_are_full(batch, folders)).unique().to_pylist()
    return [url for url in full if is_local(url) and not _leads_below(url, folders)]


def _leads_below(url: str, folders: tuple[str, ...]) -> bool:
    tidy = with_small_scheme(url)
    if UNTIDY_PATH.search(tidy.removeprefix(LOCAL_SCHEME + "/")):
        return any(keys_below(reading, folders) for reading in other_readings(url))
    return tidy.startswith(folders)


def keys_below(reading: str, folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return the key of a reading in each of ``folders`` in which it names a file. One folder may be in another."""
    keys = ((folder, reading.removeprefix(folder)) for folder in folders if reading.startswith(folder))
    return tuple(key for folder, key in keys if not (is_local(folder) and _UNTIDY_KEY.search(key)))


def _with_addresses(batch: pa.RecordBatch, addresses: pa.StringArray) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index("address"), "address", addresses)


def _read_otherwise(
    addresses: pa.StringArray, escaped: pa.BooleanArray, folders: tuple[str, ...]
) -> tuple[list[int], list[str]]:
    """Return the rows and keys of the other readings of full addresses below ``folders``."""
    # Imports are full addresses in other buckets: addresses that cannot be in the folders are skipped together.
    roots = {LOCAL_SCHEME if is_local(folder) else _bucket(folder) for folder in folders}
    near = reduce(pc.or_, (pc.starts_with(addresses, root) for root in sorted(roots)))
    others = [
        (row, key)
        for row in pc.indices_nonzero(pc.fill_null(pc.and_(escaped, near), False)).to_pylist()
        for reading in other_readings(addresses[row].as_py())
        for key in keys_below(reading, folders)
    ]
    return [row for row, _ in others], [key for _, key in others]


def _bucket(folder: str) -> str:
    return folder[: folder.index("/", folder.index("://") + 3) + 1]


def is_whole_bucket(namespace: str) -> bool:
    """Return whether a namespace is a whole bucket (or container), so that other programs may use its root.

    A ``local://`` namespace never is one: its first part is a folder of the server itself.
    """
    scheme, _, path = as_read(normalize_namespace(namespace)).partition("://")
    names = path.count("/")
    # Azure names the account before the container.
    return not is_local(namespace) and names <= (2 if scheme.lower() in ("http", "https") else 1)
