"""One run: the facts that are fixed when it begins and that every stage uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from threading import Lock
from typing import Any

from pyspark.sql import SparkSession

from lakefs_gc.config import REPOSITORY_NAME, SafetyParameters, Settings
from lakefs_gc.engine.ahead import Ahead
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.spark.compute import Compute
from lakefs_gc.engine.spark.scale import IS_SMALL
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.engine.workspace.workspace import Clock, Workspace
from lakefs_gc.errors import (
    ClockSkewError,
    ConfigurationError,
    CorruptFileError,
    InputOrderError,
    MarkError,
    NamespaceError,
    ReadOnlyRepositoryError,
    SafetyError,
)
from lakefs_gc.formats.address_readings import is_local
from lakefs_gc.formats.addresses import all_spellings, namespaces_overlap, normalize_namespace
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.known_folders import KnownFolders, folder_mounts, folders_overlap, learn_folders
from lakefs_gc.lakefs.models import Repository
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.endpoints import begin_clients, continue_clients, refuse_move
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.units import human_duration

_RUN_KEY = re.compile(rf"(?P<repository>{REPOSITORY_NAME})/(?P<run>[A-Za-z0-9][A-Za-z0-9._-]{{0,99}})")


def new_run_key(repository: str, now: datetime) -> str:
    """Return the key of a new run, ``<repository>/<time>``, which is its partition in Dagster."""
    return f"{repository}/{now.astimezone(UTC):%Y-%m-%dT%H-%M-%S-%f}"


def repository_of(run_key: str) -> str:
    """Return the repository of a run key. Raise ``ConfigurationError`` for a key of another form."""
    match = _RUN_KEY.fullmatch(run_key)
    if match is None:
        raise ConfigurationError(
            f"{run_key!r} is not a run key",
            remedy="Name the partition <repository>/<run>, for example my-repo/2026-01-31",
        )
    return match["repository"]


@dataclass(frozen=True)
class ServerIdentity:
    """The server of a run, and which repository of that name it is, because a copy of a server has the same names.

    ``repository_created_at`` is in ISO 8601, UTC.
    """

    endpoint_url: str
    repository_created_at: str

    @classmethod
    def of(cls, server: LakeFSClient, repository: Repository) -> ServerIdentity:
        """Return the identity of a repository as the server describes it now."""
        return cls(server.endpoint_url, repository.created_at.isoformat())


@dataclass(frozen=True)
class GCRun:
    """The facts of a run, fixed when its store listing begins.

    ``started_at`` and ``cutoff`` are on the object store's clock. ``store`` is the location of the namespace as this
    machine reaches it.
    """

    run_key: str
    repository: str
    namespace: str
    store: StoreLocation
    started_at: datetime
    cutoff: datetime
    grace_period_seconds: int
    min_age_seconds: float
    server_version: str
    server: ServerIdentity
    server_folders: tuple[str, ...] = ()
    """More prefixes of full addresses than ``spellings``: how the server's API and the mounts spell the namespace."""
    folder_mounts: tuple[tuple[str, str], ...] = ()
    """Where this machine reaches other folders of the server's disk."""
    only: Scope = Scope.all
    """Which candidates the run marks: all, or those with one reason."""
    repositories: tuple[str, ...] = ()
    """The other repositories that the server listed. Each later list of the run must have those that still exist.

    An earlier version did not record them.
    """

    def to_facts(self) -> dict[str, Any]:
        """Return the facts as JSON, for the manifest of the store listing. ``only`` is recorded for a part."""
        facts = asdict(self)
        only = facts.pop("only")
        return (
            facts
            | ({"only": only.value} if only.is_part else {})
            | {
                "store": self.store.url,
                "started_at": self.started_at.isoformat(),
                "cutoff": self.cutoff.isoformat(),
                "server_folders": list(self.server_folders),
                "folder_mounts": [list(mount) for mount in self.folder_mounts],
                "repositories": list(self.repositories),
            }
        )

    @classmethod
    def of(cls, listing: DatasetManifest) -> GCRun:
        """Return the run that a store listing began. Raise ``InputOrderError`` if another version recorded it."""
        facts: dict[str, Any] = listing.facts["run"]
        try:
            run = cls(
                **facts
                | {
                    "store": StoreLocation(facts["store"]),
                    "started_at": datetime.fromisoformat(facts["started_at"]),
                    "cutoff": datetime.fromisoformat(facts["cutoff"]),
                    "server": ServerIdentity(**facts["server"]),
                    "server_folders": tuple(facts["server_folders"]),
                    "folder_mounts": tuple((prefix, url) for prefix, url in facts["folder_mounts"]),
                    "only": Scope(facts.get("only", Scope.all)),
                    "repositories": tuple(facts.get("repositories", ())),
                }
            )
        except (TypeError, KeyError, ValueError):
            raise InputOrderError(
                f"the store listing of run {listing.run_key} was written by another version of lakefs-gc",
                remedy="Start a new run",
            ) from None
        if run.cutoff > run.started_at - timedelta(seconds=run.min_age_seconds):
            raise CorruptFileError(
                f"the manifest of the store listing of run {listing.run_key}",
                f"its cutoff {run.cutoff.isoformat()} is later than its minimum age allows",
                remedy="Start a new run, and find out what changes files in the workspace (work_url)",
            )
        return run

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """Return all prefixes of full addresses of objects in the namespace; the namespace itself is the first."""
        return all_spellings(self.namespace, self.store.url, self.server_folders)

    @cached_property
    def known_folders(self) -> KnownFolders:
        """Return the folders by which a full address is recognized as one of this namespace."""
        return KnownFolders(self.namespace, self.store, self.folders, self.server_folders, self.folder_mounts)

    def key_of(self, url: str) -> str:
        """Return the key, relative to the namespace, of a URL from the server.

        A server with a local store names the folder itself, ``local:///folder/...``, instead of the namespace.
        Raise ``NamespaceError`` for a URL outside the namespace.
        """
        for folder in self.folders:
            if url.startswith(folder):
                return url.removeprefix(folder)
        raise NamespaceError(
            f"the server names {url}, which is not in the namespace {self.namespace}",
            remedy="Start a new run: the repository may have moved during this one",
        )


