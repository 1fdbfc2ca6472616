"""The keys of a simulated store: a formula instead of a list, so that a billion of them take no memory.

A namespace has objects directly at its root (the old layout of lakeFS), then ``data/`` with slices of equal size, and
then an optional slice that is larger than all others. Each key has a number. Numbers are in the byte order of the keys,
so that any page of any listing is a range of numbers, which bisection finds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

_ID_DIGITS = 20
_SIGNATURE = b"-" + b"s" * 42
_TIME = b"2025-06-01T12:00:00.000Z"
_HEAD = b"<Contents><Key>"
_MIDDLE = b"</Key><LastModified>" + _TIME + b"</LastModified><ETag>&quot;" + b"e" * 32 + b"&quot;</ETag><Size>"
_TAIL = b"</Size><StorageClass>STANDARD</StorageClass></Contents>"
S3_ROW = (_HEAD, _MIDDLE, _TAIL)
"""What is before the key, before the size and after it, in a listing of S3."""
Row = tuple[bytes, bytes, bytes]
_LEAST_SIZE = 1000
_POWERS = 10 ** np.arange(_ID_DIGITS - 2, -1, -1, dtype=np.int64)


class Keys(Protocol):
    """The keys of a simulated store. Each key has a number, in the byte order of the keys."""

    def __len__(self) -> int: ...

    def prefix_of(self, number: int) -> tuple[bytes, int, int]:
        """Return the folder of a key, its number within that folder, and the number of keys in that folder."""
        ...

    def key(self, number: int) -> bytes:
        """Return the key with this number."""
        ...

    def size_bytes(self, number: int) -> int:
        """Return the size of its object."""
        ...

    def first(self, wanted: Callable[[bytes], bool]) -> int:
        """Return the first number from which on all keys match, or ``len`` if no key matches."""
        ...

    def number_of(self, key: bytes) -> int | None:
        """Return the number of a key, or None for any other text."""
        ...

    def contents(self, numbers: npt.NDArray[np.int64]) -> Iterator[bytes]:
        """Yield the ``<Contents>`` elements of ascending numbers, URL-encoded as S3 writes them."""
        ...


class KeySource(Protocol):
    """A compact description of the keys, which is sent to the process of the store."""

    def keys(self, folder: str) -> Keys:
        """Return the keys of a namespace that is ``folder`` in its bucket."""
        ...


@dataclass(frozen=True)
class KeyShape:
    """The distribution of the objects.

    ``at_root`` objects are directly at the root, ``slices`` × ``objects_per_slice`` in slices of ``data/``, and
    ``in_one_slice`` in one additional slice.
    """

    slices: int = 0
    objects_per_slice: int = 0
    at_root: int = 0
    in_one_slice: int = 0

    @property
    def objects(self) -> int:
        return self.at_root + self.slices * self.objects_per_slice + self.in_one_slice

    def keys(self, folder: str) -> SimulatedKeys:
        """Return the keys of a namespace that is ``folder`` in its bucket."""
        return SimulatedKeys(self, folder)


class SimulatedKeys:
    """Keys below ``folder`` (a namespace's path in its bucket: empty, or ending in ``/``)."""

    def __init__(self, shape: KeyShape, folder: str) -> None:
        self.shape = shape
        self.folder = folder.encode()

    def __len__(self) -> int:
        return self.shape.objects

    def prefix_of(self, number: int) -> tuple[bytes, int, int]:
        """Return the folder of a key, its number within that folder, and the number of keys in that folder."""
        shape = self.shape
        if number < shape.at_root:
            return self.folder, number, shape.at_root
        number -= shape.at_root
        if number < shape.slices * shape.objects_per_slice:
            slice_number, within = divmod(number, shape.objects_per_slice)
            return self.folder + b"data/g%019d/" % slice_number, within, shape.objects_per_slice
        return self.folder + b"data/h%019d/" % 0, number - shape.slices * shape.objects_per_slice, shape.in_one_slice

    def key(self, number: int) -> bytes:
        """Return the key with this number. Linked addresses on a real server have this length."""
        prefix, within, _ = self.prefix_of(number)
        return prefix + b"c%019d,%b" % (within, _SIGNATURE)

    def size_bytes(self, number: int) -> int:
        return _LEAST_SIZE + self.prefix_of(number)[1] % 9000

    def first(self, wanted: Callable[[bytes], bool]) -> int:
        """Return the first number from which on all keys match, or ``len`` if no key matches."""
        return bisect_left(range(len(self)), True, key=lambda number: wanted(self.key(number)))

    def number_of(self, key: bytes) -> int | None:
        """Return the number of a key, or None for any other text."""
        folder, separator, name = key.rpartition(b"/")
        digits = name[1:_ID_DIGITS]
        if not digits.isdigit():
            return None
        shape, within, below = self.shape, int(digits), (folder + separator).removeprefix(self.folder)
        if not below:
            number = within
        elif below.startswith(b"data/g") and below[6:-1].isdigit():
            number = shape.at_root + int(below[6:-1]) * shape.objects_per_slice + within
        else:
            number = shape.objects - shape.in_one_slice + within
        return number if number < len(self) and self.key(number) == key else None

    def contents(self, numbers: npt.NDArray[np.int64]) -> Iterator[bytes]:
        """Yield the ``<Contents>`` elements of ascending numbers, URL-encoded as in S3, one text for each folder."""
        return self.rows(numbers, S3_ROW, comma=b"%2C")

    def rows(self, numbers: npt.NDArray[np.int64], row: Row, *, comma: bytes = b",") -> Iterator[bytes]:
        """Yield the entries of ascending numbers in a listing, one text for each folder."""
        begin = 0
        while begin < len(numbers):
            prefix, within, of_folder = self.prefix_of(int(numbers[begin]))
            base = int(numbers[begin]) - within
            end = int(np.searchsorted(numbers, base + of_folder))
            yield _elements(prefix, numbers[begin:end] - base, row, comma)
            begin = end


def _elements(prefix: bytes, within: npt.NDArray[np.int64], row: Row, comma: bytes) -> bytes:
    """Return the elements of the keys of one folder."""
    name = b"c" + b"0" * (_ID_DIGITS - 1) + comma + _SIGNATURE
    names = np.tile(np.frombuffer(name, np.uint8), (len(within), 1))
    _write_digits(names, 1, within, _ID_DIGITS - 1)
    return contents_elements(prefix, names, _LEAST_SIZE + within % 9000, row)


def contents_elements(
    prefix: bytes, names: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64], row: Row = S3_ROW
) -> bytes:
    """Return the elements of objects in one folder: ``<Contents>``, or those of another store.

    All have the same length: ``names`` has a row of bytes for each, and all ``sizes`` have the same number of digits.
    """
    head, middle, tail = row
    before = head + prefix
    digits = len(str(int(sizes[0])))
    text = before + bytes(names.shape[1]) + middle + b"0" * digits + tail
    matrix = np.tile(np.frombuffer(text, np.uint8), (len(names), 1))
    matrix[:, len(before) : len(before) + names.shape[1]] = names
    _write_digits(matrix, len(text) - len(tail) - digits, sizes, digits)
    return matrix.tobytes()


def _write_digits(matrix: npt.NDArray[np.uint8], column: int, values: npt.NDArray[np.int64], digits: int) -> None:
    used = min(digits, len(str(int(values.max()))))  # the other bytes are already zeros
    decimal = values[:, None] // _POWERS[-used:] % 10
    matrix[:, column + digits - used : column + digits] = decimal + ord("0")
