"""Read the objects of a page of S3's ListObjectsV2 from XML into columns.

Source: the AWS S3 API reference, ListObjectsV2. The compiled code reads only the form that stores usually write: the
key is the first element of an object, and time and size follow once each, in any order (S3 has the time first, and
SeaweedFS the size). ``scan_objects`` reports any other form, and an XML parser must read that page.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lakefs_gc.formats.jit import compiled, inlined

_OBJECT_KEY = b"<Contents><Key>"
_END_OF_KEY = b"</Key>"
_TIME = b"<LastModified>"
_END_OF_TIME = b"</LastModified>"
_SIZE = b"<Size>"
_END_OF_SIZE = b"</Size>"
_END_OF_OBJECT = b"</Contents>"
_USED_NAMES = (b"Key", b"LastModified", b"Size", b"Contents")
_LONGEST_SIZE = 18
"""Digits that fit into 64 bits."""
_LT, _GT, _AMP, _SLASH, _PERCENT, _PLUS, _SPACE = b"<>&/%+ "
_ZERO, _NINE = b"09"
SHORTEST_OBJECT = len(
    b"<Contents><Key></Key><LastModified>2025-06-01T12:00:00Z</LastModified><Size>0</Size></Contents>"
)
"""The minimum number of bytes of an object."""
_UNUSUAL = -1
_PLAIN = np.array([byte >= 32 and byte not in b"<>&%+" for byte in range(256)])
"""Bytes that mean themselves in every encoding and element."""


@compiled
def scan_objects(
    text: np.ndarray, root: np.ndarray, url_encoded: bool, keys: np.ndarray, offsets: np.ndarray, facts: np.ndarray
) -> int:
    """Read a run of ``<Contents>`` elements; return the number of objects, or -1 if the form is not the usual one.

    ``text`` is the run and ``root`` the beginning of every key, both as bytes. Directory markers (``root`` itself, and
    keys that end in ``/``) are omitted. Results: object i has the key ``keys[offsets[i]:offsets[i + 1]]``, decoded,
    without ``root``; ``facts[0, i]`` is its size in bytes, ``facts[1, i]`` its time in microseconds since 1970, UTC.
    ``keys`` must be as long as ``text``; the other arrays need one place per ``SHORTEST_OBJECT`` bytes of ``text``.
    """
    position = used = count = 0
    offsets[0] = 0
    while position < len(text):
        position = _after(text, position, _OBJECT_KEY)
        if position < 0:
            return _UNUSUAL
        position, key_end = _key(text, position, root, url_encoded, keys, used)
        position = _after(text, position, _END_OF_KEY)
        size: Any = np.int64(_UNUSUAL)
        time_us: Any = np.int64(0)
        has_time = False
        while position >= 0 and _after(text, position, _END_OF_OBJECT) < 0:
            if not has_time and _after(text, position, _TIME) >= 0:
                position, time_us = _time(text, _after(text, position, _TIME))
                position = _after(text, position, _END_OF_TIME)
                has_time = True
            elif size < 0 and _after(text, position, _SIZE) >= 0:
                position, size = _digits(text, _after(text, position, _SIZE), 1, _LONGEST_SIZE)
                position = _after(text, position, _END_OF_SIZE)
            else:  # not a second time or size, which is unusual
                position = _element(text, position)
        position = _after(text, position, _END_OF_OBJECT)
        if position < 0 or size < 0 or not has_time:
            return _UNUSUAL
        if key_end > used and keys[key_end - 1] != _SLASH:
            used = key_end
            facts[0, count], facts[1, count] = size, time_us
            count += 1
            offsets[count] = used
    return count


@inlined
def _after(text: np.ndarray, position: int, expected: bytes) -> int:
    """Return the position after ``expected`` if it follows here, else -1."""
    if position < 0 or position + len(expected) > len(text):
        return _UNUSUAL
    for i in range(len(expected)):
        if text[position + i] != expected[i]:
            return _UNUSUAL
    return position + len(expected)


@inlined
def _key(
    text: np.ndarray, position: int, root: np.ndarray, url_encoded: bool, keys: np.ndarray, used: int
) -> tuple[int, int]:
    """Decode a key to ``keys[used:]``; return the positions after the key and after its copy."""
    plain = _PLAIN
    passed = 0  # of root
    while True:
        if passed == len(root):
            while position < len(text) and plain[text[position]]:
                keys[used] = text[position]
                used += 1
                position += 1
        if position >= len(text) or text[position] == _LT:
            break
        byte: Any = np.int64(text[position])
        if byte < _SPACE or byte in (_AMP, _GT):
            return _UNUSUAL, used
        if url_encoded and byte == _PLUS:
            byte = np.int64(_SPACE)
        elif url_encoded and byte == _PERCENT:
            if position + 2 >= len(text):
                return _UNUSUAL, used
            byte = 16 * _hex_digit(text[position + 1]) + _hex_digit(text[position + 2])
            if byte < 0:
                return _UNUSUAL, used
            position += 2
        if passed < len(root):
            if byte != root[passed]:
                return _UNUSUAL, used
            passed += 1
        else:
            keys[used] = byte
            used += 1
        position += 1
    return (position if passed == len(root) else _UNUSUAL), used


@inlined
def _hex_digit(byte: Any) -> Any:
    """Return the value of a hex digit, or a very negative number for any other byte."""
    if 48 <= byte <= 57:
        return byte - np.int64(48)
    if 65 <= byte <= 70:
        return byte - np.int64(55)
    if 97 <= byte <= 102:
        return byte - np.int64(87)
    return np.int64(-1000)


@inlined
def _digits(text: np.ndarray, position: int, fewest: int, most: int) -> tuple[int, Any]:
    """Return the position after a number of ``fewest`` to ``most`` digits, and the number."""
    number: Any = np.int64(0)
    count = 0
    if position < 0:
        return _UNUSUAL, number
    while position < len(text) and _ZERO <= text[position] <= _NINE and count < most:
        number = 10 * number + (np.int64(text[position]) - _ZERO)
        position += 1
        count += 1
    return (position if count >= fewest else _UNUSUAL), number


@compiled
def _time(text: np.ndarray, position: int) -> tuple[int, Any]:
    """Read ``2025-06-01T12:00:00.123Z``; return the position after it, and the microseconds since 1970.

    Source of the count of days: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", ``days_from_civil``.
    """
    position, year = _digits(text, position, 4, 4)
    position, month = _digits(text, _after(text, position, b"-"), 2, 2)
    position, day = _digits(text, _after(text, position, b"-"), 2, 2)
    position, hour = _digits(text, _after(text, position, b"T"), 2, 2)
    position, minute = _digits(text, _after(text, position, b":"), 2, 2)
    position, second = _digits(text, _after(text, position, b":"), 2, 2)
    fraction_us: Any = np.int64(0)
    fraction = _after(text, position, b".")
    if fraction >= 0:
        position, fraction_us = _digits(text, fraction, 1, 6)
        for _ in range(6 - (position - fraction)):
            fraction_us *= 10
    position = _after(text, position, b"Z")
    long_month = 30 + ((month + month // 8) & 1)
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    days_of_month = long_month if month != 2 else 28 + leap
    if not (1 <= month <= 12 and 1 <= day <= days_of_month and hour < 24 and minute < 60 and second < 60):
        return _UNUSUAL, fraction_us
    shifted_year = year - (month <= 2)
    era = shifted_year // 400
    year_of_era = shifted_year - era * 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468
    return position, (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + fraction_us


@compiled
def _element(text: np.ndarray, position: int) -> int:
    """Return the position after an element that contains text, or elements that contain text."""
    name_end = _name_end(text, position + 1)
    if name_end < 0 or text[position] != _LT:
        return _UNUSUAL
    inside = name_end + 1
    while inside + 1 < len(text) and text[inside] == _LT and text[inside + 1] != _SLASH:
        inside = _text_element(text, inside)
        if inside < 0:
            return _UNUSUAL
    return _end_tag(text, _text_end(text, inside), position + 1, name_end)


@inlined
def _text_element(text: np.ndarray, position: int) -> int:
    name_end = _name_end(text, position + 1)
    if name_end < 0:
        return _UNUSUAL
    return _end_tag(text, _text_end(text, name_end + 1), position + 1, name_end)


@compiled
def _name_end(text: np.ndarray, position: int) -> int:
    """Return the end of the plain name of a start tag, or -1 for the names that an object may have only once."""
    start = position
    while position < len(text) and (65 <= text[position] <= 90 or 97 <= text[position] <= 122):
        position += 1
    if position == start or position >= len(text) or text[position] != _GT:
        return _UNUSUAL
    for name in _USED_NAMES:
        if _after(text, start, name) == position:
            return _UNUSUAL
    return position


@inlined
def _text_end(text: np.ndarray, position: int) -> int:
    plain = _PLAIN
    while position < len(text) and (plain[text[position]] or text[position] in (_AMP, _PERCENT, _PLUS)):
        position += 1
    return position


@inlined
def _end_tag(text: np.ndarray, position: int, name: int, name_end: int) -> int:
    """Return the position after the end tag of the name at ``text[name:name_end]``."""
    position = _after(text, position, b"</")
    if position < 0 or position + name_end - name >= len(text):
        return _UNUSUAL
    for i in range(name_end - name):
        if text[position + i] != text[name + i]:
            return _UNUSUAL
    return _after(text, position + name_end - name, b">")
