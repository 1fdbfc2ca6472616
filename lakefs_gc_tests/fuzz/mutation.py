"""Random but reproducible damage to files."""

from __future__ import annotations

import random

_WORDS = (
    b"\0",
    b"\xff" * 4,
    b"\xff" * 8 + b"\x01",
    b"\x80\x80",
    b"../",
    b"NaN",
    b"1e999",
    b"[" * 3000,
    b'{"a":' * 3000,
)


def mutant(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Flip bits, set bytes, cut, duplicate, splice with another file, or insert a word."""
    changed = bytearray(data)
    size = max(1, len(data))
    at = rng.randrange(size)
    match rng.randrange(7):
        case 0 | 1:
            for _ in range(rng.choice([1, 1, 2, 8])):
                changed[at : at + 1] = bytes([(data[at] if data else 0) ^ 1 << rng.randrange(8)])
                at = rng.randrange(size)
        case 2:
            del changed[at:]
        case 3:
            del changed[at : at + rng.choice([1, 2, 4, 16, 64])]
        case 4:
            changed[at:at] = data[at : at + rng.choice([1, 4, 16, 64, 1024])]
        case 5:
            changed[at:] = other[rng.randrange(max(1, len(other))) :]
        case _:
            changed[at : at + rng.choice([0, 1, 8])] = rng.choice(_WORDS)
    return bytes(changed)