@dataclass(frozen=True)
class RunContext:
    """What every stage uses besides its inputs.

    ``compute`` starts Spark, and ``connect`` makes the client of the lakeFS server, when a stage first needs them. A
    run that is refused earlier starts no JVM, and stages that send no request to the server need no credentials.
    ``ahead`` is the work that was begun for later stages of the process.
    """

    compute: Compute
    connect: Callable[[], LakeFSClient]
    settings: Settings
    workspace: Workspace
    clock: Clock
    open_store: Callable[[StoreLocation], ObjectStore]
    ahead: Ahead = field(default_factory=Ahead)
    _connecting: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)
    _clients: list[LakeFSClient] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def spark(self) -> SparkSession:
        """Return the Spark session; the first call starts Spark."""
        return self.compute.session

    @property
    def cores(self) -> int:
        """Return the number of tasks that Spark runs at once."""
        return self.compute.cores

    @property
    def server(self) -> LakeFSClient:
        """Return the client of the lakeFS server. Raise ``ConfigurationError`` if no server is configured."""
        with self._connecting:  # the threads of ``ahead`` use it, too, and ``cached_property`` has no lock
            if not self._clients:
                self._clients.append(self.connect())
            return self._clients[0]

    @property
    def safety(self) -> SafetyParameters:
        """Return the safety parameters of the settings."""
        return self.settings.safety

    def with_safety(self, safety: SafetyParameters) -> RunContext:
        """Return the same context, with the same client of the server, and the safety parameters of one run.

        Work that was begun for another run is not taken.
        """
        settings = self.settings.model_copy(update={"safety": safety})
        # The client remembers which repositories the server has listed.
        return replace(self, connect=lambda: self.server, settings=settings, ahead=Ahead())


