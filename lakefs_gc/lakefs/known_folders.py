"""The folders in full addresses of a local store. An address in an unknown folder fails the run.

A lakeFS server with a local store stores full addresses with its own folder (``local:///var/lakefs/data/...``). The
collector may reach the same files by another path, such as a container's volume, NFS, or a symbolic link. So it
requests the server's spelling of the folder. An address that may be another spelling fails the run, because its object
may be live.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa

from lakefs_gc.config import Settings
from lakefs_gc.errors import LakeFSGCError, NamespaceError
from lakefs_gc.formats.address_readings import LOCAL_SCHEME, is_local, other_readings
from lakefs_gc.formats.addresses import (
    entries_below,
    folder_above,
    key_as_path,
    keys_below,
    leaving_addresses,
    local_addresses_elsewhere,
    normalize_namespace,
    server_spellings,
)
from lakefs_gc.formats.candidate_addresses import is_candidate_address
from lakefs_gc.formats.plain_addresses import are_only_keys
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import Repository
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

_STORE_SCHEME = "file://"
_DATA_FOLDER = "data/"
_PLAIN_NAME = re.compile(r"[0-9A-Za-z_-]+")
"""The last part of an address that has one reading only."""
_A_NAME = "x"
_FOLDERS_READ: dict[tuple[tuple[str, ...], str], tuple[str, ...]] = {}
"""The folders in addresses that were read, by the spellings of the namespace: most addresses are in a few folders, and
reading an address in every way takes 10 microseconds."""
_MOST_FOLDERS = 10_000
_XID = re.compile(r"[0-9a-v]{20}")
_ISSUED_NAME = re.compile(r"[0-9a-v]{20}(?:,[A-Za-z0-9_-]{43})?|[0-9a-f]{32}")
"""The last part of an address that lakeFS issued, in the current or in the old layout."""


def learn_folders(
    server: LakeFSClient, repository: Repository, settings: Settings, location: StoreLocation
) -> tuple[str, ...]:
    """Return other spellings of the folder of a namespace in full addresses: from the server, and from the mounts.

    The URL of a bucket is the same on every machine. But if a mount leads from one bucket to another, both are names of
    one folder. Raises ``NamespaceError`` when a server with a local store does not reveal its folder: then a live
    object may have an address that the collector does not recognize.
    """
    namespace = normalize_namespace(repository.storage_namespace)
    if not is_local(namespace):
        return _names_of_bucket(settings, location)
    remedy = (
        "Grant fs:WriteObject to the collector's lakeFS user (it requests an upload address and writes nothing), and "
        "check that the version of the lakeFS server is 1.x"
    )
    try:
        issued = server.issued_address(repository.name, repository.default_branch)
    except LakeFSGCError as error:
        if error.transient:
            raise
        raise NamespaceError(
            f"The server's folder of {namespace} is unknown: {error.message}. Live objects may be linked by it",
            remedy=remedy,
        ) from error
    spellings = server_spellings(issued, namespace)
    if not spellings:
        raise NamespaceError(
            f"The server's folder of {namespace} is unknown: the server issued {issued!r} for an upload. Live objects "
            "may be linked by that folder",
            remedy=remedy,
        )
    path = location.folder_url
    mounted = (prefix + path.removeprefix(url) for prefix, url in folder_mounts(settings) if path.startswith(url))
    return tuple(dict.fromkeys((*spellings, *mounted)))


def _names_of_bucket(settings: Settings, location: StoreLocation) -> tuple[str, ...]:
    folders = _readings(location.folder_url)
    names = [location.folder_url]
    for prefix, url in settings.mounts.items():
        targets = tuple(_readings(url))
        names += (
            prefix + folder.removeprefix(target)
            for folder in folders
            for target in targets
            if folder.startswith(target)
        )
    readings = (reading for name in names for reading in _readings(name))
    return tuple(dict.fromkeys(map(normalize_namespace, readings))) if settings.mounts else ()


def _readings(folder: str) -> list[str]:
    return list(map(normalize_namespace, (folder, *other_readings(folder))))


def folders_of(namespace: str, store_url: str) -> tuple[str, ...]:
    """Return the folders in which the relative addresses of a repository are: its namespace, and where it is read."""
    return tuple(dict.fromkeys((normalize_namespace(store_url), *_readings(namespace))))


def folder_mounts(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Return the mounts that map a folder of the server's disk, not a namespace, to a folder of this machine."""
    mounts = ((prefix, url) for prefix, url in settings.mounts.items() if prefix.startswith(LOCAL_SCHEME + "/"))
    return tuple(sorted(mounts, key=lambda mount: len(mount[0]), reverse=True))


def folders_overlap(left: StoreLocation, right: StoreLocation) -> bool:
    """Return whether two folders of this machine are equal or nested, through any links and mounts.

    False for other stores, whose URLs are compared elsewhere.
    """
    if not (left.url.startswith(_STORE_SCHEME) and right.url.startswith(_STORE_SCHEME)):
        return False
    one, two = (Path(os.path.realpath(folder.url.removeprefix(_STORE_SCHEME))) for folder in (left, right))
    return _is_in(one, two) or _is_in(two, one)


