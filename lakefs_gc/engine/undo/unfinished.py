"""Removes what killed backups and restores left: temporary files, and parts of uploads. No listing shows them."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.storage.base import ObjectStore

logger = logging.getLogger(__name__)

_OLD = timedelta(days=2)
"""Longer than the copy of any object takes: 5 TB within a day are 60 MB/s."""


def remove_unfinished(store: ObjectStore, prefix: str, now: datetime) -> int:
    """Remove the writes below a prefix that are too old to be in progress; return their number.

    ``now`` is the time of the store. Call this for a prefix below which only lakefs-gc writes, or for a local folder,
    where the names of the files show whose they are. A failure is logged and ends no run.
    """
    try:
        old = [write for write in store.unfinished_below(prefix) if write.since < now - _OLD]
        store.discard(old)
    except LakeFSGCError as error:
        logger.warning("what killed copies left in %s is not removed: %s", store.location.url, error.message)
        return 0
    if old:
        logger.info("removed %s copies that did not end from %s", f"{len(old):,}", store.location.url)
    return len(old)