def begin_run(context: RunContext, run_key: str, only: Scope = Scope.all) -> GCRun:
    """Check the repository, the namespaces of other repositories and the clocks, and fix the cutoff (rules 2 and 5).

    ``only``: which candidates the run marks. The run opens its stores anew, also in a process that goes on.

    Raise ``RepositoryNotFoundError``, ``ReadOnlyRepositoryError``, ``NamespaceError``, ``ClockSkewError`` or
    ``SafetyError``.
    """
    begin_clients(run_key)
    server, settings, safety = context.server, context.settings, context.safety
    repository = server.repository(repository_of(run_key))
    if repository.read_only:
        raise ReadOnlyRepositoryError(f"repository {repository.name} is read-only, so it cannot be collected")
    others = server.other_repositories(repository.name)
    refuse_overlaps(repository, others, settings)
    _refuse_backups(repository, settings)
    namespace = normalize_namespace(repository.storage_namespace)
    location = settings.reach(namespace)
    started_at = checked_store_time(context.open_store(location), safety, context.clock)
    grace_period_seconds = server.grace_period_seconds()
    min_age_seconds = effective_min_age_seconds(safety, grace_period_seconds)
    return GCRun(
        run_key=run_key,
        repository=repository.name,
        namespace=namespace,
        store=location,
        started_at=started_at,
        cutoff=started_at - timedelta(seconds=min_age_seconds),
        grace_period_seconds=grace_period_seconds,
        min_age_seconds=min_age_seconds,
        server_version=server.version(),
        server=ServerIdentity.of(server, repository),
        server_folders=learn_folders(server, repository, settings, location),
        folder_mounts=folder_mounts(settings) if is_local(namespace) else (),
        only=only,
        repositories=tuple(sorted(other.name for other in others)),
    )


def continue_run(context: RunContext, listing: DatasetManifest) -> GCRun:
    """Return the run that a store listing began, for a stage that begins now.

    Stages may run on several machines, and rule 1 compares their times. So each stage reads the store's clock once.
    Raise ``ClockSkewError`` like ``begin_run``, and ``ConfigurationError`` if this process has had another endpoint of
    the store since it began or continued the run.
    """
    run = GCRun.of(listing)
    continue_clients(run.run_key)
    checked_store_time(context.open_store(run.store), context.safety, context.clock)
    refuse_move()
    context.compute.scale(bool(listing.facts.get(IS_SMALL)))
    return run


def refuse_another_repository(server: LakeFSClient, run: GCRun) -> None:
    """Raise ``MarkError`` unless the server still answers for the repository that the run began with.

    A name that leads to another server in the middle of a run would show a repository without its references.
    """
    repository = server.repository(run.repository)
    namespace = normalize_namespace(repository.storage_namespace)
    if (ServerIdentity.of(server, repository), namespace) != (run.server, run.namespace):
        raise MarkError(
            f"{server.endpoint_url} shows repository {run.repository} with the namespace {namespace}, created "
            f"{repository.created_at.isoformat()}, but this run began with {run.namespace}, created "
            f"{run.server.repository_created_at}. Which objects that repository references is unknown",
            remedy="Check what LAKECTL_SERVER_ENDPOINT_URL leads to, then start a new run",
        )


def refuse_other_server(server: ServerIdentity, marked_with: Mapping[str, str] | None, mark_id: str) -> None:
    """Raise ``MarkError`` unless a mark was made with this server, and with this repository on it.

    ``marked_with`` is the ``ServerIdentity`` that the mark records, as JSON.
    """
    if marked_with == asdict(server):
        return
    if marked_with is None:
        raise MarkError(
            f"mark {mark_id} does not record the lakeFS server that it was made with",
            remedy="Mark the repository again",
        )
    marked_server = f"{marked_with.get('endpoint_url')} (repository created {marked_with.get('repository_created_at')})"
    raise MarkError(
        f"mark {mark_id} was made with the lakeFS server {marked_server}, but this is "
        f"{server.endpoint_url} (repository created {server.repository_created_at}). Which objects that server "
        "references is unknown here",
        remedy="Set LAKECTL_SERVER_ENDPOINT_URL to the URL of the mark, or mark again with this server",
    )


