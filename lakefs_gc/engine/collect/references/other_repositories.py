"""The other repositories of the server: which of them can be read from here, and which are unknown (rules 5 and 12).

A repository is read in the folder that its namespace names, or that a mount leads to. An empty folder, and one of
another time or another repository, would look like a repository that references nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from operator import attrgetter

from lakefs_gc.config import matching_mount
from lakefs_gc.engine.collect.references.active_ranges import METADATA_FOLDER, some_metadata
from lakefs_gc.engine.collect.references.commit_graph import CommitGraph
from lakefs_gc.engine.records.check import OTHER_REPOSITORIES_WERE_READ
from lakefs_gc.engine.run import RunContext
from lakefs_gc.errors import (
    ConfigurationError,
    IncompleteAnswerError,
    NamespaceError,
    RepositoryNotFoundError,
    SafetyError,
    ServerError,
    StorageError,
    StoreUnavailableError,
)
from lakefs_gc.formats.addresses import normalize_namespace
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import Repository
from lakefs_gc.lakefs.remembered_list import IN_DELETION
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered

logger = logging.getLogger(__name__)

EXEMPT = (
    "If it can never be read from here, and nothing of this repository was imported into it, name it in "
    "safety.repositories_not_read"
)
"""What to do about a repository that is unknown, at the end of a remedy."""
_ALLOW = "Allow fs:ListBranches, fs:ListTags, fs:ReadCommit, and fs:ReadBranch on this repository"
_WAIT_OR_DELETE = (
    "The server is deleting this repository. If it still is after some minutes, delete it again (`lakectl repo delete`)"
)
_Unreadable = StorageError | ConfigurationError | NamespaceError
_STORES_AT_ONCE = 8
_WRITTEN_AT_CREATION = (f"{METADATA_FOLDER}dummy", "dummy")
"""The file that lakeFS writes when it creates a repository, and its name in earlier versions."""


@dataclass(frozen=True)
class AcceptedUnknown:
    """What a mark names about other repositories, and a person accepted with it.

    ``others_unread``: the approval overrides ``OTHER_REPOSITORIES_WERE_READ``. ``unreadable`` and ``not_asked`` are the
    repositories that the mark names as such. ``mounts`` are the prefixes of the mounts at the mark; None: unknown.
    """

    others_unread: bool
    unreadable: frozenset[str]
    not_asked: frozenset[str]
    mounts: frozenset[str] | None


@dataclass(frozen=True)
class ReadableRepository:
    """Another repository that can be read. ``seen`` is the name of a metadata file that exists ("": there is none).

    ``is_mounted``: a mount leads to its namespace, or did so for the mark.
    """

    listed: Repository
    namespace: str
    store_url: str
    seen: str
    is_mounted: bool

    @property
    def name(self) -> str:
        return self.listed.name


@dataclass(frozen=True)
class OtherRepositories:
    """The repositories besides ``own_name``: those that can be read, and name and reason of each that is not read.

    ``listed`` has all of them, unless the settings switch the reading off.
    """

    own_name: str
    listed: list[Repository]
    readable: list[ReadableRepository]
    unreadable: dict[str, str]
    not_asked: dict[str, str]

    @property
    def mounted(self) -> list[Repository]:
        """The readable repositories whose folder may be another than the server's."""
        return sorted((other.listed for other in self.readable if other.is_mounted), key=attrgetter("name"))

    def name_unreadable(self, name: str, error: _Unreadable, accepted: AcceptedUnknown | None) -> None:
        """Record that a repository cannot be read. Raise unless that is accepted, or a mark is yet to record it."""
        _refuse_unknown(name, error, accepted)
        self.unreadable[name] = error.message
        logger.warning(
            "repository %s cannot be read, and may reference objects of this namespace: %s", name, error.message
        )


