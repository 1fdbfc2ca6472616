"""Open folders below a local folder as descriptors, and write files in them under temporary names.

No part of a path below the folder may be a symbolic link: its target may be an object or a metadata file that was moved
away. A descriptor stays the same folder, whatever is renamed above it.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from lakefs_gc.errors import AccessDeniedError, LakeFSGCError, NamespaceError, ObjectNotFoundError, StorageError

TEMPORARY = re.compile(r"\.lakefs-gc-[0-9a-f]{32}\.tmp")
"""The name of a file that is still being written."""
GONE = (errno.ENOENT, errno.ENOTDIR)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.EMLINK)
_CHUNK_BYTES = 1024**2


@dataclass(frozen=True)
class LocalFolder:
    """A folder, and those below it: a level is a path below it that ends in '/', or is empty.

    ``url`` is for errors, with its final slash. The folder itself, or one above it, may be a symbolic link.
    """

    path: Path
    url: str

    @contextmanager
    def open(self, level: str) -> Iterator[int]:
        """Open a level as a descriptor. Raises ``OSError``."""
        descriptor = os.open(self.path, _FOLDER & ~os.O_NOFOLLOW)
        try:
            for part in level.split("/")[:-1]:
                above, descriptor = descriptor, os.open(part, _FOLDER, dir_fd=descriptor)
                os.close(above)
            yield descriptor
        finally:
            os.close(descriptor)

    def make(self, level: str) -> int:
        """Open a level as a descriptor, and create missing folders; the caller closes it. Raises ``OSError``."""
        while True:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, _FOLDER & ~os.O_NOFOLLOW)
            try:
                for part in level.split("/")[:-1]:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=descriptor)
                    above, descriptor = descriptor, os.open(part, _FOLDER, dir_fd=descriptor)
                    os.close(above)
            except FileNotFoundError:  # removed again by a delete that emptied it
                os.close(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            else:
                return descriptor

    def require(self) -> None:
        """Raise an error if the folder does not exist (not mounted, misspelt): it must not count as an empty folder."""
        with self.errors(""), self.open(""):
            pass

    def new_file(self, level: str, source: BinaryIO, whole_file: bool = False) -> tuple[int, str]:
        """Write ``source`` to a new temporary file; return the descriptor of the folder ``level`` and the file's name.

        The folder stays while the file is in it. Before that, a delete that empties the folder may remove it; then the
        file cannot be created, and the folder is created again.
        """
        temporary = f".lakefs-gc-{uuid.uuid4().hex}.tmp"
        while True:
            folder = self.make(level)
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                descriptor = os.open(temporary, flags, 0o666, dir_fd=folder)
                break
            except FileNotFoundError:
                os.close(folder)
            except BaseException:
                os.close(folder)
                raise
        try:
            with os.fdopen(descriptor, "wb") as file:
                if not (whole_file and _copied_by_kernel(source, descriptor)):
                    shutil.copyfileobj(source, file, _CHUNK_BYTES)
                file.flush()
                os.fsync(descriptor)
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            os.close(folder)
            raise
        return folder, temporary

    def refuse_link_above(self, level: str) -> None:
        """Raise an error if a level cannot be opened because of a symbolic link; otherwise the level is empty."""
        parts = level.split("/")[:-1]
        for depth in range(len(parts)):
            with suppress(OSError), self.open("".join(f"{part}/" for part in parts[:depth])) as folder:
                if stat.S_ISLNK(os.stat(parts[depth], dir_fd=folder, follow_symlinks=False).st_mode):
                    raise self.link_error("/".join(parts[: depth + 1]))

    @contextmanager
    def errors(self, key: str) -> Iterator[None]:
        """Raise ``OSError`` of the block as an error that names the key, and says what to do."""
        try:
            yield
        except OSError as error:
            raise self._explain(error, key) from error

    def _explain(self, error: OSError, key: str) -> LakeFSGCError:
        where = f"{self.url}{key}"
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return AccessDeniedError(
                f"{where}: {error.strerror}", remedy=f"Give this user read and write access to {self.path}"
            )
        if error.errno in GONE:
            return ObjectNotFoundError(
                f"{where} does not exist", remedy="Check the namespace, and that its file system is mounted"
            )
        if error.errno == errno.ELOOP:
            return self.link_error(key)
        return StorageError(f"{where}: {error.strerror}", remedy="Check the disk, then run again")

    def link_error(self, key: str) -> NamespaceError:
        """Return the error for a symbolic link."""
        return NamespaceError(
            f"{self.url}{key} is a symbolic link. Links are not followed, so the objects behind it "
            "would count as missing",
            remedy="Replace the link with the file or folder that it leads to. The namespace's own folder may be a "
            "link",
        )


def name_new(folder: int, temporary: str, name: str) -> None:
    """Give a written file its final name; raise ``FileExistsError`` if the name is taken.

    A hard link makes this atomic. On a file system without hard links (gcsfuse, blobfuse) it is a check followed by a
    rename: of two simultaneous writers both may find the name free, and the later one's file stays.
    """
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from None
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    else:
        os.unlink(temporary, dir_fd=folder)


def _copied_by_kernel(source: BinaryIO, descriptor: int) -> bool:
    """Copy an unread file in the kernel; return False, with nothing written, if the kernel cannot."""
    copied_bytes = 0
    while True:
        try:
            step = os.copy_file_range(source.fileno(), descriptor, 1 << 30)
        except (OSError, AttributeError) as error:  # macOS has no such call
            unable = isinstance(error, AttributeError) or error.errno in (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP)
            if copied_bytes or not (unable or (isinstance(error, OSError) and error.errno == errno.EINVAL)):
                raise
            return False
        if not step:
            # Some file systems (/proc, some FUSE) report the end at once, so an empty answer proves nothing.
            return copied_bytes > 0
        copied_bytes += step