def refuse_overlaps(repository: Repository, others: Iterable[Repository], settings: Settings) -> None:
    """Raise ``NamespaceError`` if the namespace of one of ``others`` contains, equals or lies in this one's (rule 5).

    They are compared as the server spells them, and where mounts lead. Namespaces on local disks are also compared by
    their folders, because a symbolic link may lead from two URLs to one folder.
    """
    own = repository.storage_namespace
    own_location = settings.locate(own)
    for other in others:
        theirs = other.storage_namespace
        if namespaces_overlap(theirs, own) or overlaps(theirs, own_location, settings):
            raise NamespaceError(
                f"the namespaces of {repository.name} ({repository.storage_namespace}) and of {other.name} "
                f"({other.storage_namespace}) overlap: an object that one does not reference, the other may use",
                remedy="Move one of them to a namespace of its own. Until then neither can be collected",
            )


def overlaps(namespace: str, location: StoreLocation, settings: Settings) -> bool:
    """Return whether a folder contains, equals or lies in a namespace, as its server spells it or where mounts lead."""
    reached = settings.locate(namespace)
    return (
        namespaces_overlap(namespace, location.folder_url)
        or namespaces_overlap(reached.folder_url, location.folder_url)
        or folders_overlap(reached, location)
    )


def _refuse_backups(repository: Repository, settings: Settings) -> None:
    """Raise ``NamespaceError`` if the configured backup location contains, equals or lies in a namespace (rule 5).

    No reference shows the copies of a backup, and they may be the only ones.
    """
    url = settings.backup.url
    if url and overlaps(repository.storage_namespace, StoreLocation(url), settings):
        raise NamespaceError(
            f"the namespace of {repository.name} ({repository.storage_namespace}) and the backup location {url} "
            "overlap: the copies of backups could be collected as garbage",
            remedy="Set backup.url to a bucket or folder that no repository uses, and move the backups there. If the "
            "repository was created in the backup location, create it elsewhere: here it cannot be collected",
        )


def checked_store_time(store: ObjectStore, safety: SafetyParameters, clock: Clock) -> datetime:
    """Return the time on the store's clock. Raise ``ClockSkewError`` if this machine's clock differs much (rule 2)."""
    store_time, local_time = store.now(), clock()
    skew_seconds = abs((store_time - local_time).total_seconds())
    if skew_seconds > safety.max_clock_skew_seconds:
        raise ClockSkewError(
            f"this machine's clock ({local_time.isoformat()}) and the store's ({store_time.isoformat()}) are "
            f"{skew_seconds:.0f} s apart, more than {safety.max_clock_skew_seconds:.0f} s",
            remedy="Set the clock of this machine, or of the store, then run again",
        )
    return store_time


def effective_min_age_seconds(safety: SafetyParameters, grace_period_seconds: int) -> float:
    """Return the configured minimum age, which is never below the server's grace period (rule 2).

    A default below the grace period is raised to it. A setting below it raises ``SafetyError``, unless
    ``allow_min_age_below_grace`` is set.
    """
    min_age_seconds = safety.min_age_hours * 3600
    if min_age_seconds >= grace_period_seconds or safety.allow_min_age_below_grace:
        return min_age_seconds
    if "min_age_hours" not in safety.model_fields_set:
        return float(grace_period_seconds)
    raise SafetyError(
        f"a minimum age of {human_duration(min_age_seconds)} is below the server's grace period of "
        f"{human_duration(grace_period_seconds)}: uploaded objects that are not linked yet could be deleted",
        remedy="Set a minimum age of at least the grace period. Only while no client uploads, pass --unsafe-min-age "
        "(unsafe_min_age in the UI) or set safety.allow_min_age_below_grace",
    )
