"""The calls of the lakeFS API that a collector needs, through the lakeFS SDK, with errors from ``errors``.

Facts: lakeFS OpenAPI 1.x (``lakefs-sdk`` 1.88) and recordings of a real server.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

import lakefs_sdk
import urllib3
from lakefs_sdk.exceptions import ApiException

from lakefs_gc.config import ServerCredentials
from lakefs_gc.errors import (
    ConfigurationError,
    IncompleteAnswerError,
    ReadOnlyRepositoryError,
    RepositoryNotFoundError,
    ServerError,
    ServerUnavailableError,
)
from lakefs_gc.formats.gc_rules import GCRules, rules_from_api
from lakefs_gc.lakefs.active_commits import Commit
from lakefs_gc.storage.concurrency import map_unordered

logger = logging.getLogger(__name__)

T = TypeVar("T")

_CONNECT_TIMEOUT_SECONDS = 10.0
# One page of prepare_uncommitted takes the server a minute by design, a synchronous prepare_commits much longer.
_READ_TIMEOUT_SECONDS = 600.0
_TRIES = 5
_CALLS_AT_ONCE = 16
_CONNECTIONS = 32  # as many threads may ask at once without a new connection for each call
_PIECE_BYTES = 8 * 1024**2
_FIRST_PAUSE_SECONDS = 0.5
_NOT_WHOLE = "start a new run; if it happens again, look at the server's log, and check that the server is lakeFS 1.x"
_POLL_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class Repository:
    """A repository as the server describes it; ``storage_namespace`` as it was given, with or without final slash.

    ``created_at`` is UTC, to the second.
    """

    name: str
    storage_namespace: str
    storage_id: str
    default_branch: str
    read_only: bool
    created_at: datetime


@dataclass(frozen=True)
class Change:
    """A path that a branch has staged an object for, and the size of that object."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class LogPage:
    """Some commits of a history, youngest first; ``next_offset`` is empty on the last page."""

    commits: list[Commit]
    next_offset: str


@dataclass(frozen=True)
class UncommittedPage:
    """One answer of prepare_uncommited.  ``location`` is empty when nothing is staged on this page."""

    run_id: str
    location: str
    continuation_token: str


@dataclass(frozen=True)
class PreparedCommits:
    """The active commits that the server prepared: a run id, and the URL of the CSV file."""

    run_id: str
    location: str


