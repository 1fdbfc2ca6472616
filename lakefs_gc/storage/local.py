"""A local folder, or a folder of a mounted file system, as an object store."""

from __future__ import annotations

import errno
import math
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from lakefs_gc.errors import (
    ConfigurationError,
    NamespaceError,
    ObjectNotFoundError,
    StorageError,
)
from lakefs_gc.storage.base import (
    LISTING_SCHEMA,
    Deletion,
    Deletions,
    ObjectInfo,
    ObjectStore,
    SubPrefixes,
    UnfinishedWrite,
    UnfinishedWrites,
    md5_of,
)
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.delete_window import NOT_TRIED, DeleteWindow
from lakefs_gc.storage.keys import check_key, check_prefix
from lakefs_gc.storage.local_folder import GONE, TEMPORARY, LocalFolder, name_new
from lakefs_gc.storage.local_unfinished import unfinished_below, unfinished_in
from lakefs_gc.storage.location import StoreLocation

SCHEME = "file://"
BATCH_ROWS = 32_000
_FIRST_READS, _SLOW_READ_S = 8, 0.001
"""A disk is slow if its reads, and at least so many of them, take longer than this on average."""
Rows = list[tuple[str, os.stat_result]]
_UNANSWERED = (errno.EIO, errno.ETIMEDOUT)  # from the server of a mounted file system


