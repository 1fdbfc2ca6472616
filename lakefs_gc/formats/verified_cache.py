"""numba's cache of one compiled function, in files that begin with the SHA-256 of their other bytes.

numba has no interface for this. The class that reads and writes the files is the one that its own caches use, with the
same names and the same content behind the digest.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
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
        content = _read(self._index_path)
        if content is None:
            return {}
        version, stamp, files = pickle.loads(content)
        return files if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_index(self, overloads: Any) -> None:
        self._write(self._index_path, (self._version, self._source_stamp, overloads))

    def _load_data(self, name: str) -> Any:
        content = _read(self._data_path(name))
        return None if content is None else pickle.loads(content)

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    def _write(self, path: str, data: Any) -> None:
        content = self._dump(data)
        with self._open_for_write(path) as file:
            file.write(hashlib.sha256(content).digest() + content)


def _read(path: str) -> bytes | None:
    """Return the content of a file without its digest; None if it does not exist, cannot be read, or is damaged."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.warning("%s cannot be read (%s): this code is compiled again, which takes seconds", path, error.strerror)
        return None
    content = data[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != data[:_DIGEST_BYTES]:
        logger.warning("%s is damaged: this code is compiled again, which takes seconds. Check the disk", path)
        return None
    return content
