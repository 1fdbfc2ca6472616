"""Read and write memory at an address, in compiled code.

The decoder works on addresses instead of arrays. The caller checks bounds once for a whole item, not once for each
byte, which is five times as fast. **No function here checks anything.** The caller must ensure that the bytes exist,
and must keep the array that owns them alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_CHUNK = ir.VectorType(ir.IntType(8), 16)
_NUMBA_UINT: dict[int, Any] = {8: types.uint8, 64: types.uint64}


def _loader(bits: int) -> Any:
    """Return numbers of up to 32 bits as int64: numba would convert a signed and an unsigned operand to a float."""

    @intrinsic  # type: ignore[misc, unused-ignore]
    def load(typing_context: Any, address: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            value = builder.load(pointer, align=1)
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return (types.uint64 if bits == 64 else types.int64)(types.int64), generate

    return load


def _storer(bits: int) -> Any:
    @intrinsic  # type: ignore[misc, unused-ignore]
    def store(typing_context: Any, address: Any, value: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            builder.store(arguments[1], pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, _NUMBA_UINT[bits]), generate

    return store


load_8 = _loader(8)
load_16 = _loader(16)
load_32 = _loader(32)
load_64 = _loader(64)
"""``load_N(address)``: the unsigned little-endian number of N bits at any address, aligned or not.

The result is an int64, except for ``load_64``, which returns a uint64.
"""

store_8 = _storer(8)
store_64 = _storer(64)
"""``store_N(address, value)``."""


def _copy_16(typing_context: Any, target: Any, source: Any) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.load(builder.inttoptr(arguments[1], _CHUNK.as_pointer()), align=1)
        builder.store(value, builder.inttoptr(arguments[0], _CHUNK.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


copy_16: Any = intrinsic(_copy_16)
"""``copy_16(target, source)``: copy 16 bytes, in one instruction if the processor has it."""


def _copy(typing_context: Any, target: Any, source: Any, size: Any) -> tuple[Any, Callable[..., Any]]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, ir.IntType(64)])
        target_pointer, source_pointer = (builder.inttoptr(arguments[i], pointer) for i in range(2))
        builder.call(memcpy, [target_pointer, source_pointer, arguments[2], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


copy: Any = intrinsic(_copy)
"""``copy(target, source, size)``: copy ``size`` bytes between areas that do not overlap."""