def _is_in(inner: Path, outer: Path) -> bool:
    """Return whether ``outer`` is ``inner`` or above it. Both paths are resolved, and need not exist."""
    # The same folder can be mounted at two paths.
    return inner.is_relative_to(outer) or any(_is_same(above, outer) for above in (inner, *inner.parents))


def _is_same(one: Path, two: Path) -> bool:
    try:
        return one.samefile(two)
    except OSError:  # a folder without access cannot be read either: see foreign_references
        return False


@dataclass(frozen=True)
class KnownFolders:
    """Decides whether a full address names an object of a namespace. Pickles.

    ``folders`` are the known spellings of the namespace, first the namespace itself. ``server_folders`` are the
    spellings that the server uses. ``mounts`` maps other folders of the server's disk to this machine
    (``folder_mounts``).
    """

    namespace: str
    store: StoreLocation
    folders: tuple[str, ...]
    server_folders: tuple[str, ...]
    mounts: tuple[tuple[str, str], ...]

    def keys_of(self, url: str) -> tuple[str, ...]:
        """Return the keys that a full address may mean; empty if it is proved to lie outside (``key_or_outside``).

        Whether a store decodes an address or reads it as a path is not known: each reading counts.
        """
        folder, slash, name = url.rpartition("/")
        # Each reading of such an address is one of its folder with this name. A query would end before the name.
        if slash and "?" not in folder and _PLAIN_NAME.fullmatch(name):
            return tuple(key + name for key in self._keys_of_folder(folder + slash)) or self._keys_of(url)
        return self._keys_of(url)

    def _keys_of_folder(self, folder: str) -> tuple[str, ...]:
        """Return the keys below this namespace that ``folder`` may mean, each without a name."""
        if (known := _FOLDERS_READ.get((self.folders, folder))) is None:
            names = chain.from_iterable(
                keys_below(reading, self.folders) for reading in (folder + _A_NAME, *other_readings(folder + _A_NAME))
            )
            known = tuple(dict.fromkeys(name.removesuffix(_A_NAME) for name in names))
            if len(_FOLDERS_READ) >= _MOST_FOLDERS:
                _FOLDERS_READ.clear()
            _FOLDERS_READ[self.folders, folder] = known
        return known

    def _keys_of(self, url: str) -> tuple[str, ...]:
        keys = (keys_below(reading, self.folders) for reading in (url, *other_readings(url)))
        if below := tuple(dict.fromkeys(chain.from_iterable(keys))):
            return below
        key = self.key_or_outside(url)
        return () if key is None else (key,)

    def key_or_outside(self, url: str) -> str | None:
        """Return the key of the object that a full address names, or None if it is proved to be outside the namespace.

        These are outside: an address of another kind of store. For a bucket, an address that begins with none of the
        spellings. For a local store, an address whose last parts name no object of the namespace, so that no mount can
        make it one, and a file on this machine that is a different one. Raises ``NamespaceError`` for an address that
        may be another spelling.
        """
        readings = [url, *other_readings(url)]
        for reading in readings:
            if keys := keys_below(reading, self.folders):
                return keys[0]
        if not (is_local(self.namespace) and is_local(url)):
            return None
        tails = [key for reading in readings for key in _keys_by_tail(reading)]
        alike = sorted(open_store(self.store).stat_many(list(dict.fromkeys(tails))))
        if not alike and not _may_be_of_a_slice(readings):
            # A link with a name of its own may still lead to an object of the namespace.
            paths = filter(None, map(self._path_here, readings))
            return next((key for path in paths if (key := self._key_of_file(path, [])) is not None), None)
        for reading in readings:
            if path := self._path_here(reading):
                return self._key_of_file(path, alike)
        raise self._unknown_folder(url)

    def entries(self, batch: pa.RecordBatch, *, of_other: Collection[str] = ()) -> pa.RecordBatch:
        """Return the rows of a batch of entries with an address in the namespace (``entries_below``).

        ``of_other``: the folders of the repository that the entries are of, if it is another one (``folders_of``).
        Raises ``NamespaceError`` as ``key_or_outside`` does, and for a relative address that leaves the folder of a
        server that does not reveal its path.
        """
        if are_only_keys(batch):  # relative to the folder of the other repository, if they are of one
            return batch.slice(0, 0) if of_other else batch
        urls = local_addresses_elsewhere(batch, self.folders)
        elsewhere = {url: {key} for url in urls if (key := self.key_or_outside(url)) is not None}
        if of_other:
            bases_of_other = {*of_other, *self._on_servers_disk(of_other)}
            for address in leaving_addresses(batch):
                # The server resolves it from one folder to the other, and a mount may lead to either of them.
                bases = ((base, own) for base in bases_of_other for own in (self.store.folder_url, *self.folders))
                keys = {key_as_path(address, base, own) for base, own in bases}
                elsewhere.setdefault(address, set()).update(key for key in keys if key is not None)
        if is_local(self.namespace) and not any(
            folder.startswith(LOCAL_SCHEME + "/") for folder in self.server_folders
        ):
            self._refuse_unknown_root(leaving_addresses(batch), of_other or self.folders)
        return entries_below(batch, self.folders, full_only=bool(of_other), elsewhere=elsewhere)

    def _refuse_unknown_root(self, addresses: Iterable[str], bases: Collection[str]) -> None:
        """Raise ``NamespaceError`` if a relative address leaves the server's folder, whose path is unknown."""
        relative = [base.removeprefix(LOCAL_SCHEME) for base in bases if base.startswith(LOCAL_SCHEME)]
        for address in addresses:
            leaves = any(posixpath.normpath(base + address).startswith("../") for base in relative)
            pairs = ((base, own) for base in bases for own in (self.store.folder_url, *self.folders))
            if leaves and all(key_as_path(address, base, own) is None for base, own in pairs):
                raise self._unknown_folder(address)

    def _unknown_folder(self, address: str) -> NamespaceError:
        return NamespaceError(
            f"{address} is in an unknown folder, and may be an object of {self.namespace} under another name. Then a "
            "live object could be deleted",
            remedy="Find out which folder this is, and add it to `mounts` in lakefs-gc.toml, for example "
            'mounts = {"local:///srv/lakefs/" = "file:///mnt/lakefs/"}. Then start a new run',
        )

    def _on_servers_disk(self, namespaces: Iterable[str]) -> Iterator[str]:
        """Yield where local namespaces are on the server's disk, as the server spells the folder of this one."""
        for folder in self.server_folders:
            if above := folder_above(folder, self.namespace):
                paths = (url.removeprefix(LOCAL_SCHEME) for url in namespaces if url.startswith(LOCAL_SCHEME))
                yield from (above + path for path in paths if not path.startswith("/"))

    def _path_here(self, url: str) -> str:
        """Return the path on this machine of a full address outside the namespace. Empty if that is unknown."""
        if not self.store.url.startswith(_STORE_SCHEME):
            return ""
        for prefix, folder in self.mounts:
            path = folder.removeprefix(_STORE_SCHEME) + url.removeprefix(prefix)
            if url.startswith(prefix) and folder.startswith(_STORE_SCHEME) and _is_conclusive(path):
                return path
        own_folder = self.store.folder_url.removeprefix(_STORE_SCHEME)
        own_base = folder_above(own_folder, self.namespace)
        bases = {base: own_base for folder in self.server_folders if (base := folder_above(folder, self.namespace))}
        if LOCAL_SCHEME + own_folder in self.server_folders:
            bases[LOCAL_SCHEME + "/"] = "/"  # the server and this machine have the same paths
        for base in sorted(bases, key=len, reverse=True):
            below = url.removeprefix(base)
            if (
                bases[base]
                and url.startswith(base)
                and not below.startswith("/")
                and os.path.lexists(bases[base] + below)
            ):
                return bases[base] + below
        return ""

    def _key_of_file(self, path: str, alike: list[str]) -> str | None:
        """Return the key of a file on this machine if it is in the namespace, through any links and mounts."""
        root = os.path.realpath(self.store.url.removeprefix(_STORE_SCHEME))
        real = os.path.realpath(path)
        if real.startswith(root.rstrip("/") + "/"):
            return os.path.relpath(real, root)
        for key in alike:
            if _identity(path) == _identity(f"{root}/{key}"):
                return key
        return None


