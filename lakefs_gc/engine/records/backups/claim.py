"""The note of a sweep that it has begun, from before it waits and looks. Pruning keeps the backup of its mark then.

An intent in the ledger says the same, but a sweep writes the first one after its look, which may take hours. The claim
of a sweep that did not end stays, like its intents: a sweep that continues needs the backup, too. Every sweep writes
one, beside the mark: the backup may be in a location that the settings of this machine do not name.
"""

from __future__ import annotations

from lakefs_gc.engine.records.ledger import sequence_of
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.newest import put_newest
from lakefs_gc.engine.scope import Scope
from lakefs_gc.storage.base import ObjectStore


def claim_backup(store: ObjectStore, mark_id: str, only: Scope) -> None:
    """Note that a sweep of a mark, or of its part, has begun. ``store`` is the namespace.

    A sweep that requires the backup has to verify it after this, and pruning looks for claims after it has written its
    note. So whatever the order of their requests is, at least one of them learns of the other (``removal.py``).
    """
    put_newest(store, MarkPaths.of(mark_id).claims, f"{sequence_of(store.now(), 0, only)}-claim.json", b"{}")
