"""The decoder of ranges without its compiler: each memory access is checked, and each line can be traced.

A fuzzer cannot instrument code that numba has compiled, and such code reads beyond a buffer without an error. Here the
same functions run as Python. Only ``memory.load_N`` and similar functions access memory, so they are replaced by
functions that know all buffers. An access outside all buffers raises ``OutOfBoundsError``.

This works only before ``lakefs_gc.formats.sstable.blocks`` is imported, so a process is either interpreted or compiled.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import numpy as np


class OutOfBoundsError(AssertionError):
    """The decoder accessed memory outside its buffers."""


_buffers: list[tuple[int, int]] = []


def forget_buffers() -> None:
    """Forget all buffers. Call this before each input."""
    _buffers.clear()


class _Numpy:
    """numpy that records the arrays that it creates."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def _remembered(array: Any) -> Any:
        _buffers.append((array.ctypes.data, array.ctypes.data + array.nbytes))
        return array

    def empty(self, *arguments: Any) -> Any:
        return self._remembered(np.empty(*arguments))

    def zeros(self, *arguments: Any) -> Any:
        return self._remembered(np.zeros(*arguments))

    def array(self, *arguments: Any) -> Any:
        return self._remembered(np.array(*arguments))

    def frombuffer(self, *arguments: Any) -> Any:
        return self._remembered(np.frombuffer(*arguments))


NUMPY: Any = _Numpy()
"""The functions with which targets create arrays, so that these count as buffers."""


def _check(address: int, size: int) -> None:
    if not any(start <= address and address + size <= end for start, end in _buffers):
        raise OutOfBoundsError(f"{size} bytes at {address:#x}, outside of every buffer")


def _loader(bits: int) -> Any:
    kind: Any = getattr(ctypes, f"c_uint{bits}")
    # As in compiled code: int64 values wrap around, except for 64 bits.
    number: Any = np.uint64 if bits == 64 else np.int64

    def load(address: Any) -> Any:
        _check(int(address), bits // 8)
        return number(kind.from_address(int(address)).value)

    return load


def _storer(bits: int) -> Any:
    kind: Any = getattr(ctypes, f"c_uint{bits}")

    def store(address: Any, value: Any) -> None:
        _check(int(address), bits // 8)
        kind.from_address(int(address)).value = int(value)

    return store


def _copy(target: Any, source: Any, size: Any) -> None:
    _check(int(target), int(size))
    _check(int(source), int(size))
    ctypes.memmove(int(target), int(source), int(size))


def interpret() -> None:
    """Switch this process to interpreted code. Checksums count as correct, so that the fuzzer gets past them."""
    if "lakefs_gc.formats.sstable.blocks" in sys.modules:
        raise RuntimeError("the decoder is imported, and compiled, already")
    os.environ |= {"NUMBA_DISABLE_JIT": "1", "LAKEFS_GC_PORTABLE_CRC": "1"}
    np.seterr(over="ignore")
    from lakefs_gc.formats.sstable import memory

    replaced: dict[str, Any] = {f"load_{bits}": _loader(bits) for bits in (8, 16, 32, 64)}
    replaced |= {"store_8": _storer(8), "store_64": _storer(64), "copy": _copy}
    replaced["copy_16"] = lambda target, source: _copy(target, source, 16)
    for name, function in replaced.items():
        setattr(memory, name, function)

    from lakefs_gc.formats.sstable import crc32c

    # Always the stored checksum of the block: unmasked here, and masked again by the comparison.
    def stored_checksum(address: Any, size: Any) -> Any:
        masked = (int(memory.load_32(address + size)) - 0xA282EAD8) & 0xFFFFFFFF
        return np.uint32(((masked >> 17) | (masked << 15)) & 0xFFFFFFFF)

    setattr(crc32c, "crc32c_at", stored_checksum)  # noqa: B010 - mypy knows it as final

    from lakefs_gc.formats import ranges
    from lakefs_gc.formats.sstable import reader as sstable

    for module in (ranges, sstable):
        setattr(module, "np", NUMPY)  # noqa: B010
