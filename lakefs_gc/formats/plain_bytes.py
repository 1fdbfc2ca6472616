"""Look at each byte of many addresses, in compiled code: Arrow's functions pass over them once for each question."""

from __future__ import annotations

import numpy as np

from lakefs_gc.formats.jit import compiled
from lakefs_gc.formats.sstable.memory import load_8, load_32

_SLASH = ord("/")
_JOINT, _OTHER_READING = 1, 2
_KINDS = np.array(
    [_OTHER_READING if byte in b":%\\" else _JOINT if byte in b"/." else 0 for byte in range(256)], np.uint8
)


@compiled
def are_only_keys(types: int, relative: int, offsets: int, content: int, rows: int) -> bool:
    """Return whether all addresses are of the type ``relative``, and only their own keys (``plain_addresses``).

    ``types``, ``offsets`` and ``content`` are the addresses of Arrow's buffers: of one byte a row, of 32-bit offsets
    from the first row on, and of the bytes that these are positions in.
    """
    end: int = load_32(offsets)
    for row in range(rows):
        start = content + end
        end = load_32(offsets + 4 * row + 4)
        behind = content + end
        if load_8(types + row) != relative or start == behind:
            return False
        if load_8(start) == _SLASH or load_8(behind - 1) == _SLASH:
            return False
        before = 0
        for at in range(start, behind):
            kind = _KINDS[load_8(at)]
            if kind & (before | _OTHER_READING):
                return False
            before = kind
    return True
