"""Removes what killed backups and restores left: temporary files, and parts of uploads. No listing shows them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.storage.base import ObjectStore

logger = logging.getLogger(__name__)

_OLD = timedelta(days=2)
"""Longer than the copy of any object takes: 5 TB within a day are 60 MB/s."""


def remove_unfinished(
    store: ObjectStore, prefix: str, now: datetime, is_ours: Callable[[str], bool] = lambda key: True
) -> int:
    """Remove the writes below a prefix that are too old to be in progress; return their number.

    ``now`` is the time of the store. ``is_ours`` says of the key of a write whether it is one of lakefs-gc; in a local
    folder, the names of the files show that. A failure is logged and ends no run.
    """
    try:
        old = [write for write in store.unfinished_below(prefix) if write.since < now - _OLD and is_ours(write.key)]
        store.discard(old)
    except LakeFSGCError as error:
        logger.warning("what killed copies left in %s is not removed: %s", store.location.url, error.message)
        return 0
    if old:
        logger.info("removed %s copies that did not end from %s", f"{len(old):,}", store.location.url)
    return len(old)
