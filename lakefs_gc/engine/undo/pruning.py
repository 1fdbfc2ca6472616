"""Removes backups after ``backup.keep_days``, counted from the end of the mark's sweep, or from its last restore.

The days are those of the settings, or those that the backup recorded when it was made, if these are more.

So deleted objects can be restored for that long. A backup stays while its mark, or a part of it, is approved and not
swept, or while a sweep or a restore of the mark has begun and not ended. The approvals, the ledger, the claims, the
summaries of the sweeps and the log of the restores lie beside the mark, in the namespace that the backup records: two
servers may share a backup location and have different repositories of one name. If that namespace cannot be read, the
backup stays (rule 12). So does a folder whose records name another repository or mark: somebody moved or copied it,
perhaps to keep it. A backup of another server stays, too: a copy of an installation has the same namespaces, but does
not learn what becomes of the marks. If another tool may have swept the mark, the days count from when that was noticed
(``swept_elsewhere.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import chain, islice

from lakefs_gc.config.backup import MOST_DAYS
from lakefs_gc.engine.records.approval import Approval
from lakefs_gc.engine.records.backups.location import ListedBackup, list_backups, repositories_in
from lakefs_gc.engine.records.backups.manifest import BackupPaths, BackupStart
from lakefs_gc.engine.records.backups.removal import Removal
from lakefs_gc.engine.records.ledger import scope_of
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.newest import NEWEST, newest_in
from lakefs_gc.engine.records.restore_log import unended_restores
from lakefs_gc.engine.records.sweep_summary import SweepSummary, not_followed, read_sweep_summary
from lakefs_gc.engine.scope import Scope, is_swept
from lakefs_gc.engine.undo.swept_elsewhere import refuse_swept_elsewhere
from lakefs_gc.engine.undo.unfinished import remove_unfinished
from lakefs_gc.errors import BackupError, CorruptFileError, LakeFSGCError, ObjectNotFoundError
from lakefs_gc.formats.report import Summary
from lakefs_gc.storage.base import ObjectStore, written_at
from lakefs_gc.storage.delete_window import DELETE_DEADLINE_SECONDS, NOT_TRIED, DeleteWindow

logger = logging.getLogger(__name__)

_DELETES_AT_ONCE = 1000
_DELETE_IT = "If you no longer need this backup, delete its folder in the backup location"


@dataclass(frozen=True)
class Pruned:
    """``removed`` backups, and those that were ``kept``, each with the reason: expired ones, and unreadable ones."""

    removed: list[ListedBackup]
    kept: list[tuple[ListedBackup, str]]


def kept_facts(listed: ListedBackup, why: str) -> dict[str, str]:
    """Return what the command line and the UI show of an expired backup that stays."""
    return {"repository": listed.repository, "mark_id": listed.mark_id, "why": why}


def prune_backups(
    store: ObjectStore,
    repository: str,
    keep_days: float,
    now: datetime,
    open_namespace: Callable[[str], ObjectStore],
    endpoint_url: str = "",
) -> Pruned:
    """Remove the backups of a repository that are older than ``keep_days``, and what killed backups of it left.

    An empty ``repository`` stands for all that have, or had, a backup in the location. ``store`` is the backup
    location, and ``keep_days`` is of the settings; ``open_namespace`` opens the store of a namespace, given its URL.
    ``endpoint_url`` is that of the lakeFS server: backups that record another one stay. A backup that cannot be read or
    removed counts as kept.
    """
    open_once = cache(open_namespace)
    pruned = Pruned([], [])
    recorded, misplaced, unreadable = set[BackupPaths](), set[BackupPaths](), set[tuple[str, str]]()
    others = [] if repository else repositories_in(store)[1]
    if others:
        logger.info("left in %s, because no repository has these names: %s", store.location.url, ", ".join(others))
    for listed in list_backups(store, repository):
        if listed.is_unreadable:
            unreadable.add((listed.repository, listed.mark_id))
            which = f"the backup of mark {listed.mark_id}" if listed.mark_id else "every backup"
            logger.warning("%s of repository %s is kept: %s", which, listed.repository, listed.problem)
            pruned.kept.append((listed, listed.problem))
            continue
        if listed.namespace:
            (misplaced if listed.misplaced else recorded).add(listed.paths)
        made_at = listed.created_at
        if made_at is None or made_at + timedelta(days=keep_days) > now:
            continue

        def look(listed: ListedBackup = listed, made_at: datetime = made_at) -> _Look | None:
            """Return what a look at the mark found; None while the backup is needed, or not expired."""
            _refuse_unclear(listed, endpoint_url)
            # A backup that was begun again needs the copies, whether it has a manifest or not.
            begun = store.stat_many([listed.paths.began]).values()
            found = _kept_since(listed, max([made_at, *(note.last_modified for note in begun)]), open_once)
            if not found:
                return None
            found = replace(found, keep=_keep_of(store, listed, keep_days))
            if found.kept_since + found.keep > now:
                return None
            _refuse_unended_restore(open_once(listed.namespace), found.restores)
            return found

        try:
            found = look()
            if not found:
                continue
            if not found.is_swept:
                refuse_swept_elsewhere(
                    store,
                    listed.paths,
                    partial(open_once, listed.namespace),
                    since=found.kept_since,
                    keep=found.keep,
                    now=now,
                    remedy=_DELETE_IT,
                )
            if not _remove(store, listed.paths, look):
                continue
        except LakeFSGCError as error:
            # Another one must not stay because of this one, and no backup fails that prunes at its end.
            logger.warning(
                "the expired backup of mark %s of repository %s is kept: %s",
                listed.mark_id,
                listed.repository,
                error.message,
            )
            pruned.kept.append((listed, error.message))
            continue
        logger.info("removed the backup of mark %s of repository %s", listed.mark_id, listed.repository)
        pruned.removed.append(listed)

    def is_ours(key: str) -> bool:
        # The folder may be gone, by an earlier pruning or by hand. Then only the id of its mark shows that it was ours.
        paths = BackupPaths.of_unfinished(key)
        if paths is None or unreadable & {(paths.repository, paths.mark_id), (paths.repository, "")}:
            return False
        return paths not in misplaced and (paths.has_run_id(now) or paths in recorded)

    remove_unfinished(store, f"{repository}/" if repository else "", now, is_ours)
    return pruned


def _refuse_unclear(listed: ListedBackup, endpoint_url: str) -> None:
    """Raise ``BackupError`` for a backup whose sweep this server cannot know about."""
    if not listed.namespace:
        raise BackupError(
            "The backup does not record its namespace, so whether it was swept is unknown", remedy=_DELETE_IT
        )
    if listed.misplaced:
        raise BackupError(f"Somebody moved or copied this folder: {listed.misplaced}", remedy=_DELETE_IT)
    if listed.server and listed.server != endpoint_url:
        # A copy of an installation has the same namespaces and marks, but not what happened to the marks since.
        raise BackupError(
            f"The backup was made with the lakeFS server {listed.server}, but this is {endpoint_url or 'unknown'}",
            remedy=f"Prune with LAKECTL_SERVER_ENDPOINT_URL={listed.server}. {_DELETE_IT}",
        )


def _refuse_unended_restore(namespace: ObjectStore, files: Mapping[str, datetime]) -> None:
    """Raise ``BackupError`` if a restore of a mark may be in progress: it may read for longer than ``keep_days``."""
    for restore in unended_restores(namespace, files):
        which = f" with the prefix {restore.prefix}" if restore.prefix else ""
        raise BackupError(
            f"A restore{which} that began on {restore.began_at:%Y-%m-%d} has not ended: it may be reading the copies, "
            "or was killed. The backup stays until another such restore has ended, or one without a prefix",
            remedy=f"If it was killed, restore the mark again. {_DELETE_IT}",
        )


@dataclass(frozen=True)
class _Look:
    """From when the days of a backup count, whether lakefs-gc swept its mark, and the files of restores.

    ``keep`` is for how long the backup stays. ``is_swept`` only if every object was deleted, or already gone: what the
    last sweep kept may be gone since.
    """

    kept_since: datetime
    is_swept: bool
    restores: dict[str, datetime]
    keep: timedelta = timedelta(0)


def _keep_of(store: ObjectStore, listed: ListedBackup, keep_days: float) -> timedelta:
    """Return for how long a backup stays: for the most of these days, and those that its records have.

    The machine that prunes may have other settings than the one that made the backup, or is making it now. Raises what
    reading the note of the begin raises, also for a damaged one.
    """
    try:
        noted = BackupStart.from_json(store.read(listed.paths.began), listed.paths.began).keep_days
    except ObjectNotFoundError:
        noted = None
    return timedelta(days=min(max(keep_days, listed.keep_days, noted or 0), MOST_DAYS))


def _kept_since(listed: ListedBackup, made_at: datetime, open_namespace: Callable[[str], ObjectStore]) -> _Look | None:
    """Return from when ``keep_days`` of a backup count; None while the backup is needed.

    Raises ``BackupError`` if its mark is not in the recorded namespace, or if the listing of the mark is not whole, and
    what opening and listing that namespace raise.
    """
    namespace, paths = open_namespace(listed.namespace), MarkPaths.of(listed.mark_id)
    approvals = {paths.approval_of(only): only for only in Scope}
    summaries = {paths.sweep_summary_of(only): only for only in Scope}
    steps = [paths.summary, *approvals, *summaries]
    # Before the list: it must have the claim of the last sweep, and the note of the last restore.
    newest = newest_in(namespace, paths.claims) | newest_in(namespace, paths.restores)
    shown = namespace.stat_many(steps)
    if paths.summary not in shown:
        raise BackupError(
            f"The mark is not in {listed.namespace}, so whether it was swept is unknown", remedy=_DELETE_IT
        )
    # All times come from the listing, because HEAD reports whole seconds: the order of the writes decides.
    found = _list_mark(namespace, paths, {*steps, *newest})
    folder = paths.report.folder
    if lacking := sorted({*shown, *newest} - found.files.keys()):
        raise BackupError(
            f"The listing of {namespace.location.folder_url}{folder} lacks {lacking[0].removeprefix(folder)}, which "
            "exists: whether the mark was swept is unknown",
            remedy="Find out what answers for the store, such as a proxy or a cache, then prune again",
        )
    swept_at = {summaries[key]: at for key, at in found.files.items() if key in summaries}
    approved = {approvals[key]: at for key, at in found.files.items() if key in approvals}
    sweeps = {only: read_sweep_summary(namespace, paths.sweep_summary_of(only)) for only in swept_at}
    last = {only: sweeps[only] for only in not_followed(swept_at)}
    # A sweep writes its summary also if deletes failed. It has to be repeated, and then it needs the copies.
    complete = [only for only, summary in sweeps.items() if not summary.is_incomplete]
    ours = _of_this_mark(namespace, listed, found, sweeps)
    for only in approved:
        # No sweep follows an approval of another digest: it is of an earlier mark with this id.
        is_other = _approved_digest(namespace, paths.approval_of(only)) not in ("", listed.mark_digest)
        if not is_swept(only, complete if is_other else ours):
            return None
    if any(only not in complete for only in last):
        return None
    for only, record in found.records.items():
        # The end of another part's sweep says nothing about this one. A store may give two files the same time: up to
        # a second apart, or as far as a file system's clock ticks. Then the times at which sweeps began decide, because
        # all of them are on the store's clock.
        ended = [
            other
            for other in complete
            if swept_at[other] > record.written_at
            or (swept_at[other] == record.written_at and sweeps[other].sequence >= record.began_at)
        ]
        if not is_swept(only, ended):
            return None  # a later sweep has not ended
    # After a restore, too, the days count anew: people look at what came back.
    kept_since = max([made_at, *found.restores.values(), *swept_at.values(), *approved.values()])
    # Another tool may have deleted since what the last sweep kept.
    left_nothing = [only for only, summary in last.items() if summary.left_nothing and only in ours]
    return _Look(kept_since, is_swept(Scope.all, left_nothing), found.restores)


def _of_this_mark(
    namespace: ObjectStore, listed: ListedBackup, found: _Listed, sweeps: Mapping[Scope, SweepSummary]
) -> list[Scope]:
    """Return the complete sweeps of the mark that was backed up. Marks of lakeFS's client may have one id."""
    if not sweeps:
        return []
    paths = MarkPaths.of(listed.mark_id)
    try:
        marked_at = Summary.from_json(namespace.read(paths.summary), paths.summary).start_time
    except CorruptFileError:
        marked_at = found.files[paths.summary]
    return [
        only
        for only, summary in sweeps.items()
        if not summary.is_incomplete
        and summary.is_of(listed.mark_digest, marked_at, found.files[paths.sweep_summary_of(only)])
    ]


