"""Whether objects of an expired backup were deleted, although lakefs-gc did not sweep its whole mark.

lakeFS's own client can sweep any mark, and leaves no record of it. Then the copies may be the only ones, and counted
from the backup, their days would be over shortly after the sweep. So before a backup of a mark is removed that was not
swept completely, its objects are looked up. If one is gone, the days count from when this was noticed. A note beside
the copies says that, and which objects existed: if one of these is gone when the days are over, they count again.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.errors import BackupError, ObjectNotFoundError
from lakefs_gc.formats.durable_record import DurableRecord, Time, record
from lakefs_gc.storage.base import ObjectStore

logger = logging.getLogger(__name__)

_LOOKED_UP = 1000
"""Of so many objects, chosen at random, one is gone almost certainly if another tool has deleted a hundredth of all."""


@record
class GoneNote(DurableRecord):
    """The note that objects of a backup were gone at a time, without a sweep by lakefs-gc."""

    kind = "the note of a pruning about objects that are gone"
    remedy = "Delete the file: the next pruning looks again"

    noticed_at: Time
    existing: tuple[str, ...]


def refuse_swept_elsewhere(
    store: ObjectStore,
    paths: BackupPaths,
    open_namespace: Callable[[], ObjectStore],
    *,
    since: datetime,
    keep: timedelta,
    now: datetime,
    remedy: str,
) -> None:
    """Raise ``BackupError`` if objects of a backup are gone, and that was noticed less than ``keep`` ago.

    ``since`` is from when the backup would be kept otherwise: an earlier note is about an earlier sweep.
    """
    note = _note_of(store, paths)
    if note and note.noticed_at < since:
        note = None
    if note is None or note.noticed_at + keep <= now:
        addresses = _sample(store, paths) if note is None else list(note.existing)
        existing = sorted(open_namespace().stat_many(addresses))
        gone = len(addresses) - len(existing)
        if not gone:
            return
        logger.warning(
            "%s of %s objects of mark %s of repository %s that were looked up do not exist any more",
            f"{gone:,}",
            f"{len(addresses):,}",
            paths.mark_id,
            paths.repository,
        )
        note = GoneNote(now, tuple(existing))
        store.put(paths.gone, note.to_json())
    raise BackupError(
        "Objects of this mark do not exist any more, and no complete sweep by lakefs-gc explains that: another tool, "
        "the sweep of a part or of another mark, or one that kept some of them, may have deleted them. So the days for "
        "which the backup is kept "
        f"count from {note.noticed_at:%Y-%m-%d}, when a pruning noticed that",
        remedy=remedy,
    )


def _note_of(store: ObjectStore, paths: BackupPaths) -> GoneNote | None:
    try:
        return GoneNote.from_json(store.read(paths.gone), paths.gone)
    except ObjectNotFoundError:
        return None


def _sample(store: ObjectStore, paths: BackupPaths) -> list[str]:
    """Return the addresses of some copies, chosen at random. Names with a dot at their begin are other programs'."""
    random = np.random.default_rng()
    chosen: list[tuple[float, str]] = []
    for batch in store.list(paths.objects):
        keys = pc.utf8_slice_codeunits(batch.column("address"), len(paths.objects))
        keys = keys.filter(pc.invert(pc.match_substring_regex(keys, r"(^|/)\.[^/]*$")))
        drawn = random.random(len(keys))
        lowest = np.argsort(drawn)[:_LOOKED_UP]
        chosen += zip(drawn[lowest].tolist(), keys.take(pa.array(lowest)).to_pylist(), strict=True)
        chosen = heapq.nsmallest(_LOOKED_UP, chosen)
    return [address for _, address in chosen]