class LocalStore(ObjectStore):
    """Files below a folder; the key is the path.

    Symbolic links below the folder are not followed, and a listing that finds one fails: its target may be an object or
    a metadata file that was moved away. The folder itself, or one above it, may be a link. Folders that a delete
    empties are removed; other empty folders do not matter. Files that are still being written have a temporary name
    (``.lakefs-gc-<32 hex digits>.tmp``), which is not a key.
    """

    deletes_versions = True  # there are none

    def __init__(self, location: StoreLocation) -> None:
        """Raise ``ConfigurationError`` unless the URL is ``file:///absolute/folder``."""
        self.location = location
        path = location.url.removeprefix(SCHEME).rstrip("/")
        if not location.url.startswith(SCHEME + "/") or not path:
            raise ConfigurationError(
                f"{location.url!r} is not the URL of a local folder", remedy="Write file:///absolute/folder"
            )
        self.folder = LocalFolder(Path(path), location.folder_url)

    # -- listing ---------------------------------------------------------------------------------------------

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[pa.RecordBatch]:
        check_prefix(prefix)
        return self._list(prefix, start_after)

    def _list(self, prefix: str, start_after: str) -> Iterator[pa.RecordBatch]:
        folder = prefix.rpartition("/")[0]
        after = start_after.encode()
        rows: Rows = []
        pending = [folder + "/" if folder else ""]
        while pending:
            level = pending.pop()
            for name, is_folder, facts in self._scan(level):
                key = level + name
                if not key.startswith(prefix):
                    continue
                if is_folder:
                    pending.append(key + "/")
                elif facts is not None and (not after or key.encode() > after):
                    rows.append((key, facts))
                    if len(rows) >= BATCH_ROWS:
                        yield _batch(rows)
                        rows = []
        if rows:
            yield _batch(rows)

    def list_level(self, prefix: str = "") -> tuple[SubPrefixes, pa.RecordBatch]:
        if check_prefix(prefix) and not prefix.endswith("/"):
            raise ConfigurationError(f"The prefix of a level must end in '/': {prefix!r}", remedy="Add the '/'")
        sub_prefixes: SubPrefixes = []
        rows: Rows = []
        for name, is_folder, facts in self._scan(prefix):
            if is_folder:
                sub_prefixes.append(f"{prefix}{name}/")
            elif facts is not None:
                rows.append((prefix + name, facts))
        return sub_prefixes, _batch(rows)

    def _scan(self, level: str) -> Iterator[tuple[str, bool, os.stat_result | None]]:
        """Yield the name of each entry of one folder, whether it is a folder, and (for a file) its facts."""
        with self.folder.errors(level):
            try:
                with self.folder.open(level) as descriptor, os.scandir(descriptor) as entries:
                    for entry in entries:
                        if entry.is_symlink():
                            raise self.folder.link_error(level + entry.name)
                        if entry.is_dir(follow_symlinks=False):
                            yield _text(entry.name), True, None
                        elif entry.is_file(follow_symlinks=False) and not TEMPORARY.fullmatch(entry.name):
                            with suppress(FileNotFoundError):  # deleted since
                                yield _text(entry.name), False, entry.stat(follow_symlinks=False)
            except OSError as error:
                if error.errno not in GONE:
                    raise
                self.folder.require()
                self.folder.refuse_link_above(level)

    # -- reading ---------------------------------------------------------------------------------------------

    def read_many(self, keys: Iterable[str], *, concurrency: int = 16) -> Iterator[tuple[str, bytes]]:
        """See ``ObjectStore``. Reads in this thread, until a disk turns out to be slow.

        What the page cache has, or a fast disk, takes 0.03 ms a file of 44 KB, and 0.3 ms of processor time in threads.
        """
        remaining, seconds = iter(keys), 0.0
        for number, key in enumerate(remaining, 1):
            began = time.perf_counter()
            data = self._read(key)
            seconds += time.perf_counter() - began
            yield key, data
            if number >= _FIRST_READS and seconds > number * _SLOW_READ_S:
                break
        yield from map_unordered(self._read, remaining, concurrency)

    def _read(self, key: str) -> bytes:
        with self.open_read(key) as file:
            return file.read()

    @contextmanager
    def open_read(self, key: str) -> Iterator[BinaryIO]:
        level, name = _split(key)
        with self.folder.errors(key):
            with self.folder.open(level) as folder:
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise FileNotFoundError(errno.ENOENT, "not a file", key)
                yield file

    def read_end(self, key: str, size_bytes: int) -> bytes:
        """See ``ObjectStore``."""
        with self.open_read(key) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size_bytes))
            return file.read()

    def stat_many(self, keys: Sequence[str], *, concurrency: int = 16) -> dict[str, ObjectInfo]:
        """See ``ObjectStore``. Uses this thread only: reading a file's facts is faster than starting a thread.

        Raises ``NamespaceError`` for a symbolic link, like a listing: what is behind it is not missing.
        """
        self.folder.require()
        found = {}
        for key in keys:
            level, name = _split(key)
            with self.folder.errors(key):
                try:
                    with self.folder.open(level) as folder:
                        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
                except OSError as error:
                    if error.errno not in GONE:
                        raise
                    self.folder.refuse_link_above(level)
                    continue
            if stat.S_ISLNK(facts.st_mode):
                raise self.folder.link_error(key)
            if stat.S_ISREG(facts.st_mode):
                found[key] = ObjectInfo(facts.st_size, _time(facts), "")
        return found

    def content_md5(self, keys: Sequence[str], *, concurrency: int = 16) -> dict[str, str]:
        """See ``ObjectStore``. Reads each file."""
        found = {}
        for key in keys:
            with suppress(ObjectNotFoundError), self.open_read(key) as file:
                found[key] = md5_of(file)
        return found

    # -- writing ---------------------------------------------------------------------------------------------

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """See ``ObjectStore``. The data is on disk (fsync) when this returns; a missing store folder is created.

        On a file system without hard links, ``if_absent`` is a check followed by a rename (``_name_new``).
        """
        return self._write(key, BytesIO(data), if_absent)

    def put_stream(self, key: str, source: BinaryIO, *, if_absent: bool = False, size_bytes: int = 0) -> bool:
        return self._write(key, source, if_absent)

    def copy_to(self, key: str, destination: ObjectStore, destination_key: str, *, if_absent: bool = False) -> bool:
        """See ``ObjectStore``. The kernel copies between local folders, on some file systems without moving data."""
        if not isinstance(destination, LocalStore):
            return super().copy_to(key, destination, destination_key, if_absent=if_absent)
        with self.open_read(key) as source:
            return destination._write(destination_key, source, if_absent, whole_file=True)

    def _write(self, key: str, source: BinaryIO, if_absent: bool, *, whole_file: bool = False) -> bool:
        level, name = _split(key)
        with self.folder.errors(key):
            try:
                folder, temporary = self.folder.new_file(level, source, whole_file)
            except NotADirectoryError as error:
                raise StorageError(
                    f"{self.location.folder_url}{key}: a part of the path is a file or a symbolic link, and must be a "
                    "folder",
                    remedy="Move that file or link away, or choose another key",
                ) from error
            try:
                if if_absent:
                    name_new(folder, temporary, name)
                else:
                    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
            except BaseException as error:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                taken = if_absent and isinstance(error, FileExistsError)
                if taken and stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    return False
                raise
            finally:
                os.close(folder)
        return True

    # -- deleting --------------------------------------------------------------------------------------------

    def delete_many(self, keys: Sequence[str], window: DeleteWindow | None = None) -> Deletions:
        """See ``ObjectStore``. Folders that this empties are removed too, up to the store's own."""
        self.folder.require()
        parts = [_split(key) for key in keys]
        window = window or DeleteWindow(math.inf)
        answer = [self._delete(key, *part, window) for key, part in zip(keys, parts, strict=True)]
        for level in {level for level, _ in parts}:
            self._prune(level)
        return answer

    def _delete(self, key: str, level: str, name: str, window: DeleteWindow) -> Deletion:
        try:
            with self.folder.open(level) as folder:
                if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    return Deletion.of(key, "not a regular file")
                if window.is_over:
                    return Deletion.of(key, NOT_TRIED)
                os.unlink(name, dir_fd=folder)
        except OSError as error:
            if error.errno not in GONE:
                window.unanswered |= error.errno in _UNANSWERED
                return Deletion.of(key, f"{errno.errorcode.get(error.errno or 0, 'EIO')}: {error.strerror}")
        return Deletion.of(key, "")

    def _prune(self, level: str) -> None:
        while level:
            parent, name = _split(level.rstrip("/"))
            try:
                with self.folder.open(parent) as folder:
                    os.rmdir(name, dir_fd=folder)
            except OSError:
                return  # not empty, already removed, or not permitted: an empty folder does no harm
            level = parent

    # -- what did not end ------------------------------------------------------------------------------------

    def unfinished_of(self, keys: Sequence[str]) -> dict[str, UnfinishedWrites]:
        """See ``ObjectStore``. The temporary files of the folder that the key is in."""
        self.folder.require()
        levels: dict[str, list[str]] = {}
        for key in keys:
            with suppress(NamespaceError):  # such a key is no file name, so nothing was written
                levels.setdefault(_split(key)[0], []).append(key)
        found = {level: unfinished_in(self.folder, level) for level in levels}
        return {key: found[level] for level, of_level in levels.items() for key in of_level if found[level]}

    def unfinished_below(self, prefix: str = "") -> Iterator[UnfinishedWrite]:
        """See ``ObjectStore``. Visits each folder."""
        return unfinished_below(self.folder, check_prefix(prefix))

    def discard(self, writes: Iterable[UnfinishedWrite]) -> None:
        """See ``ObjectStore``. Folders that this empties are removed too."""
        for write in writes:
            level, _, name = write.key.rpartition("/")
            level = f"{level}/" if level else ""
            with self.folder.errors(write.key), suppress(FileNotFoundError), self.folder.open(level) as folder:
                os.unlink(name, dir_fd=folder)
            self._prune(level)

    def now(self) -> datetime:
        """See ``ObjectStore``. The time of a new file: the clock of the file system, or of the server that it is on."""
        self.folder.require()
        with self.folder.errors("a new file"):
            folder, temporary = self.folder.new_file("", BytesIO(b"t"))
            try:
                return _time(os.stat(temporary, dir_fd=folder))
            finally:
                os.unlink(temporary, dir_fd=folder)
                os.close(folder)


def _split(key: str) -> tuple[str, str]:
    """Return the folder (empty, or ending in '/') and the name. Raise ``NamespaceError`` if it is not a file name."""
    check_key(key)
    parts = key.split("/")
    if "" in parts or "\0" in key or TEMPORARY.fullmatch(parts[-1]):
        raise NamespaceError(f"The key {key!r} cannot be a file name", remedy="Use a key without empty parts")
    level = key[: len(key) - len(parts[-1])]
    return level, parts[-1]


def _text(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise StorageError(
            f"The file name {name!r} is not valid UTF-8, so it cannot be a key", remedy="Rename or remove that file"
        ) from error
    return name


def _time(facts: os.stat_result) -> datetime:
    """Return the modification time, truncated to microseconds: rounding up could put it after the current time."""
    seconds, microseconds = divmod(facts.st_mtime_ns // 1000, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)


def _batch(rows: Rows) -> pa.RecordBatch:
    columns = [
        pa.array([key for key, _ in rows], pa.string()),
        pa.array([facts.st_size for _, facts in rows], pa.int64()),
        pa.array([facts.st_mtime_ns // 1000 for _, facts in rows], LISTING_SCHEMA.field("last_modified").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LISTING_SCHEMA)