class LakeFSClient:
    """A lakeFS server.

    Calls that only read, and the prepare calls (each has a run of its own), are tried again after a broken
    connection, 429 and 5xx.  Raises ``RepositoryNotFoundError``, ``ReadOnlyRepositoryError``,
    ``ServerUnavailableError`` or ``ServerError``.
    """

    def __init__(self, credentials: ServerCredentials, *, sleep: Callable[[float], None] = time.sleep) -> None:
        configuration = lakefs_sdk.Configuration(
            host=credentials.endpoint_url + "/api/v1",
            username=credentials.access_key_id,
            password=credentials.secret_access_key,
        )
        configuration.retries = urllib3.Retry(0, redirect=3)
        configuration.connection_pool_maxsize = _CONNECTIONS
        self.endpoint_url = credentials.endpoint_url
        self._client = lakefs_sdk.ApiClient(configuration)
        self._repositories = lakefs_sdk.RepositoriesApi(self._client)
        self._branches = lakefs_sdk.BranchesApi(self._client)
        self._commits = lakefs_sdk.CommitsApi(self._client)
        self._objects = lakefs_sdk.ObjectsApi(self._client)
        self._refs = lakefs_sdk.RefsApi(self._client)
        self._tags = lakefs_sdk.TagsApi(self._client)
        self._internal = lakefs_sdk.InternalApi(self._client)
        self._staging = lakefs_sdk.StagingApi(self._client)
        self._config = lakefs_sdk.ConfigApi(self._client)
        self._sleep = sleep
        self._metaranges: dict[str, dict[str, str]] = {}
        """Of each repository, commit id to metarange id: what a commit has never changes."""

    def version(self) -> str:
        """The server's version, as it calls itself."""
        config = self._call("read the server's configuration", self._config.get_config)
        return str(config.version_config.version) if config.version_config else "unknown"

    def grace_period_seconds(self) -> int:
        """How long an upload link stays valid, and so how old an object must be to be collected."""
        answer = self._call("read the grace period", self._internal.get_garbage_collection_config)
        if answer.grace_period is None:
            raise IncompleteAnswerError("the server does not say its grace period", remedy="upgrade the lakeFS server")
        return int(answer.grace_period)

    def repository(self, name: str) -> Repository:
        """One repository."""
        return _repository(self._call(f"read repository {name}", self._repositories.get_repository, name))

    def repositories(self) -> Iterator[Repository]:
        """All repositories that the credentials can see."""
        after = ""
        while True:
            page = self._call("list repositories", self._repositories.list_repositories, after=after, amount=1000)
            yield from map(_repository, page.results)
            if not page.pagination.has_more:
                return
            after = _moved("list of repositories", after, page.pagination.next_offset)

    def branch_heads(self, repository: str) -> Iterator[tuple[str, str]]:
        """Name and commit id of every branch, hidden ones included."""
        after = ""
        while True:
            page = self._call(
                f"list branches of {repository}",
                self._branches.list_branches,
                repository,
                after=after,
                amount=1000,
                show_hidden=True,
            )
            yield from ((branch.id, branch.commit_id) for branch in page.results)
            if not page.pagination.has_more:
                return
            after = _moved(f"list of branches of {repository}", after, page.pagination.next_offset)

    def issued_address(self, repository: str, branch: str) -> str:
        """An address that the server gives out for an upload.  Nothing is written; the address is never used."""
        location = self._call(
            f"get an upload address of {repository}",
            self._staging.get_physical_address,
            repository,
            branch,
            "lakefs-gc-asks-for-the-folder",
        )
        return str(location.physical_address or "")

    def changes(self, repository: str, branch: str) -> Iterator[Change]:
        """Every path that a branch shows otherwise than its head does; without those that it deletes.

        Raises ``RepositoryNotFoundError`` only for a branch that the server no longer lists.
        """
        after = ""
        while True:
            with self._proving_absence(repository, branch):
                page = self._call(
                    f"list changes of {branch}",
                    self._branches.diff_branch,
                    repository,
                    branch,
                    after=after,
                    amount=1000,
                )
            for change in page.results:
                if change.type != "removed":
                    if change.size_bytes is None:
                        raise IncompleteAnswerError(f"the change of {change.path} has no size", remedy=_NOT_WHOLE)
                    yield Change(change.path, change.size_bytes)
            if not page.pagination.has_more:
                return
            after = _moved(f"list of changes of {branch}", after, page.pagination.next_offset)

    def tags(self, repository: str) -> Iterator[tuple[str, str]]:
        """Name and commit id of every tag."""
        after = ""
        while True:
            page = self._call(f"list tags of {repository}", self._tags.list_tags, repository, after=after, amount=1000)
            yield from ((tag.id, tag.commit_id) for tag in page.results)
            if not page.pagination.has_more:
                return
            after = _moved(f"list of tags of {repository}", after, page.pagination.next_offset)

    def log_page(self, repository: str, ref: str, *, after: str, amount: int) -> LogPage:
        """Commits that ``ref`` descends from, itself included, from the one ``after`` on."""
        # Parsed here: the SDK's models take ten times as long, and histories are long.
        answer = self._call(
            f"read the log of {ref}",
            self._refs.log_commits_with_http_info,
            repository,
            ref,
            after=after,
            amount=amount,
            _preload_content=False,
        )
        try:
            content = json.loads(answer.raw_data)
            commits = [_commit(item) for item in content["results"]]
            has_more, offset = content["pagination"]["has_more"], content["pagination"]["next_offset"]
        except (ValueError, KeyError, TypeError) as error:
            raise IncompleteAnswerError(
                f"the log of {ref} in {repository} is not what lakeFS answers", remedy=_NOT_WHOLE
            ) from error
        if has_more and (not offset or offset == after):
            raise IncompleteAnswerError(
                f"the log of {ref} in {repository} stands still at {offset!r}", remedy=_NOT_WHOLE
            )
        self._metaranges.setdefault(repository, {}).update((commit.id, commit.meta_range_id) for commit in commits)
        return LogPage(commits, offset if has_more else "")

    def metarange_of(self, repository: str, commit_id: str) -> str:
        """Metarange id of a commit; empty for the first commit of a repository.  Asked for once."""
        known = self._metaranges.setdefault(repository, {})
        if commit_id not in known:
            commit = self._call(f"read commit {commit_id}", self._commits.get_commit, repository, commit_id)
            known[commit_id] = str(commit.meta_range_id)
        return known[commit_id]

    def metaranges_of(self, repository: str, commit_ids: Collection[str]) -> Iterator[tuple[str, str]]:
        """Each commit id and its metarange id, as ``metarange_of`` gives it, in any order."""
        return map_unordered(lambda commit_id: self.metarange_of(repository, commit_id), commit_ids, _CALLS_AT_ONCE)

    def read_object(self, repository: str, ref: str, path: str) -> Iterator[bytes]:
        """The content of an object as the server shows it, in pieces: the SDK holds each answer whole.

        Raises ``RepositoryNotFoundError`` where there is none, and ``ServerError`` (410) where its bytes are gone.
        """
        what = f"read {path} of {ref}"
        size_bytes = self._call(what, self._objects.stat_object, repository, ref, path).size_bytes or 0
        if not size_bytes:  # no range fits; and still, the server has to open the object
            yield bytes(self._call(what, self._objects.get_object, repository, ref, path))
        for start in range(0, size_bytes, _PIECE_BYTES):
            end = min(start + _PIECE_BYTES, size_bytes)
            piece = self._call(what, self._objects.get_object, repository, ref, path, range=f"bytes={start}-{end - 1}")
            yield bytes(piece)

    def shown_address(self, repository: str, branch: str, path: str) -> str:
        """Return the URL of the object that ``branch`` shows at ``path``; empty if it shows none, or is deleted.

        A 404 alone proves nothing: what stands before the server may answer it, too. So the branch is then asked for
        a list of its objects from this path on.
        """
        try:
            stats = self._call(
                f"stat {path} of {branch}", self._objects.stat_object, repository, branch, path, user_metadata=False
            )
        except RepositoryNotFoundError:
            try:
                first = self.shown_objects(repository, branch, 1, prefix=path)
            except RepositoryNotFoundError:  # the branch is deleted: ``shown_objects`` has made sure
                return ""
            return first.get(path, "")
        return str(stats.physical_address)

    def shown_objects(self, repository: str, branch: str, amount: int, *, prefix: str = "") -> dict[str, str]:
        """Return path and URL of the first ``amount`` (up to 1000) objects of ``branch`` whose paths have ``prefix``.

        Raises ``RepositoryNotFoundError`` only for a branch that the server no longer lists.
        """
        with self._proving_absence(repository, branch):
            page = self._call(
                f"list {branch} of {repository}",
                self._objects.list_objects,
                repository,
                branch,
                amount=amount,
                prefix=prefix,
                user_metadata=False,
            )
        return {str(entry.path): str(entry.physical_address) for entry in page.results}

    @contextmanager
    def _proving_absence(self, repository: str, branch: str) -> Iterator[None]:
        """Let a 404 for a branch pass only if the list of branches lacks it (rule 12).

        Raises ``ServerUnavailableError`` for a 404 although the branch exists.
        """
        try:
            yield
        except RepositoryNotFoundError as error:
            listed = self._call(
                f"list branches of {repository} from {branch}",
                self._branches.list_branches,
                repository,
                prefix=branch,
                amount=1,
                show_hidden=True,
            )
            if any(found.id == branch for found in listed.results):
                raise ServerUnavailableError(
                    f"{error.message}, but branch {branch} exists",
                    remedy="check what stands between here and the lakeFS server (proxy, ingress), and start a new run",
                ) from None
            raise

    def retention_rules(self, repository: str) -> GCRules | None:
        """The garbage collection rules; None when none are set: then every commit is active."""
        try:
            # The SDK's own model refuses the null that the server sends for rules without branches.
            answer = self._call(
                f"read the rules of {repository}",
                self._repositories.get_gc_rules_with_http_info,
                repository,
                _preload_content=False,
            )
        except RepositoryNotFoundError:
            # Unset rules and an unknown repository are the same 404: only the repository itself tells them apart.
            self.repository(repository)
            return None
        try:
            return rules_from_api(json.loads(answer.raw_data))
        except (ValueError, ConfigurationError) as error:
            raise IncompleteAnswerError(
                f"the rules of {repository} are not what lakeFS answers", remedy=_NOT_WHOLE
            ) from error

    def prepare_uncommitted(self, repository: str, continuation_token: str = "") -> UncommittedPage:
        """Have the server write one page of its uncommitted addresses."""
        request = lakefs_sdk.PrepareGCUncommittedRequest(continuation_token=continuation_token or None)
        answer = self._call(
            f"prepare uncommitted data of {repository}",
            self._internal.prepare_garbage_collection_uncommitted,
            repository,
            prepare_gc_uncommitted_request=request,
        )
        return UncommittedPage(answer.run_id, answer.gc_uncommitted_location or "", answer.continuation_token or "")

    def prepare_commits(self, repository: str, *, timeout_seconds: float) -> PreparedCommits:
        """Have the server list the active commits: asynchronously, or synchronously on a server without that.

        Raises ``ServerError`` when the server's task fails, and ``ServerUnavailableError`` past ``timeout_seconds``.
        """
        what = f"prepare commits of {repository}"
        try:
            task = self._call(what, self._internal.prepare_garbage_collection_commits_async, repository)
        except ServerError as error:
            # An old server answers the unknown path with 404 (or 405): ask whether the repository itself is there.
            if error.facts.get("status") not in (404, 405, 501):
                raise
            self.repository(repository)
            logger.info("the server has no asynchronous prepare_commits; using the synchronous one")
            return _prepared(self._call(what, self._internal.prepare_garbage_collection_commits, repository))
        waited_seconds, polls = 0.0, 0
        while True:
            status = self._call(what, self._internal.prepare_garbage_collection_commits_status, repository, task.id)
            if status.completed:
                if status.error is not None:
                    raise ServerError(
                        f"{what}: the server's task failed: {status.error.message}",
                        remedy="look at the server's log, and start a new run",
                    )
                if status.result is None:
                    raise IncompleteAnswerError(f"{what}: the server's task ended without a result", remedy=_NOT_WHOLE)
                return _prepared(status.result)
            if waited_seconds > timeout_seconds:
                raise ServerUnavailableError(
                    f"{what}: not finished after {waited_seconds:.0f} s",
                    remedy="look at the server's load, or raise safety.prepare_timeout_hours",
                )
            pause = _POLL_SECONDS[min(polls, len(_POLL_SECONDS) - 1)]
            self._sleep(pause)
            waited_seconds, polls = waited_seconds + pause, polls + 1

    def _call(self, what: str, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        pause = _FIRST_PAUSE_SECONDS
        for attempt in range(1, _TRIES + 1):
            try:
                answer = method(*args, _request_timeout=(_CONNECT_TIMEOUT_SECONDS, _READ_TIMEOUT_SECONDS), **kwargs)
                if answer is None:  # what the SDK makes of a success with a status that the call does not have
                    raise ValueError("no answer")
                return answer
            except ValueError as error:  # pydantic's too
                raise IncompleteAnswerError(
                    f"{what}: {self.endpoint_url} does not answer as lakeFS does ({type(error).__name__})",
                    remedy="check the endpoint, and that the server is lakeFS 1.x",
                ) from error
            except ApiException as error:
                if error.status not in (429, 500, 502, 503, 504) or attempt == _TRIES:
                    _raise_for(what, error)
                problem = f"HTTP {error.status}"
            except urllib3.exceptions.HTTPError as error:
                if attempt == _TRIES:
                    raise ServerUnavailableError(
                        f"{what}: cannot reach lakeFS at {self.endpoint_url}: {_plain(error)}",
                        remedy="check LAKECTL_SERVER_ENDPOINT_URL and that the server runs",
                    ) from None
                problem = type(error).__name__
            logger.warning("%s: %s, try %d of %d", what, problem, attempt, _TRIES)
            self._sleep(pause)
            pause *= 2
        raise AssertionError("unreachable")


def _repository(answer: Any) -> Repository:
    return Repository(
        name=answer.id,
        storage_namespace=answer.storage_namespace,
        storage_id=answer.storage_id or "",
        default_branch=answer.default_branch,
        read_only=bool(answer.read_only),
        created_at=datetime.fromtimestamp(answer.creation_date, UTC),
    )


def _commit(item: dict[str, Any]) -> Commit:
    return Commit(
        id=item["id"],
        parents=tuple(item["parents"] or ()),
        creation_date=datetime.fromtimestamp(item["creation_date"], UTC),
        meta_range_id=item["meta_range_id"],
        version=item.get("version", 1),
    )


def _prepared(answer: Any) -> PreparedCommits:
    if not answer.gc_commits_location:
        raise IncompleteAnswerError("the server prepared commits, but does not say where", remedy=_NOT_WHOLE)
    return PreparedCommits(answer.run_id, answer.gc_commits_location)


def _moved(what: str, after: str, next_offset: str) -> str:
    if not next_offset or next_offset <= after:
        raise IncompleteAnswerError(
            f"{what}: the server says there is more, and starts again at {next_offset!r}", remedy=_NOT_WHOLE
        )
    return next_offset


def _plain(error: urllib3.exceptions.HTTPError) -> str:
    reason = getattr(error, "reason", None) or error
    return f"{type(reason).__name__}"


def _raise_for(what: str, error: ApiException) -> NoReturn:
    message = _message(error)
    facts = {"status": error.status}
    text = f"{what}: lakeFS answered {error.status}: {message}"
    if error.status == 401:
        raise ServerError(text, remedy="check the access key id and the secret access key", **facts) from None
    if error.status == 403 and "read-only" in message:
        raise ReadOnlyRepositoryError(
            text, remedy="garbage collection of a read-only repository is not possible; nothing was done", **facts
        ) from None
    if error.status == 403:
        raise ServerError(
            text, remedy="give the user the lakeFS actions in docs/reference/permissions.md", **facts
        ) from None
    if error.status == 404 and not _is_lakefs_answer(error):
        # Not the server's own answer: whether the thing exists is unknown.
        raise ServerUnavailableError(
            f"{text}, and the answer is not lakeFS's",
            remedy="check LAKECTL_SERVER_ENDPOINT_URL, and the proxy or ingress before the lakeFS server",
            **facts,
        ) from None
    if error.status == 404:
        raise RepositoryNotFoundError(text, remedy="check the repository's name", **facts) from None
    if error.status == 429 or error.status >= 500:
        raise ServerUnavailableError(text, remedy="look at the server's log, and try again", **facts) from None
    raise ServerError(
        text, remedy="look at the server's log, and check that the server is lakeFS 1.x", **facts
    ) from None


def _is_lakefs_answer(error: ApiException) -> bool:
    """Return whether an error has the JSON object with a message that each error of lakeFS's API has."""
    try:
        return isinstance(json.loads(error.body)["message"], str)
    except (TypeError, ValueError, KeyError):
        return False


def _message(error: ApiException) -> str:
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)