def _approved_digest(namespace: ObjectStore, approval: str) -> str:
    """Return which digest was approved; empty if the file does not say."""
    try:
        return Approval.from_json(namespace.read(approval), approval).digest
    except CorruptFileError:
        return ""


@dataclass(frozen=True, order=True)
class _Record:
    """A file of a ledger, or a claim: when it was written, and when its sweep began (``ledger.SEQUENCE_FORMAT``)."""

    written_at: datetime
    began_at: str


@dataclass(frozen=True)
class _Listed:
    """What the listing of a mark has: files with their times, the newest record of each part, files of restores."""

    files: dict[str, datetime]
    records: dict[Scope, _Record]
    restores: dict[str, datetime]


def _list_mark(store: ObjectStore, paths: MarkPaths, files: Collection[str]) -> _Listed:
    """List the whole folder of a mark once, so that the listing must have those of ``files`` that exist.

    A proxy or a cache may return a valid, empty listing. On its own, that of the ledger would mean that no sweep began.
    """
    found = _Listed({}, {}, {})
    for batch in store.list(paths.report.folder):
        for key, at in written_at(batch).items():
            if key in files:
                found.files[key] = at
            if key.endswith(f"/{NEWEST}"):
                continue
            if key.startswith((paths.ledger, paths.claims)):
                record = _Record(at, key.rpartition("/")[2].partition("-")[0])
                found.records[scope_of(key)] = max(record, found.records.get(scope_of(key), record))
            elif key.startswith(paths.restores):
                found.restores[key] = at
    return found


