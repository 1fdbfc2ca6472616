"""Keeps a backup from expiring while it is made, and finds out whether a pruning has removed copies of it meanwhile.

The days of a backup that is not complete count from the note of its begin. A backup may take longer than that, so the
note is written again and again while copies are made. This turns away every pruning that looks later (``removal.py``),
also one that has deleted copies already. So each copy is looked for after the note was written for the last time, and
from then on the backup must not have expired when its manifest is there: nothing else shows what was deleted since.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from lakefs_gc.engine.records.backups.manifest import Backup, BackupPaths, BackupStart, noted_start
from lakefs_gc.engine.records.backups.removal import notes_of_removals, refuse_removal
from lakefs_gc.errors import BackupError, LakeFSGCError, ObjectNotFoundError
from lakefs_gc.storage.base import ObjectStore

logger = logging.getLogger(__name__)

_MOST_SECONDS = 3600.0
"""Between two times at which the note is written. Backups that are kept for less than a few hours need it sooner."""


class Renewal:
    """The note of a backup that is being made. ``store`` is the backup location."""

    def __init__(self, store: ObjectStore, note: BackupStart) -> None:
        self._store, self._note = store, note
        self._paths = BackupPaths(note.repository, note.mark_id)
        self._keep_days = note.keep_days or 0.0
        # Notes of prunings that were killed long before. ``begin_backup`` found none that holds.
        self._former = notes_of_removals(store, self._paths)

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """Write the note again and again during a block, so that the backup does not expire."""
        ended = threading.Event()
        every_seconds = min(_MOST_SECONDS, self._keep_days * 86400 / 4)
        thread = threading.Thread(target=self._repeat, args=(ended, every_seconds), name="renewal", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _repeat(self, ended: threading.Event, every_seconds: float) -> None:
        while not ended.wait(every_seconds):
            try:
                self._write()
            except LakeFSGCError as error:  # the last time decides
                logger.warning("%s cannot be written again: %s", self._paths.began, error.message)

    def last(self) -> None:
        """Write the note for the last time. Look for each copy after this. Raise ``BackupError`` during a removal."""
        self._write()
        refuse_removal(self._store, self._paths)

    def complete(self, manifest: Backup) -> None:
        """Write the manifest. Raise ``BackupError``, without one, if copies may have been removed since ``last``.

        If that is unknown, because a store does not answer, raise its error and bring the earlier manifest back, if
        there was one: nothing shows that its copies are gone.
        """
        try:
            before = self._store.read(self._paths.manifest)
        except ObjectNotFoundError:
            before = None
        self._refuse_removed()
        self._store.put(self._paths.manifest, manifest.to_json())
        try:
            self._refuse_removed()
        except BackupError:
            self._delete_manifest()
            raise
        except LakeFSGCError:
            if before is None:
                self._delete_manifest()
            else:
                self._bring_back(before)
            raise

    def _delete_manifest(self) -> None:
        failed = [deletion.error for deletion in self._store.delete_many([self._paths.manifest]) if deletion.error]
        if failed:
            logger.error(
                "delete %s: the backup is not complete, and this file says it is. It cannot be deleted: %s",
                f"{self._store.location.folder_url}{self._paths.manifest}",
                failed[0],
            )

    def _bring_back(self, before: bytes) -> None:
        try:
            self._store.put(self._paths.manifest, before)
        except LakeFSGCError as error:  # the first error says what to do
            logger.error("the earlier content of %s cannot be written again: %s", self._paths.manifest, error.message)

    def _write(self) -> None:
        # Another process may back the mark up, too, and keep it for longer. It has one note for both.
        noted = noted_start(self._store, self._paths)
        days = max(self._note.keep_days or 0, (noted.keep_days if noted else None) or 0)
        self._store.put(self._paths.began, replace(self._note, keep_days=days).to_json())

    def _refuse_removed(self) -> None:
        """Raise ``BackupError`` if a pruning may have taken this backup for expired since the note was written."""
        began = self._began_at()
        expired = began is None or began + timedelta(days=self._keep_days) <= self._store.now()
        if expired or notes_of_removals(self._store, self._paths) - self._former:
            raise BackupError(
                f"Copies of the backup of mark {self._paths.mark_id} may have been removed before it was complete: it "
                f"expired after {self._keep_days:g} days, or a pruning takes it for expired",
                remedy=f"Run `{self._paths.command}` again: it copies what was removed again. If this takes longer "
                "than backup.keep_days, raise it",
            )

    def _began_at(self) -> datetime | None:
        found = self._store.stat_many([self._paths.began])
        return found[self._paths.began].last_modified if found else None
