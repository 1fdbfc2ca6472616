"""The marks in a namespace: listing them, reading one, and opening one by its repository or run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakefs_gc.config import SafetyParameters, Settings
from lakefs_gc.engine.records.client_mark import check_summary, read_client_mark
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.mark_parts import part_keys
from lakefs_gc.engine.run import ServerIdentity, refuse_other_server, repository_of
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.errors import ClockSkewError, MarkError, ObjectNotFoundError
from lakefs_gc.formats.addresses import normalize_namespace
from lakefs_gc.formats.parquet import has_column
from lakefs_gc.formats.report import (
    MADE_BY_LAKEFS_GC,
    MARKS_FOLDER,
    Summary,
    find_report_layouts,
    folder_before_marks,
)
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.open import open_store


@dataclass(frozen=True)
class Namespace:
    """A repository's namespace: its URL with a final slash, and its open store."""

    url: str
    store: ObjectStore


@dataclass(frozen=True)
class Marked:
    """A mark and the open store of its namespace."""

    mark: Mark
    store: ObjectStore


def open_namespace(repository: str, server: LakeFSClient, settings: Settings) -> Namespace:
    """Return the namespace of a repository."""
    url = normalize_namespace(server.repository(repository).storage_namespace)
    return Namespace(url, open_store(settings.reach(url)))


def open_mark(repository: str, mark_id: str, server: LakeFSClient, settings: Settings) -> Marked:
    """Return the mark ``mark_id`` of a repository. Raise ``MarkError`` as ``read_mark`` does."""
    namespace = open_namespace(repository, server, settings)
    return Marked(read_mark(namespace.store, repository, namespace.url, mark_id), namespace.store)


def mark_of_run(run_key: str, mark_id: str, server: LakeFSClient, settings: Settings, workspace: Workspace) -> Marked:
    """Return the mark ``mark_id``, or the mark that a run made if the id is empty.

    Raise ``MarkError`` as ``read_mark`` does, and ``InputOrderError`` if the run has no mark.
    """
    mark_id = mark_id or mark_id_of_run(run_key, workspace)
    return open_mark(repository_of(run_key), mark_id, server, settings)


def mark_id_of_run(run_key: str, workspace: Workspace) -> str:
    """Return the id of the mark that a run made, or would have made. Raise ``InputOrderError`` if it is unknown."""
    # A mark has the id of the server's uncommitted list that it was made from.
    return str(workspace.manifest(run_key, "uncommitted").facts["run_id"])


def read_mark(store: ObjectStore, repository: str, namespace: str, mark_id: str) -> Mark:
    """Return the mark ``mark_id`` of a namespace.

    Raise ``MarkError`` if it does not exist, failed, was changed, or is of another repository.
    """
    paths = MarkPaths.of(mark_id)
    manifest = _content_of(store, paths.manifest)
    if manifest is not None:
        mark = Mark.from_json(manifest, paths.manifest)
        summary = _content_of(store, paths.summary)
        if summary is None:
            raise MarkError(f"Mark {mark_id} is incomplete: its run did not finish", remedy="Start a new run")
        check_summary(summary, paths.summary, mark_id)
        if (mark.mark_id, mark.repository, mark.namespace) != (mark_id, repository, namespace):
            raise MarkError(
                f"{paths.manifest} is the mark {mark.mark_id} of {mark.repository} at {mark.namespace}, "
                f"not {mark_id} of {repository} at {namespace}",
                remedy="A mark can be swept only in the repository where it was made. Mark this repository again",
            )
        return mark
    if made_by_us(store, mark_id):
        raise MarkError(
            f"Mark {mark_id} was made by lakefs-gc, but its manifest {paths.manifest} is missing, and with it the "
            "results of its checks",
            remedy="Mark again, and find out what deletes files below _lakefs/retention/",
        )
    for layout in find_report_layouts(mark_id):
        mark_of_client = read_client_mark(store, repository, namespace, layout, mark_id)
        if mark_of_client is not None:
            return mark_of_client
    former = folder_before_marks(mark_id)
    if next(iter(store.list(former)), None) is not None:
        raise MarkError(
            f"{namespace}{former} is the list of a run of lakeFS's Spark client before 0.4, which is never swept: it "
            "may name objects outside the namespace, and no file shows that it is complete. The run itself deleted its "
            "objects, unless lakefs.debug.gc.no_delete was set",
            remedy=f"Mark again with `lakefs-gc mark {repository}`",
        )
    raise MarkError(
        f"Mark {mark_id} does not exist in {namespace}",
        remedy=f"List the marks with `lakefs-gc history {repository}`",
    )


