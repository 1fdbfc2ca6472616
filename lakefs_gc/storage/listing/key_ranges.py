"""Key ranges of a listing, and where to cut one.

S3 lists 1,000 keys per request, one page after the other, so a large folder keeps one lister busy unless it is cut at
some key. Any text is a valid cut: no key is omitted or repeated, wherever the cut is. A *useful* cut is found with a
few requests for the first name after some text: first for the position at which the remaining names begin to differ,
then for a character there that has names on both sides.

Only one level is ever cut. Stores that walk folders (SeaweedFS) list ``a/x`` before ``a.b``, although ``.`` comes
before ``/``: across levels their order is not that of the keys, and a cut could omit some. Within a level, objects are
in the order of the keys. A folder may appear before or after a cut; each range that sees it passes it on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_LAST_ASCII = 0x7E
_LAST = 0x10FFFF
_SLASH = "/"


@dataclass(frozen=True)
class KeyRange:
    """The keys that one listing covers: below ``prefix``, after ``start_after``, up to and including ``until``.

    Both bounds are whole keys, or empty for no bound. ``one_level`` omits the objects in folders below ``prefix`` and
    returns the folders instead; only such a range has bounds.
    """

    prefix: str
    start_after: str = ""
    until: str = ""
    one_level: bool = False


def find_cuts(first_name_after: Callable[[str], str | None], position: str, until: str, most: int) -> list[str]:
    """Return up to ``most`` texts between ``position`` and ``until``, in ascending order, at which to cut the names.

    The result is empty if no cut is found. The last cut has names on both sides; between two cuts there may be none.
    All texts are names within one level, without its prefix; ``until`` may be empty, for no bound.
    ``first_name_after(text)`` returns the first name that sorts after a text, even beyond ``until``.
    """

    def first_after(text: str) -> str | None:
        name = first_name_after(text)
        return name if name is not None and (not until or name <= until) else None

    shared = _shared_length(position, until) if until else 0
    # Find the shortest beginning of the position that has names after it: they differ in its last character.
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
    # All later names begin alike: cut between them and the names that begin like the position.
    cut = _cut_text(stem, first)
    return [cut] if position < cut and (not until or cut < until) else []


def _shared_length(one: str, other: str) -> int:
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length


def _successor(text: str) -> str:
    """Return a text that sorts after nearly all texts that begin with ``text``."""
    code = ord(text[-1])
    return _cut_text(text[:-1], code + 1) if code < _LAST else text


def _cut_text(stem: str, code: int) -> str:
    """Return ``stem`` and the character, or the next one that a cut may contain: no surrogate, no slash."""
    if 0xD800 <= code <= 0xDFFF:
        code = 0xE000
    return stem + chr(code + 1 if chr(code) == _SLASH else code)
