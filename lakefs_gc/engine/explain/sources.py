"""Where answers come from: the server, the store, the records in the namespace, and the workspace.

Each look-up is done once for all objects that are asked about. What could not be looked at is named, never taken for
nothing (rule 12).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice

from lakefs_gc.config import Settings
from lakefs_gc.engine.explain.history import History
from lakefs_gc.engine.explain.last_run import LastRun
from lakefs_gc.engine.records.stored_marks import open_namespace
from lakefs_gc.engine.workspace.history_index import HistoryIndex
from lakefs_gc.engine.workspace.known_commits import keep_commits, read_commits
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.errors import ConfigurationError, LakeFSGCError, RepositoryNotFoundError, ServerError
from lakefs_gc.formats.address_readings import is_local
from lakefs_gc.formats.addresses import all_spellings, normalize_namespace
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.known_folders import KnownFolders, folder_mounts, learn_folders
from lakefs_gc.lakefs.models import Change
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.open import open_store

_CALLS_AT_ONCE = 16
_MAX_CHANGES = 20_000
"""The most staged changes that are listed for an answer that is not thorough: 20 calls of a second or less."""
_MAX_LOOKUPS = 500
"""The most paths that are looked up through the API for an answer that is not thorough."""
_MAX_HEAD_RANGES = 500
"""The most ranges of heads that are read for an answer that is not thorough: two or three seconds."""
_THOROUGH = "`--thorough` looks at all of them"
_GONE = 410

Place = tuple[str, str]
"""A branch and a path."""


@dataclass
class Sources:
    """What answers are made from. ``not_looked_at`` grows with what could not be looked at."""

    server: LakeFSClient
    settings: Settings
    repository: str
    namespace: str
    store: ObjectStore
    known: KnownFolders
    now: datetime
    last_run: LastRun
    history: History
    not_looked_at: list[str] = field(default_factory=list)
    looked_at: list[str] = field(default_factory=list)


def open_sources(repository: str, server: LakeFSClient, settings: Settings, workspace: Workspace) -> Sources:
    """Read the commits of a repository, and find its last run. Raises the errors of ``LakeFSClient`` and the store."""
    namespace = open_namespace(repository, server, settings)
    store = namespace.store
    not_looked_at: list[str] = []
    last_run = LastRun.of(workspace, repository, namespace.url)
    known = _known_folders(repository, server, settings, namespace.url, store, not_looked_at)
    try:
        listed = last_run.listed_commits(store)
    except LakeFSGCError as error:
        listed = []
        not_looked_at.append(f"commits of deleted branches: {error.message}")
    if last_run.run is None:
        not_looked_at.append(
            "commits of deleted branches: only a run lists them, and the workspace has no run of this repository"
        )
    work_store = open_store(workspace.range_cache.location)
    index, commits = HistoryIndex.read(work_store, known), read_commits(work_store, store.location.folder_url)
    history = History.read(server, repository, store, known, index, settings.safety.max_commits, listed, commits)
    keep_commits(work_store, store.location.folder_url, history.commits)
    looked_at = [
        f"{len(history.commits):,} commits of {_count(len(history.heads), 'branch', 'branches')} and "
        f"{_count(len(history.tags), 'tag', 'tags')}, with their {len(history.ranges):,} ranges",
    ]
    if history.unreachable:
        looked_at.append(f"{len(history.unreachable):,} metadata files that no known commit names")
    return Sources(
        server,
        settings,
        repository,
        namespace.url,
        store,
        known,
        store.now(),
        last_run,
        history,
        not_looked_at,
        looked_at,
    )


def _known_folders(
    name: str, server: LakeFSClient, settings: Settings, namespace: str, store: ObjectStore, not_looked_at: list[str]
) -> KnownFolders:
    server_folders: tuple[str, ...] = ()
    try:
        server_folders = learn_folders(server, server.repository(name), settings, store.location)
    except LakeFSGCError as error:
        if error.transient:
            raise
        not_looked_at.append(f"entries with the server's own folder in their address: {error.message}")
    folders = all_spellings(namespace, store.location.url, server_folders)
    mounts = folder_mounts(settings) if is_local(namespace) else ()
    return KnownFolders(namespace, store.location, folders, server_folders, mounts)


def namespaces_of_others(sources: Sources) -> frozenset[str]:
    """Return the namespaces of all other repositories; none if the server does not list them.

    Nothing relies on the list being whole: what is in a namespace that it lacks is looked at, too.
    """
    try:
        others = [each for each in sources.server.repositories() if each.name != sources.repository]
        return frozenset(normalize_namespace(each.storage_namespace) for each in others)
    except LakeFSGCError:
        return frozenset()


@dataclass(frozen=True)
class Asked:
    """An object that is asked about: the words of the user, and the addresses that they may mean.

    ``shown_by`` is the branch and the path if they named one.
    """

    words: str
    addresses: tuple[str, ...]
    shown_by: Place | None = None


def resolve(sources: Sources, words: str) -> Asked:
    """Return what a user asks about: an address in the namespace, a whole URL of one, or ``lakefs://repo/ref/path``.

    Raises ``ConfigurationError`` for another repository, and for a URL outside the namespace.
    """
    if words.startswith("lakefs://"):
        repository, _, rest = words.removeprefix("lakefs://").partition("/")
        ref, _, path = rest.partition("/")
        if repository != sources.repository or not ref or not path:
            raise ConfigurationError(
                f"{words} does not name an object of {sources.repository}",
                remedy=f"Pass lakefs://{sources.repository}/REF/PATH",
            )
        url = shown_url(sources, ref, path)
        return Asked(words, sources.known.keys_of(url) if url else (), (ref, path))
    if "://" not in words:
        return Asked(words, (words,))
    addresses = sources.known.keys_of(words)
    if not addresses:
        raise ConfigurationError(
            f"{words} is not in the namespace of {sources.repository}, {sources.namespace}",
            remedy="Pass an address below the namespace, relative or whole, or lakefs://REPO/REF/PATH",
        )
    return Asked(words, addresses)


def shown_url(sources: Sources, ref: str, path: str) -> str:
    """Return the URL of the object that a reference shows at a path; empty if it shows none."""
    try:
        return sources.server.shown_address(sources.repository, ref, path)
    except ServerError as error:
        if error.facts.get("status") != _GONE:
            raise
    try:  # lakeFS answers 410 for an entry that is marked as deleted, and lists it all the same
        return sources.server.shown_objects(sources.repository, ref, 1, prefix=path).get(path, "")
    except RepositoryNotFoundError:
        return ""


def staged(sources: Sources, sizes: Collection[int] | None, *, thorough: bool = False) -> dict[str, list[Place]] | None:
    """Return where branches show staged objects that have one of ``sizes`` (None: any), by address.

    None if they are too many to look at, and the answer is not ``thorough``.
    """
    last_listed = sources.last_run.facts("uncommitted").get("listed") or 0
    too_many = f"the last run listed {last_listed:,}" if last_listed > _MAX_CHANGES else ""
    listed, places = 0, list[Place]()
    if thorough or not too_many:
        limit = None if thorough else _MAX_CHANGES + 1
        by_branch = map_unordered(lambda b: _changes(sources, b, limit), sources.history.heads, _CALLS_AT_ONCE)
        for branch, changes in by_branch:
            listed += len(changes)
            places += [(branch, change.path) for change in changes if sizes is None or change.size_bytes in sizes]
            too_many = _too_many_changes(listed, len(places), of_a_size=sizes is not None)
            if too_many and not thorough:
                break
    if too_many and not thorough:
        sources.not_looked_at.append(f"staged objects since the last run: {too_many}. {_THOROUGH}")
        return None
    sources.looked_at.append(
        f"{_count(listed, 'staged change', 'staged changes')} of "
        f"{_count(len(sources.history.heads), 'branch', 'branches')}"
    )
    return shown_at(sources, places).at


def _too_many_changes(listed: int, places: int, *, of_a_size: bool) -> str:
    """Return why these are too many changes to look at. ``places`` are those to look up, all or ``of_a_size``."""
    if listed > _MAX_CHANGES:
        return f"there are more than {_MAX_CHANGES:,} changes"
    if places > _MAX_LOOKUPS:
        return f"more than {_MAX_LOOKUPS} changes {'have the same size' if of_a_size else 'may show a lost object'}"
    return ""


def _changes(sources: Sources, branch: str, limit: int | None) -> list[Change]:
    try:
        return list(islice(sources.server.changes(sources.repository, branch), limit))
    except RepositoryNotFoundError:  # the branch was deleted meanwhile
        return []


def twins(sources: Sources, sizes: Collection[int], *, thorough: bool = False) -> dict[str, list[Place]]:
    """Return where branches show objects at paths whose committed entry has one of ``sizes``, by address.

    Empty if they are too many to look at, and the answer is not ``thorough``.
    """
    branches_of = sources.history.branches_of_ranges()
    places: list[Place] = []
    not_looked_at = ""
    if len(branches_of) > _MAX_HEAD_RANGES and not thorough:
        not_looked_at = f"the branches have {len(branches_of):,} ranges. {_THOROUGH}"
    else:
        for range_id, paths in sources.history.paths_with_sizes(branches_of, sizes):
            if isinstance(paths, str):
                not_looked_at = f"range {range_id}: {paths}"
                break
            places += [(branch, path) for branch in branches_of[range_id] for path in paths]
            if len(places) > _MAX_LOOKUPS and not thorough:
                not_looked_at = f"more than {_MAX_LOOKUPS} paths have an entry of the same size. {_THOROUGH}"
                break
    if not_looked_at:
        sources.not_looked_at.append(f"hidden twins since the last run: {not_looked_at}")
        return {}
    sources.looked_at.append(f"{_count(len(places), 'path', 'paths')} that may show a hidden twin")
    return shown_at(sources, places).at


@dataclass(frozen=True)
class Shown:
    """The places that show an object, by its address, and what is outside the namespace: paths, and their URLs."""

    at: dict[str, list[Place]]
    outside: frozenset[tuple[str, str]]


def shown_at(sources: Sources, places: Collection[Place], listed: Iterable[tuple[Place, str]] = ()) -> Shown:
    """Return which of ``places`` show an object. ``listed`` are places whose URL a list has shown already."""
    found: dict[str, set[Place]] = {}
    outside: set[tuple[str, str]] = set()
    looked_up = map_unordered(lambda at: shown_url(sources, *at), places, _CALLS_AT_ONCE)
    for place, url in chain(listed, looked_up):
        if not url:
            continue
        addresses = sources.known.keys_of(url)
        for address in addresses:
            found.setdefault(address, set()).add(place)
        if not addresses:
            outside.add((place[1], url))
    return Shown({address: sorted(at) for address, at in found.items()}, frozenset(outside))


def of_last_run(
    sources: Sources, stage: str, column: str, addresses: Collection[str], what: str
) -> Mapping[str, list[str]]:
    """Return what the last run stored about addresses; name ``what`` was not looked at if it has nothing."""
    if sources.last_run.run is None:
        sources.not_looked_at.append(
            f"{what}: the workspace has no run of this repository (`lakefs-gc mark` makes one)"
        )
        return {}
    try:
        rows = sources.last_run.rows(stage, column, addresses)
    except LakeFSGCError as error:
        sources.not_looked_at.append(f"{what}: {error.message}")
        return {}
    sources.looked_at.append(f"{what}: {sources.last_run.name}")
    return rows


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
