"""Decompress Snappy in compiled code.

A Snappy block has the length of the content, then a series of literals (unchanged bytes) and copies (of bytes that were
written before). Both are mostly short, so they are copied in steps of 16 bytes that may run past their end: the next
one overwrites the excess. This needs ``SLACK_BYTES`` of spare room after the source and after the target.

Source of the format: https://github.com/google/snappy/blob/main/format_description.txt
"""

from __future__ import annotations

from lakefs_gc.formats.jit import compiled, inlined
from lakefs_gc.formats.sstable.memory import (
    copy,
    copy_16,
    load_8,
    load_16,
    load_32,
    load_64,
    store_8,
    store_64,
)

SLACK_BYTES = 16
"""Readable bytes after the source, and writable bytes after the target, that the copies below may touch."""

MAX_RATIO = 22
"""The maximum growth of a Snappy block: at best three bytes become 64."""

_SHORT_BYTES = 64


@compiled
def decompress(source: int, end: int, target: int, size: int) -> bool:
    """Decompress the bytes from ``source`` (after the length) to ``end``; return whether they gave ``size`` bytes.

    For any input, never read at or after ``end + SLACK_BYTES``, and never write at or after
    ``target + size + SLACK_BYTES``.
    """
    first = target
    target_end = target + size
    while source < end:
        tag = load_8(source)
        source += 1
        kind = tag & 3
        if kind == 0:
            length = (tag >> 2) + 1
            if length > 60:  # the length follows, in one to four bytes
                length_bytes = length - 60
                if length_bytes > end - source:
                    return False
                length = (load_32(source) & ((1 << (8 * length_bytes)) - 1)) + 1
                source += length_bytes
            if length > end - source or length > target_end - target:
                return False
            copy_literal(source, target, length)
            source += length
            target += length
            continue
        if kind == 1:
            if source >= end:
                return False
            length = ((tag >> 2) & 7) + 4
            distance = ((tag >> 5) << 8) | load_8(source)
            source += 1
        elif kind == 2:
            if end - source < 2:
                return False
            length = (tag >> 2) + 1
            distance = load_16(source)
            source += 2
        else:
            if end - source < 4:
                return False
            length = (tag >> 2) + 1
            distance = load_32(source)
            source += 4
        if distance == 0 or distance > target - first or length > target_end - target:
            return False
        copy_back_reference(target, distance, length)
        target += length
    return target == target_end


@inlined
def copy_literal(source: int, target: int, length: int) -> None:
    """Copy bytes from ``source`` to ``target``; up to 15 more bytes may be written."""
    if length > _SHORT_BYTES:
        copy(target, source, length)
        return
    done = 0
    while done < length:
        copy_16(target + done, source + done)
        done += 16


@inlined
def copy_back_reference(target: int, distance: int, length: int) -> None:
    """Repeat the bytes ``distance`` before ``target``, in steps that do not overlap with the bytes they read."""
    source = target - distance
    done = 0
    if distance >= 16:
        while done < length:
            copy_16(target + done, source + done)
            done += 16
    elif distance >= 8:
        while done < length:
            store_64(target + done, load_64(source + done))
            done += 8
    else:
        while done < length:
            store_8(target + done, load_8(source + done))
            done += 1
