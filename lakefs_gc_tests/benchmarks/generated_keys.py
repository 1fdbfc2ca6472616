"""The objects of a generated namespace as the keys of a simulated store: a file of addresses in byte order.

``write_key_file`` writes it once. The simulated store maps it into memory, so its size does not matter. The numbers of
the objects must be 0 to n - 1 without gaps. This is the case if every entry of a new version is a new object
(``turnover`` 1). Slices then have 50,000 objects each. Only the newest slice, which is the first, may have fewer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lakefs_gc_tests.benchmarks.generator import OBJECTS_PER_SLICE, Shape, addresses_of, sizes_of
from lakefs_gc_tests.benchmarks.simulated_keys import contents_elements

_ADDRESS = np.dtype("S46")
_SLICE_PREFIX_BYTES = len("data/") + 20 + 1
_SIZE = np.dtype(np.int64)


@dataclass(frozen=True)
class KeyFile:
    """A file of ``objects`` addresses of the same length, without separators, and one of their sizes beside it."""

    path: Path
    objects: int

    @property
    def sizes(self) -> Path:
        return self.path.with_name(self.path.name + ".sizes")

    def keys(self, folder: str) -> GeneratedKeys:
        """Return the keys of a simulated store whose namespace is ``folder`` in its bucket."""
        return GeneratedKeys(self, folder)


def write_key_file(path: Path, shape: Shape) -> KeyFile:
    """Write the addresses of all objects of a shape. Raises ``ValueError`` for a ``turnover`` other than 1."""
    if shape.turnover != 1:
        raise ValueError("the numbers of the objects have gaps: turnover must be 1")
    objects = shape.ranges * shape.per_range + shape.staged + shape.stale
    key_file = KeyFile(path, objects)
    with path.open("wb") as file, key_file.sizes.open("wb") as sizes:
        # A later slice sorts before an earlier one.
        for begin in reversed(range(0, objects, OBJECTS_PER_SLICE)):
            numbers = np.arange(begin, min(begin + OBJECTS_PER_SLICE, objects))
            content = addresses_of(shape, numbers).buffers()[2]
            addresses = np.frombuffer(content, _ADDRESS, count=numbers.size)
            order = np.argsort(addresses)
            file.write(addresses[order].tobytes())
            sizes.write(sizes_of(shape, numbers)[order].tobytes())
    return key_file


class GeneratedKeys:
    """As ``SimulatedKeys``, with the addresses of a ``KeyFile``."""

    def __init__(self, source: KeyFile, folder: str) -> None:
        self.folder = folder.encode()
        self._addresses = np.memmap(source.path, _ADDRESS, mode="r", shape=(source.objects,))
        self._sizes = np.memmap(source.sizes, _SIZE, mode="r", shape=(source.objects,))
        self._in_first = source.objects % OBJECTS_PER_SLICE or OBJECTS_PER_SLICE

    def __len__(self) -> int:
        return int(self._addresses.size)

    def prefix_of(self, number: int) -> tuple[bytes, int, int]:
        """Return the folder of a key, its number within that folder, and the number of keys in that folder."""
        prefix = self.folder + self._addresses[number][:_SLICE_PREFIX_BYTES]
        if number < self._in_first:
            return prefix, number, min(self._in_first, len(self))
        return prefix, (number - self._in_first) % OBJECTS_PER_SLICE, OBJECTS_PER_SLICE

    def key(self, number: int) -> bytes:
        """Return the key with this number."""
        return self.folder + bytes(self._addresses[number])

    def size_bytes(self, number: int) -> int:
        return int(self._sizes[number])

    def first(self, wanted: Callable[[bytes], bool]) -> int:
        """Return the first number from which on all keys match, or ``len`` if no key matches."""
        return bisect_left(range(len(self)), True, key=lambda number: wanted(self.key(number)))

    def number_of(self, key: bytes) -> int | None:
        """Return the number of a key, or None for any other text."""
        number = self.first(lambda other: other >= key)
        return number if number < len(self) and self.key(number) == key else None

    def contents(self, numbers: npt.NDArray[np.int64]) -> Iterator[bytes]:
        """Yield the ``<Contents>`` elements of ascending numbers, as S3 writes them."""
        names = self._addresses[numbers].view(np.uint8).reshape(len(numbers), _ADDRESS.itemsize)
        yield contents_elements(self.folder, names, self._sizes[numbers])
