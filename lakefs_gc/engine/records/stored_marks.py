"""The marks in a namespace: listing them, reading one, and opening one by its repository or run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from lakefs_gc.config import SafetyParameters, Settings
from lakefs_gc.engine.records.client_mark import read_client_mark, read_summary
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.mark_parts import part_keys
from lakefs_gc.engine.run import ServerIdentity, refuse_other_server, repository_of
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.errors import ClockSkewError, MarkError
from lakefs_gc.formats.addresses import normalize_namespace
from lakefs_gc.formats.parquet import has_column
from lakefs_gc.formats.report import (
    MADE_BY_LAKEFS_GC,
    MARKS_FOLDER,
    Summary,
    find_report_layouts,
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
    """The namespace of a repository."""
    url = normalize_namespace(server.repository(repository).storage_namespace)
    return Namespace(url, open_store(settings.reach(url)))


def open_mark(repository: str, mark_id: str, server: LakeFSClient, settings: Settings) -> Marked:
    """The mark ``mark_id`` of a repository.  Raises ``MarkError``."""
    namespace = open_namespace(repository, server, settings)
    return Marked(read_mark(namespace.store, repository, namespace.url, mark_id), namespace.store)


def mark_of_run(run_key: str, mark_id: str, server: LakeFSClient, settings: Settings, workspace: Workspace) -> Marked:
    """The mark ``mark_id``, or the one that the run of this partition made when it is empty.

    Raises ``MarkError``, or ``InputOrderError`` when the run has no mark.
    """
    # A mark has the id of the server's uncommitted list that it was made from.
    mark_id = mark_id or str(workspace.manifest(run_key, "uncommitted").facts["run_id"])
    return open_mark(repository_of(run_key), mark_id, server, settings)


def read_mark(store: ObjectStore, repository: str, namespace: str, mark_id: str) -> Mark:
    """The mark ``mark_id`` of a namespace.

    Raises ``MarkError`` when there is none, when it did not succeed, was changed, or is of another repository.
    """
    paths = MarkPaths.of(mark_id)
    found = store.stat_many([paths.manifest, paths.summary])
    if paths.manifest in found:
        mark = Mark.from_json(store.read(paths.manifest), paths.manifest)
        if paths.summary not in found:
            raise MarkError(f"mark {mark_id} was not finished", remedy="start a new run")
        read_summary(store, paths.summary, mark_id)
        if (mark.mark_id, mark.repository, mark.namespace) != (mark_id, repository, namespace):
            raise MarkError(
                f"{paths.manifest} is the mark {mark.mark_id} of {mark.repository} at {mark.namespace}, "
                f"not {mark_id} of {repository} at {namespace}",
                remedy="a mark is only swept where it was made; mark again here",
            )
        return mark
    if made_by_us(store, mark_id):
        raise MarkError(
            f"mark {mark_id} was made by lakefs-gc, and its manifest {paths.manifest} is missing: its checks are lost "
            "with it",
            remedy="mark again, and find out what deletes files below _lakefs/retention/",
        )
    for layout in find_report_layouts(mark_id):
        mark_of_client = read_client_mark(store, repository, namespace, layout, mark_id)
        if mark_of_client is not None:
            return mark_of_client
    raise MarkError(
        f"there is no mark {mark_id} in {namespace}",
        remedy=f"`lakefs-gc history {repository}` lists the marks that are there",
    )


def refuse_unfit(mark: Mark, server: ServerIdentity) -> None:
    """Raise ``MarkError`` for a mark that this version does not sweep, or that another server was asked for.

    A mark of lakeFS's own client records no server: the checks that are made before its sweep stand for that.
    """
    if not mark.is_current:
        raise MarkError(
            f"mark {mark.mark_id} was made by an older lakefs-gc, whose checks do not say what could not be looked at",
            remedy="mark again",
        )
    if mark.is_ours:
        refuse_other_server(server, mark.run.get("server"), mark.mark_id)


def made_by_us(store: ObjectStore, mark_id: str) -> bool:
    """Whether anything in the folder of a mark says that lakefs-gc made it: manifest, summary, or parts.

    One sign is enough: a mark that has lost its manifest must not pass for one of lakeFS's client, which has no checks.
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
    """Ids of the marks of a namespace in today's layout, newest first (run ids sort that way)."""
    for mark_id in mark_folders(store):
        if store.stat_many([MarkPaths.of(mark_id).summary]):
            yield mark_id


def mark_folders(store: ObjectStore) -> list[str]:
    """Ids of the marks of a namespace in today's layout, finished or not, newest first."""
    folders, _ = store.list_level(MARKS_FOLDER)
    return [folder.removeprefix(MARKS_FOLDER).rstrip("/") for folder in sorted(folders)]


def run_key_of(store: ObjectStore, repository: str, mark_id: str) -> str:
    """``Mark.run_key``, of the manifest alone: the parts and the digest are not looked at.

    Raises ``CorruptFileError`` for a manifest that cannot be read.
    """
    key = MarkPaths.of(mark_id).manifest
    if not store.stat_many([key]):
        return f"{repository}/{mark_id}"
    return Mark.from_json(store.read(key), key).run_key


@dataclass(frozen=True)
class MarkAge:
    """How old a mark is at least, and at most."""

    least: timedelta
    most: timedelta


def age_of(store: ObjectStore, mark: Mark, safety: SafetyParameters) -> MarkAge:
    """How old a mark is, by the store's clock at both ends: what this machine's says does not matter.

    The time in the mark is bound by its digest, but a mark of an earlier version has it from the machine that made it.
    The time of its summary is the store's, but of a copy it may be that of the copying.  The later of the two is what a
    wait goes by, the earlier one what makes a mark too old.  Two requests.
    Raises ``ClockSkewError`` when the mark is from the future: then one of these clocks was set back.
    """
    now, times = store.now(), [mark.created_at]
    times += [info.last_modified for info in store.stat_many([MarkPaths.of(mark.mark_id).summary]).values()]
    if max(times) > now + safety.two_clocks_apart:
        raise ClockSkewError(
            f"mark {mark.mark_id} was made at {max(times).isoformat()}, and the store's clock says {now.isoformat()}: "
            "how old the mark is cannot be known",
            remedy="see whether the clock of the store was set back; then mark again",
        )
    return MarkAge(least=now - max(times), most=now - min(times))
