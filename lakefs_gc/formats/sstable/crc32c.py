"""Compute CRC-32C (Castagnoli), the checksum of every block of an SSTable.

The processor's own instruction is used if it exists (SSE 4.2), otherwise a table, eight bytes at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from lakefs_gc.formats.jit import USE_SSE42, compiled
from lakefs_gc.formats.sstable.memory import load_8, load_64

_POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41 with its bits reversed


def _tables() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the table ``[k, b]``: the remainder of byte ``b`` followed by ``k`` zero bytes."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        remainder = byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (_POLYNOMIAL if remainder & 1 else 0)
        tables[0, byte] = remainder
    for k in range(1, 8):
        tables[k] = tables[0, tables[k - 1] & 0xFF] ^ tables[k - 1] >> 8
    return tables


_TABLES = _tables()


@compiled
def crc32c_portable(address: int, size: int) -> np.uint32:
    """Return the CRC-32C of ``size`` bytes at an address, on any processor."""
    tables = _TABLES
    crc = np.uint32(0xFFFFFFFF)
    end = address + size
    while address + 8 <= end:
        word = load_64(address) ^ np.uint64(crc)
        crc = (
            tables[7, word & 0xFF]
            ^ tables[6, (word >> 8) & 0xFF]
            ^ tables[5, (word >> 16) & 0xFF]
            ^ tables[4, (word >> 24) & 0xFF]
            ^ tables[3, (word >> 32) & 0xFF]
            ^ tables[2, (word >> 40) & 0xFF]
            ^ tables[1, (word >> 48) & 0xFF]
            ^ tables[0, word >> 56]
        )
        address += 8
    while address < end:
        crc = tables[0, (crc ^ load_8(address)) & 0xFF] ^ (crc >> np.uint32(8))
        address += 1
    return np.uint32(~crc)


def _sse42_instruction(name: str, state_bits: int, data_bits: int) -> Any:
    numba_types: dict[int, Any] = {8: types.uint8, 32: types.uint32, 64: types.uint64}

    @intrinsic  # type: ignore[misc, unused-ignore]
    def step(typing_context: Any, crc: Any, data: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            state, value = ir.IntType(state_bits), ir.IntType(data_bits)
            instruction = builder.module.declare_intrinsic(
                f"llvm.x86.sse42.crc32.{name}", (), ir.FunctionType(state, [state, value])
            )
            return builder.call(instruction, arguments)

        return numba_types[state_bits](numba_types[state_bits], numba_types[data_bits]), generate

    return step


_step_64 = _sse42_instruction("64.64", 64, 64)
_step_8 = _sse42_instruction("32.8", 32, 8)


@compiled
def crc32c_sse42(address: int, size: int) -> np.uint32:
    """Return the CRC-32C of ``size`` bytes at an address, on a processor with SSE 4.2."""
    crc = np.uint64(0xFFFFFFFF)
    end = address + size
    while address + 8 <= end:
        crc = _step_64(crc, load_64(address))
        address += 8
    rest = np.uint32(crc)
    while address < end:
        rest = _step_8(rest, np.uint8(load_8(address)))
        address += 1
    return np.uint32(~rest)


crc32c_at = crc32c_sse42 if USE_SSE42 else crc32c_portable
"""CRC-32C of ``size`` bytes at an address, for compiled code."""


@compiled
def mask(crc: np.uint32) -> np.uint32:
    """Return the form in which SSTables store a CRC: rotated and shifted, so that a CRC over CRCs stays useful."""
    return np.uint32(((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8))


def masked_crc32c(data: bytes) -> int:
    """Return the checksum that an SSTable stores for ``data`` (a block and its compression type)."""
    array = np.frombuffer(data, np.uint8)
    return int(mask(crc32c_at(array.ctypes.data, array.size)))
