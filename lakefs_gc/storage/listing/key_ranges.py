"""Pieces of a listing, and where to cut one.

S3 lists 1000 keys for a request, one page after the other, so that a large folder is one lister's job unless it is cut
at some key. Any text will do as a cut: nothing is lost and nothing comes twice wherever it lies. Where it *should*
lie is found by asking for the first name after some text, a few times: first for the place in the names at which those
that are left begin to differ, then for a character there that leaves some of them on either side.

Only one level is ever cut. Stores that walk folders (SeaweedFS) list ``a/x`` before ``a.b``, though ``.`` comes before
``/``: across levels their order is not that of the keys, and a cut could lose some. Within a level it is, for objects;
a folder may come before or after a cut, and whoever sees it hands it on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_LAST_ASCII = 0x7E
_LAST = 0x10FFFF
_SLASH = "/"


@dataclass(frozen=True)
class KeyRange:
    """What one listing covers: keys below ``prefix``, after ``start_after`` and up to ``until`` (with it).

    Both bounds are whole keys, or empty: no bound. ``one_level`` leaves out what lies in folders below ``prefix`` and
    tells the folders instead; only such a range has bounds.
    """

    prefix: str
    start_after: str = ""
    until: str = ""
    one_level: bool = False


def find_cuts(first_name_after: Callable[[str], str | None], position: str, until: str, most: int) -> list[str]:
    """Up to ``most`` texts between ``position`` and ``until``, ascending, that cut the names there; empty if none was
    found.

    There are names on both sides of the last; between two of them there may be none.
    All are names within one level, without its prefix; ``until`` may be empty, for no bound.
    ``first_name_after(text)`` is the first name that sorts after a text, ``until`` or not.
    """

    def first_after(text: str) -> str | None:
        name = first_name_after(text)
        return name if name is not None and (not until or name <= until) else None

    shared = _shared_length(position, until) if until else 0
    # The shortest beginning of the position beyond which there are names: they differ in its last character.
    low, high, beyond = shared + 1, len(position), None
    while low <= high:
        middle = (low + high) // 2
        name = first_after(_successor(position[:middle]))
        if name is None:
            low = middle + 1
        else:
            high, beyond = middle - 1, name
    if beyond is None or len(beyond) < low:
        return []
    shared = low - 1
    stem, first = position[:shared], ord(beyond[shared])
    last = ord(until[shared]) if until.startswith(stem) and len(until) > shared else _LAST_ASCII
    low, high = first + 1, max(last, first) if first <= _LAST_ASCII else _LAST
    while low <= high:
        middle = (low + high) // 2
        cut = _cut_text(stem, middle)
        if first_after(cut) is not None:
            step = max(1, -(-(middle - first) // most))
            between = {_cut_text(stem, code) for code in range(middle, first, -step)}
            return sorted(between)
        high = middle - 1
    # All names beyond begin alike: those on one side, the rest of the position's own kind on the other.
    cut = _cut_text(stem, first)
    return [cut] if position < cut and (not until or cut < until) else []


def _shared_length(one: str, other: str) -> int:
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        length += 1
    return length


def _successor(text: str) -> str:
    """A text after nearly all that begin with ``text``."""
    code = ord(text[-1])
    return _cut_text(text[:-1], code + 1) if code < _LAST else text


def _cut_text(stem: str, code: int) -> str:
    """``stem`` and the character, or the next that may stand in a cut: no half of a pair, no slash."""
    if 0xD800 <= code <= 0xDFFF:
        code = 0xE000
    return stem + chr(code + 1 if chr(code) == _SLASH else code)