def _content_of(store: ObjectStore, key: str) -> bytes | None:
    try:
        return store.read(key)
    except ObjectNotFoundError:
        return None


def refuse_unfit(mark: Mark, server: ServerIdentity) -> None:
    """Raise ``MarkError`` for a mark that this version cannot sweep, or that was made with another lakeFS server.

    A mark of lakeFS's own client records no server. Its checks are evaluated with this server before its sweep.
    """
    if not mark.is_current:
        raise MarkError(
            f"Mark {mark.mark_id} was made by an older lakefs-gc, whose checks do not record what could not be checked",
            remedy="Mark again",
        )
    if mark.is_ours:
        refuse_other_server(server, mark.run.get("server"), mark.mark_id)


def made_by_us(store: ObjectStore, mark_id: str) -> bool:
    """Return whether a file in the folder of a mark shows that lakefs-gc made it: manifest, summary or a part.

    One sign is enough: a mark without its manifest must not pass for one of lakeFS's client, which has no checks.
    """
    paths = MarkPaths.of(mark_id)
    found = store.stat_many([paths.manifest, paths.summary])
    if paths.manifest in found:
        return True
    if (
        paths.summary in found
        and Summary.from_json(store.read(paths.summary), paths.summary).made_by == MADE_BY_LAKEFS_GC
    ):
        return True
    return any(has_column(content, "size", key) for key, content in store.read_many(part_keys(store, paths.report)))


def list_marks(store: ObjectStore) -> Iterator[str]:
    """Return the ids of the complete marks of a namespace in the current layout, newest first, as run ids sort."""
    return (mark_id for mark_id in mark_folders(store) if is_complete(store, mark_id))


def is_complete(store: ObjectStore, mark_id: str) -> bool:
    """Return whether a mark has its summary, which is written last."""
    return bool(store.stat_many([MarkPaths.of(mark_id).summary]))


def mark_folders(store: ObjectStore) -> list[str]:
    """Return the ids of the marks of a namespace in the current layout, complete or not, newest first."""
    folders, _ = store.list_level(MARKS_FOLDER)
    return [folder.removeprefix(MARKS_FOLDER).rstrip("/") for folder in sorted(folders)]


def mark_with_manifest(store: ObjectStore, mark_id: str) -> Mark | None:
    """Return a mark from its manifest alone, or None for one without a manifest. Raise as ``Mark.from_json`` does."""
    key = MarkPaths.of(mark_id).manifest
    content = _content_of(store, key)
    return None if content is None else Mark.from_json(content, key)


@dataclass(frozen=True)
class MarkAge:
    """The least and the greatest age that a mark can have."""

    least: timedelta
    most: timedelta


def ready_at(mark: Mark, safety: SafetyParameters) -> datetime:
    """Return the time, on the store's clock, by which every commit that was in progress at the mark has ended.

    The wait is that of ``commit_wait.wait_for_commits``, which measures the age of the mark again.
    """
    minutes = max(safety.longest_commit_minutes, mark.longest_commit_minutes)
    return mark.created_at + (timedelta(minutes=minutes) + safety.two_clocks_apart if minutes else timedelta())


def age_of(store: ObjectStore, mark: Mark, safety: SafetyParameters) -> MarkAge:
    """Return the age of a mark on the store's clock, independent of the clock of this machine. Two requests.

    The time in the mark is bound by its digest, but in marks of earlier versions it is from the machine that made it.
    The time of the summary is from the store, but a copied file has the time of the copy. A wait is measured from the
    later of the two; whether a mark is too old, from the earlier one. Raise ``ClockSkewError`` if the mark is from the
    future: one of the clocks was set back.
    """
    now, times = store.now(), [mark.created_at]
    times += [info.last_modified for info in store.stat_many([MarkPaths.of(mark.mark_id).summary]).values()]
    if max(times) > now + safety.two_clocks_apart:
        raise ClockSkewError(
            f"The age of mark {mark.mark_id} is unknown: it was made at {max(times).isoformat()}, but the time of the "
            f"store is {now.isoformat()}",
            remedy="Check whether the clock of the store was set back, then mark again",
        )
    return MarkAge(least=now - max(times), most=now - min(times))