def _is_conclusive(path: str) -> bool:
    """Return whether a file exists, or is proved to be missing from a folder that has other files.

    An empty folder proves nothing, because it may be a mount point without its mount.
    """
    if os.path.lexists(path):
        return True
    try:
        with os.scandir(Path(path).parent) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


def _identity(path: str) -> tuple[int, int, int] | None:
    """Return values that two names of one file share, even if two mounts of a file system have different devices."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _keys_by_tail(url: str) -> list[str]:
    """Return the keys that an address can mean if its folder is the namespace's, ``data/``, or above them."""
    parts = [part for part in url.removeprefix(LOCAL_SCHEME).split("/") if part]
    if not parts or {".", ".."} & set(parts):
        return []
    keys = ["/".join(parts[index:]) for index, part in enumerate(parts) if f"{part}/" == _DATA_FOLDER]
    keys += [_DATA_FOLDER + "/".join(parts[-2:]), parts[-1]]
    return [key for key in keys if is_candidate_address(key)]


def _may_be_of_a_slice(readings: list[str]) -> bool:
    """Return whether the folder may be a slice under another name: an issued name whose folder is not a slice id."""
    return any(
        _ISSUED_NAME.fullmatch(parts[-1]) is not None and _XID.fullmatch(parts[-2]) is None
        for parts in (reading.split("/") for reading in readings)
        if len(parts) > 1
    )