def _remove(store: ObjectStore, paths: BackupPaths, look: Callable[[], _Look | None]) -> bool:
    """Delete a backup if it is still expired (``look`` finds that), and return whether it was.

    Nothing is deleted of a folder that cannot be listed, for example because of a symbolic link in it. Each time when
    the time for deletes is over, the backup is looked at again (``removal.py``): somebody may need it meanwhile.
    """
    for _ in store.list(paths.folder):
        pass
    removal = Removal(store, paths)
    while True:
        window, is_still_expired = removal.announce(), False
        try:
            is_still_expired = look() is not None
            if is_still_expired and _delete_copies(removal, window):
                return True
        except LakeFSGCError:
            with suppress(LakeFSGCError):  # the first error says what to do
                _withdraw(removal)
            raise
        if is_still_expired:
            continue
        _withdraw(removal)
        if len(removal.windows) > 1:
            raise BackupError(
                "The backup was needed again while it was being removed, and a part of it is missing",
                remedy=f"Run `{paths.command}`: it copies what was removed again",
            )
        return False


def _withdraw(removal: Removal) -> None:
    """Delete the notes of a pruning that deletes nothing more, unless the store may still execute a delete of it."""
    if not removal.may_delete_late:
        _delete(removal.store, removal.own_files())


def _delete_copies(removal: Removal, window: DeleteWindow) -> bool:
    """Delete an expired backup; return False if the time for deletes was over before all was deleted.

    The manifest goes first, so that a backup that is only partly deleted counts as incomplete. The note of its begin
    goes last, so that the next pruning finds the rest and deletes it. Raise ``BackupError`` if a file cannot be
    deleted, or if nothing was deleted in time.
    """
    store, paths = removal.store, removal.paths
    dead, held = removal.others()
    listed = (key for batch in store.list(paths.folder) for key in batch.column("address").to_pylist())
    copies = (key for key in listed if key != paths.began and not key.startswith(paths.removals))
    batches = iter(lambda: list(islice(copies, _DELETES_AT_ONCE)), [])
    for number, keys in enumerate(chain([[paths.manifest, *dead]], batches)):
        if not _delete(store, keys, window):
            if number > 1:
                return False
            raise BackupError(
                f"The store did not delete a part of the backup within {DELETE_DEADLINE_SECONDS} seconds",
                remedy="Prune again when the store is faster: the pruning continues",
            )
    if removal.may_delete_late:
        return True  # the notes stay, for the next pruning
    # Another pruning of this backup at the same time deletes its own notes, and the next one the note of the begin.
    own = removal.own_files()
    return _delete(store, own if held else [*own, paths.began], window)


def _delete(store: ObjectStore, keys: Sequence[str], window: DeleteWindow | None = None) -> bool:
    """Delete files of a backup; return False if the time for it was over. Raise if the store does not delete one."""
    failed = [deletion for deletion in store.delete_many(keys, window) if deletion.error]
    refused = [deletion for deletion in failed if not deletion.error.startswith(NOT_TRIED)]
    if refused:
        raise BackupError(
            f"{len(refused):,} files of an expired backup cannot be removed, e.g. {refused[0].key}: {refused[0].error}",
            remedy="Grant permission to delete objects in the backup location, or raise backup.keep_days",
        )
    return not failed
