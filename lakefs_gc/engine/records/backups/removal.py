"""The note of a pruning that it removes a backup. While it holds, no backup, sweep or restore relies on the copies.

A pruning and a backup, a sweep or a restore of one mark may each stop between any two requests, for any time: a
machine is suspended, or a store does not answer. Each announces itself before it looks for the other::

    pruning: 1. writes its note   2. looks: is the backup expired?   3. deletes, for 90 s at most, then begins at 1
    backup:  1. writes began.json 2. looks for notes of prunings     3. copies, then does 1 and 2 again (``renewal.py``)
    sweep:   1. writes its claim  2. looks for notes of prunings     3. looks for the manifest and each copy
    restore: 1. writes its note   2. looks for notes of prunings     3. reads the copies

So whatever the order of their requests is, at least one learns of the other. If the pruning looks after the other has
announced itself, the backup is not expired: its days count from ``began.json``, or from the note of the restore, and a
claim keeps it. Otherwise the note was there when the other looked, and the other refuses.

A note holds for ``DEAD_AFTER_SECONDS`` after it was written, by the store's clock. Then all deletes that its pruning
began have ended, and it begins no others without a new note (``DeleteWindow``). So a pruning that was killed hinders
nobody for longer, and nobody has to delete its note: the next pruning does. Each note has a name of its own, also the
next one of the same pruning: another pruning may be about to delete the former note, which holds no longer. A file
names the newest one, because a list may be of an earlier time (``newest.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from uuid import uuid4

from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.newest import NEWEST, newest_in, put_newest
from lakefs_gc.errors import BackupError
from lakefs_gc.storage.base import ObjectStore, written_at
from lakefs_gc.storage.delete_window import DEAD_AFTER_SECONDS, DeleteWindow


@dataclass(frozen=True)
class Removal:
    """One pruning of one backup: the ``notes`` that it wrote, and for each of them the time for its deletes."""

    store: ObjectStore
    paths: BackupPaths
    notes: list[str] = field(default_factory=list)
    windows: list[DeleteWindow] = field(default_factory=list)

    def announce(self) -> DeleteWindow:
        """Write a note, and return the time for deletes. Look whether the backup is expired after this."""
        # Opened before the note is written: the others count from the time at which the store received the note.
        self.windows.append(DeleteWindow())
        name = f"{uuid4().hex}.json"
        self.notes.append(self.paths.removals + name)
        put_newest(self.store, self.paths.removals, name, b"{}")
        return self.windows[-1]

    def own_files(self) -> list[str]:
        """Return the files to delete at the end: the notes, and the file that names the newest one if that is ours."""
        newest = newest_in(self.store, self.paths.removals)
        return [*self.notes, *([self.paths.removals + NEWEST] if newest & {*self.notes} else [])]

    @property
    def may_delete_late(self) -> bool:
        """Return whether a request had no answer: the store may carry it out while the note holds."""
        return any(window.unanswered for window in self.windows)

    def others(self) -> tuple[list[str], list[str]]:
        """Return the notes of other prunings of this backup: those that hold no longer, and those that hold."""
        dead, held = _notes(self.store, self.paths)
        return [key for key in dead if key not in self.notes], [key for key in held if key not in self.notes]


def refuse_removal(store: ObjectStore, paths: BackupPaths, then: str = "") -> None:
    """Raise ``BackupError`` if a pruning may delete copies of a backup now. ``then``: what to do after the wait."""
    if _notes(store, paths)[1]:
        raise BackupError(
            f"The backup of mark {paths.mark_id} is being removed, because it was expired, or a pruning that removed "
            f"it was killed less than {DEAD_AFTER_SECONDS} seconds ago",
            remedy=f"Wait {DEAD_AFTER_SECONDS} seconds, then "
            + (then or f"run `{paths.command}`: it copies what was removed again"),
        )


def notes_of_removals(store: ObjectStore, paths: BackupPaths) -> frozenset[str]:
    """Return the notes of all prunings of a backup, also those that hold no longer."""
    return frozenset(chain(*_notes(store, paths)))


def _notes(store: ObjectStore, paths: BackupPaths) -> tuple[list[str], list[str]]:
    """Return the notes that hold no longer, and those that hold: also the newest one if the list is of before it."""
    newest = store.stat_many(sorted(newest_in(store, paths.removals)))
    times = written_at(store.list_level(paths.removals)[1]) | {key: at.last_modified for key, at in newest.items()}
    times.pop(paths.removals + NEWEST, None)
    if not times:
        return [], []
    oldest = store.now() - timedelta(seconds=DEAD_AFTER_SECONDS)
    dead = sorted(key for key, at in times.items() if at < oldest)
    return dead, sorted(times.keys() - set(dead))
