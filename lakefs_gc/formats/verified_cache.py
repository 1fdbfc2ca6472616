"""numba's cache of one compiled function, in files that end with the SHA-256 of their other bytes.

numba has no interface for this. The class that reads and writes the files is the one that its own caches use, which
ignores what follows the content.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile

logger = logging.getLogger(__name__)

_DIGEST_BYTES = hashlib.sha256().digest_size
_Cache: Any = FunctionCache  # numba has no types
_Files: Any = IndexDataCacheFile


class VerifiedCache(_Cache):  # type: ignore[misc]
    """The cache of a function. What is damaged counts as not cached, and is replaced."""

    _cache_file: Any

    def __init__(self, function: Any) -> None:
        """Raise ``RuntimeError`` if numba cannot cache code in the place of this function."""
        super().__init__(function)
        own: Any = self._cache_file
        self._cache_file = _VerifiedFiles(own._cache_path, self._impl.filename_base, own._source_stamp)


class _VerifiedFiles(_Files):  # type: ignore[misc]
    """The index of a function, which names a file of code for each signature, and these files."""

    def save(self, key: Any, data: Any) -> None:
        """Save the code of a signature, with the signature."""
        super().save(key, (key, data))

    def load(self, key: Any) -> Any:
        """Return the code of a signature; None if it is not cached, or the index names the file of another."""
        found = super().load(key)
        return found[1] if found is not None and found[0] == key else None

    def _load_index(self) -> Any:
        return super()._load_index() if _is_intact(self._index_path) else {}

    def _load_data(self, name: str) -> Any:
        return super()._load_data(name) if _is_intact(self._data_path(name)) else None

    @contextmanager
    def _open_for_write(self, path: str) -> Iterator[BytesIO]:
        with super()._open_for_write(path) as file, BytesIO() as written:
            yield written
            content = written.getvalue()
            file.write(content + hashlib.sha256(content).digest())


def _is_intact(path: str) -> bool:
    """Return whether a file has the digest that it ends with; False if it does not exist, or cannot be read."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return False
    except OSError as error:
        logger.warning("%s cannot be read (%s): this code is compiled again, which takes seconds", path, error.strerror)
        return False
    if hashlib.sha256(data[:-_DIGEST_BYTES]).digest() != data[-_DIGEST_BYTES:]:
        logger.warning("%s is damaged: this code is compiled again, which takes seconds. Check the disk", path)
        return False
    return True
