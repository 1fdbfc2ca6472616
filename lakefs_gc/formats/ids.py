"""The ids of objects, slices and runs: xids, with forward or reversed time.

An xid has 12 bytes (4 of time in seconds, 3 of the machine, 2 of the process, 3 of a counter). It is written as 20
characters of lower-case base32hex, so that ids sort by time. Object ids are plain xids. The ids of slices
(``data/<slice>/``) and of garbage collection runs count the seconds *down* from the year 4000, so that a listing has
the newest first.

Source: https://github.com/rs/xid, lakeFS ``pkg/upload/path_provider.go``.
"""

from __future__ import annotations

import base64
import itertools
import os
import secrets
from datetime import datetime, timedelta

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.units import EPOCH

UNIX_YEAR_4000_S = 64_060_588_800
XID_CHARACTERS = 20
SHARD_MARK = "!"
"""The first character of a shard, a folder below ``data/`` of a sharded namespace: ``data/!ab/c/<slice>/<object id>``.

Source: the tests of lakeFS's Spark client 0.22, the first that lists such namespaces. The servers that write them are
not public.
"""

_XID_BYTES = 12
_PADDING = "===="  # base32 comes in groups of 8 characters
_MOST_CLOCK_SKEW = timedelta(days=1)
_SECONDS_RANGE = 1 << 32

_MACHINE = secrets.token_bytes(3)
_COUNTER = itertools.count(secrets.randbelow(1 << 24))


def new_xid(now: datetime) -> str:
    """Return a new object id. Ids of one process never repeat within a second, nor after a fork."""
    return _new_id(_whole_seconds(now))


def new_reversed_id(now: datetime) -> str:
    """Return a new id of a slice or of a run: the later ``now``, the earlier it sorts."""
    return _new_id(UNIX_YEAR_4000_S - _whole_seconds(now))


def xid_time(xid: str) -> datetime:
    """Return the time of a plain xid, to the second (UTC). Raise ``ConfigurationError`` for anything else."""
    return EPOCH + timedelta(seconds=_stored_seconds(xid))


def reversed_id_time(reversed_id: str) -> datetime:
    """Return the time of a slice or run id, to the second (UTC). Raise ``ConfigurationError`` for anything else.

    The id has 32 bits of the seconds, so the time is between 1970 and 2106.
    """
    return EPOCH + timedelta(seconds=(UNIX_YEAR_4000_S - _stored_seconds(reversed_id)) % _SECONDS_RANGE)


def is_slice_id(name: str) -> bool:
    """Return whether a folder below ``data/`` has the form of a slice's name.

    Only the form is checked: object ids have it too, and any 32 bits are a valid time.
    """
    return _decode(name) is not None


def is_run_id(name: str, now: datetime) -> bool:
    """Return whether a name is an id of a garbage collection run from before ``now``, and so of the mark that it makes.

    Ids of objects have the same form, but count their time forward: read as an id of a run, those from before 2032 are
    of a time in the future.
    """
    return _decode(name) is not None and reversed_id_time(name) <= now + _MOST_CLOCK_SKEW


def is_shard(name: str) -> bool:
    """Return whether a folder below ``data/`` has the form of a shard's name, and not of a slice's."""
    return name.startswith(SHARD_MARK)


def _new_id(seconds: int) -> str:
    raw = (
        (seconds % _SECONDS_RANGE).to_bytes(4, "big")
        + _MACHINE
        + (os.getpid() & 0xFFFF).to_bytes(2, "big")
        + (next(_COUNTER) & 0xFFFFFF).to_bytes(3, "big")
    )
    return _encode(raw)


def _whole_seconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(seconds=1)


def _stored_seconds(xid: str) -> int:
    raw = _decode(xid)
    if raw is None:
        raise ConfigurationError(
            f"{xid!r} is not an xid",
            remedy=f"Pass an id as lakeFS shows it: {XID_CHARACTERS} characters of 0-9, a-v",
        )
    return int.from_bytes(raw[:4], "big")


def _encode(raw: bytes) -> str:
    return base64.b32hexencode(raw).decode().rstrip("=").lower()


def _decode(xid: str) -> bytes | None:
    if len(xid) != XID_CHARACTERS or not xid.isascii() or xid != xid.lower():
        return None
    try:
        raw = base64.b32hexdecode(xid.upper() + _PADDING)
    except ValueError:
        return None
    # The last character has one bit: lakeFS does not write spellings with other bits set.
    return raw if len(raw) == _XID_BYTES and _encode(raw) == xid else None