def probe(context: RunContext, own_name: str, accepted: AcceptedUnknown | None = None) -> OtherRepositories:
    """Check which other repositories can be read. A sweep calls this before its wait, too, so that it fails early.

    Raises ``IncompleteAnswerError`` as ``LakeFSClient.other_repositories`` does, and ``StoreUnavailableError`` when the
    store of another repository does not answer. With ``accepted`` (before a sweep), raises ``SafetyError`` instead for
    every unknown repository that is not accepted.
    """
    safety = context.safety
    if not safety.check_foreign_references:
        # Who accepted that some repositories were not read at the mark has not accepted that none is.
        if accepted is not None and (not accepted.others_unread or accepted.unreadable):
            raise SafetyError(
                "Other repositories are not read, because safety.check_foreign_references is false. Objects that they "
                "imported since the mark would be deleted",
                remedy="Set safety.check_foreign_references to true, and sweep again. Or make a new mark with this "
                f"setting: its check {OTHER_REPOSITORIES_WERE_READ} fails, and who approves that mark can override it",
            )
        return OtherRepositories(own_name, [], [], {}, {})
    listed = context.server.other_repositories(own_name)
    others = OtherRepositories(own_name, listed, [], {}, {})
    asked = [other for other in listed if other.name not in safety.repositories_not_read]
    in_turn = map_unordered(lambda other: _tried(context, other, own_name, accepted), asked, _STORES_AT_ONCE)
    with closing(in_turn) as tried:
        answers = {other.name: answer for other, answer in tried}
    for other in listed:
        if other.name not in safety.repositories_not_read:
            answer = answers[other.name]
        else:
            others.not_asked[other.name] = "safety.repositories_not_read names it"
            if accepted is None or other.name in accepted.not_asked:
                continue
            answer = ConfigurationError("safety.repositories_not_read names it now, but did not for the mark")
        if isinstance(answer, ReadableRepository):
            others.readable.append(answer)
        else:
            others.name_unreadable(other.name, answer, accepted)
    return others


def _refuse_unknown(name: str, error: _Unreadable, accepted: AcceptedUnknown | None) -> None:
    """Raise unless a person has accepted that the repository is unknown."""
    if accepted is None:
        if error.transient:
            # A retry may succeed, so this must not become a failed check of the mark.
            raise StoreUnavailableError(
                f"Repository {name} may reference objects of this namespace, but its store does not answer: "
                f"{error.message}",
                remedy=f"Run again when the store answers. {EXEMPT}",
                **error.facts,
            ) from error
    elif not (accepted.others_unread and name in accepted.unreadable):
        raise SafetyError(
            f"Repository {name} cannot be read, and the approval of this mark does not accept that. Objects that it "
            f"imported from this repository would be deleted: {error.message}",
            remedy=f"Restore the access, then sweep again. {EXEMPT}, then mark again",
            repository=name,
        ) from error


def content_of_history(server: LakeFSClient, other: Repository, own_name: str, max_commits: int) -> dict[str, str]:
    """Return metarange id to commit id for all commits that branches and tags of a repository reach.

    Empty for a repository that was deleted meanwhile. Raises ``StorageError`` if they are more than ``max_commits``, or
    if these credentials cannot read them. ``own_name`` is any repository that exists, as in ``probe``.
    """
    graph = CommitGraph(max_commits)
    with _explained(server, other.name, own_name):
        graph.add_history_of(server, other.name, _refs(server, other))
    if not graph.complete:
        raise StorageError(
            f"whether its folder has all content of {other.name} is unknown: it has more commits than "
            "safety.max_commits",
            remedy="Raise safety.max_commits: each commit takes about 1 kB of the driver's memory",
        )
    return {commit.meta_range_id: commit.id for commit in graph.commits.values() if commit.meta_range_id}


def _tried(
    context: RunContext, other: Repository, own_name: str, accepted: AcceptedUnknown | None
) -> ReadableRepository | _Unreadable:
    try:
        return _reachable(context, other, own_name, accepted.mounts if accepted else ())
    except (StorageError, ConfigurationError, NamespaceError) as error:
        return error


def _reachable(
    context: RunContext, other: Repository, own_name: str, mounts_at_mark: Collection[str] | None
) -> ReadableRepository:
    """Return a repository whose folder can be read.

    Where a mount led for the mark, and none does now, this machine reads another folder. It may be a copy. The same
    holds if it is unknown which mounts there were.
    """
    namespace = normalize_namespace(other.storage_namespace)
    location = context.settings.locate(namespace)
    store = context.open_store(location)
    seen = some_metadata(store)
    metadata = f"{location.folder_url}{METADATA_FOLDER}"
    is_mounted = mounts_at_mark is None or any(
        matching_mount(namespace, mounts)[0] for mounts in (context.settings.mounts, mounts_at_mark)
    )
    if is_mounted:
        refs = _content_of(context.server, other, own_name)
        _refuse_folder_without_content(refs, other.name, store, metadata, is_empty=not seen)
    elif not seen and _content_of(context.server, other, own_name):
        raise StorageError(
            f"{metadata} has no metadata of commits, but branches or tags of {other.name} have content",
            remedy="Check the store's endpoint and credentials",
        )
    return ReadableRepository(other, namespace, location.url, seen, is_mounted)


def _refuse_folder_without_content(
    refs: dict[str, str], name: str, store: ObjectStore, metadata: str, *, is_empty: bool
) -> None:
    """Raise ``StorageError`` unless a folder that a mount leads to has the content of all branches and tags.

    ``refs`` (``_content_of``) are those of the repository ``name``. The folder may be another than the server's, an
    empty one where nothing is mounted, or a copy of an earlier time.
    """
    existing = store.stat_many([METADATA_FOLDER + metarange for metarange in refs])
    lost = sorted(metarange for metarange in refs if METADATA_FOLDER + metarange not in existing)
    remedy = "Check that its folder is mounted, and the entry for its namespace in `mounts` in lakefs-gc.toml"
    if lost:
        raise StorageError(
            f"{metadata} lacks {lost[0]}, the content of {refs[lost[0]]} in {name} ({len(lost):,} of "
            f"{len(refs):,} such files are missing). It is not the folder that the server writes to, or is out of date",
            remedy=remedy,
        )
    if is_empty and not store.stat_many(_WRITTEN_AT_CREATION):
        # Commits that no branch and no tag reaches may have content, too.
        raise StorageError(
            f"{metadata} has no metadata of commits, and not the file that lakeFS writes when it creates a repository. "
            f"Nothing shows that it is the folder of {name}",
            remedy=remedy,
        )


def _content_of(server: LakeFSClient, other: Repository, own_name: str) -> dict[str, str]:
    """Return metarange id to branch or tag for the refs of a repository that have content.

    Empty for a repository that was deleted meanwhile. Raises ``StorageError`` if these credentials cannot read it.
    """
    with _explained(server, other.name, own_name):
        refs = _refs(server, other)
        return {metarange: refs[commit] for commit, metarange in server.metaranges_of(other.name, refs) if metarange}
    return {}


def _refs(server: LakeFSClient, other: Repository) -> dict[str, str]:
    """Return commit id to branch or tag. A tag may hold the only commits with content, if their branch was deleted."""
    refs = [*server.tags(other.name), *server.heads_of(other.name, other.default_branch).items()]
    return {commit_id: name for name, commit_id in refs}


@contextmanager
def _explained(server: LakeFSClient, repository: str, own_name: str) -> Iterator[None]:
    """Raise ``StorageError`` if the server does not tell the content of a repository, unless that was deleted."""
    try:
        yield
        return
    except (RepositoryNotFoundError, IncompleteAnswerError) as error:
        # The repository was deleted meanwhile (its branches before its name), or the server does not find one of its
        # commits.
        if not _exists(server, repository, own_name):
            return
        cause: ServerError = error
    except ServerError as error:
        if error.transient:
            raise
        cause = error
    raise StorageError(
        f"whether its folder has all content of {repository} is unknown: {cause.message}",
        remedy=_remedy(cause),
    )


def _remedy(cause: ServerError) -> str:
    if cause.facts.get("status") == IN_DELETION:
        return _WAIT_OR_DELETE
    return cause.remedy if isinstance(cause, IncompleteAnswerError) else _ALLOW


def _exists(server: LakeFSClient, repository: str, own_name: str) -> bool:
    """Return whether the server lists a repository. A 404 for it may come from a proxy in front of the server."""
    return any(listed.name == repository for listed in server.other_repositories(own_name))
