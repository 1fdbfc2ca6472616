"""The calls of the lakeFS API that a collector needs, through the lakeFS SDK, with errors from ``errors``.

Source: lakeFS OpenAPI 1.x (``lakefs-sdk`` 1.88) and recordings of a real server.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any

import urllib3

from lakefs_gc.config import LakeFSSettings, ServerCredentials
from lakefs_gc.errors import ConfigurationError, IncompleteAnswerError, RepositoryNotFoundError, ServerError
from lakefs_gc.formats.gc_rules import GCRules, rules_from_api
from lakefs_gc.lakefs.api_calls import ApiCaller
from lakefs_gc.lakefs.json_gets import JsonGets
from lakefs_gc.lakefs.models import (
    Change,
    LogPage,
    PreparedCommits,
    Repository,
    UncommittedPage,
    about,
    address_of,
    to_change,
    to_commit,
    to_repository,
    to_shown,
)
from lakefs_gc.lakefs.pagination import INCOMPLETE_REMEDY, Page, all_pages, parse_page
from lakefs_gc.lakefs.prepared_commits import prepared_commits
from lakefs_gc.lakefs.proved_absence import proving_absence
from lakefs_gc.lakefs.remembered_list import RememberedList, list_of_branches, list_of_repositories
from lakefs_gc.lakefs.sdk import lakefs_sdk
from lakefs_gc.storage.concurrency import map_unordered

logger = logging.getLogger(__name__)

_PAGE_ITEMS = 1000
_CALLS_AT_ONCE = 16
_CONNECTIONS = 32  # so many threads can call at once without a new connection for each call
_PIECE_BYTES = 8 * 1024**2


class LakeFSClient:
    """A lakeFS server.

    Calls that only read, and the prepare calls (each has its own run), are retried after a broken connection, 429 and
    5xx. Raises ``RepositoryNotFoundError``, ``ReadOnlyRepositoryError``, ``ServerUnavailableError``,
    ``IncompleteAnswerError`` or ``ServerError``.
    """

    def __init__(
        self,
        credentials: ServerCredentials,
        settings: LakeFSSettings | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        configuration = lakefs_sdk.Configuration(
            host=credentials.endpoint_url + "/api/v1",
            username=credentials.access_key_id,
            password=credentials.secret_access_key,
        )
        configuration.retries = urllib3.Retry(0)  # nor redirects: urllib3 would not send the credentials there
        configuration.connection_pool_maxsize = _CONNECTIONS
        self.endpoint_url = credentials.endpoint_url
        self.timeouts_seconds = (settings or LakeFSSettings()).timeouts_seconds
        self._call = ApiCaller(credentials.endpoint_url, self.timeouts_seconds, sleep).call
        self._client = lakefs_sdk.ApiClient(configuration)
        self._gets = JsonGets(
            configuration.host,
            credentials.access_key_id,
            credentials.secret_access_key,
            self._client.user_agent,
            self.timeouts_seconds,
        )
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
        self._repository_list = list_of_repositories(
            lambda: self.repositories(), lambda name: self.repository(name), sleep
        )
        self._branch_lists: dict[str, RememberedList[str]] = {}
        self.absences: Counter[tuple[str, str]] = Counter()
        """For each repository and branch, how often an answer that the branch does not exist was accepted."""
        self._metaranges: dict[str, dict[str, str]] = {}
        """For each repository, commit id to metarange id. The metarange of a commit never changes."""

    def version(self) -> str:
        """Return the server's version."""
        config = self._call("read the server's configuration", self._config.get_config)
        return str(config.version_config.version) if config.version_config else "unknown"

    def grace_period_seconds(self) -> int:
        """Return how long an upload link is valid. An object must be older than that to be a candidate."""
        answer = self._call("read the grace period", self._internal.get_garbage_collection_config)
        if answer.grace_period is None:
            raise IncompleteAnswerError(
                "The server does not report its grace period", remedy="Upgrade the lakeFS server"
            )
        return int(answer.grace_period)

    def repository(self, name: str) -> Repository:
        """Return one repository."""
        what = f"read repository {name}"
        return to_repository(about(name, self._call(what, self._repositories.get_repository, name), what))

    def repositories(self) -> Iterator[Repository]:
        """Return all repositories that the credentials can see."""
        return map(to_repository, self._list("list repositories", self._repositories.list_repositories))

    def other_repositories(self, name: str) -> list[Repository]:
        """Return all repositories that the credentials can see, except the existing repository ``name``.

        Raises ``IncompleteAnswerError`` as ``RememberedList.having`` does.
        """
        return [other for other in self._repository_list.having(name).values() if other.name != name]

    def expect_repositories(self, names: Iterable[str]) -> None:
        """Have ``other_repositories`` refuse a list that lacks one of these, unless it was deleted."""
        self._repository_list.expect(names)

    def branch_heads(self, repository: str) -> Iterator[tuple[str, str]]:
        """Return the name and the commit id of every branch, including hidden branches."""
        what = f"list branches of {repository}"
        branches = self._list(what, self._branches.list_branches, repository, show_hidden=True)
        return ((branch.id, branch.commit_id) for branch in branches)

    def heads_of(self, repository: str, default_branch: str = "") -> dict[str, str]:
        """Return the commit id of every branch by its name. The server is asked for the default branch if it is empty.

        Raises ``IncompleteAnswerError`` for a list without the default branch, and as ``RememberedList.having`` does.
        """
        return self._branch_list(repository).having(default_branch or self.repository(repository).default_branch)

    def expect_branches(self, repository: str, names: Iterable[str]) -> None:
        """Have ``heads_of`` refuse a list that lacks one of these branches, unless it was deleted."""
        self._branch_list(repository).expect(names)

    def known_branches(self, repository: str) -> frozenset[str]:
        """Return the branches that ``heads_of`` has returned or was to expect, except deleted ones."""
        return self._branch_list(repository).names

    def record_heads(self, repository: str) -> set[tuple[str, str]]:
        """Return a set to which ``heads_of`` adds every branch and commit that it sees from now on."""
        return self._branch_list(repository).record()

    def _branch_list(self, repository: str) -> RememberedList[str]:
        def head_of(name: str) -> str:
            what = f"read branch {name}"
            return str(about(name, self._call(what, self._branches.get_branch, repository, name), what).commit_id)

        branches = list_of_branches(repository, lambda: self.branch_heads(repository), head_of, self._sleep)
        return self._branch_lists.setdefault(repository, branches)

    def issued_address(self, repository: str, branch: str) -> str:
        """Return an address that the server issues for an upload. Nothing is written, and the address is never used."""
        location = self._call(
            f"get an upload address of {repository}",
            self._staging.get_physical_address,
            repository,
            branch,
            "lakefs-gc-asks-for-the-folder",
        )
        return str(location.physical_address or "")

    def changes(self, repository: str, branch: str) -> Iterator[Change]:
        """Yield every path at which a branch differs from its head, except the paths that it deletes.

        Raises ``RepositoryNotFoundError`` only for a branch that the server no longer lists.
        """
        what = f"list changes of {branch}"
        for item in self._changes(what, repository, branch):
            if change := to_change(what, item):
                yield change

    def is_change(self, repository: str, branch: str, path: str) -> bool:
        """Return whether the branch differs from its head at exactly this path, and does not delete it."""
        what = f"list changes of {branch}"
        try:
            first = next(self._changes(what, repository, branch, prefix=path), None)
        except RepositoryNotFoundError:  # the branch is deleted
            return False
        change = None if first is None else to_change(what, first)
        return change is not None and change.path == path

    def tags(self, repository: str) -> Iterator[tuple[str, str]]:
        """Return the name and the commit id of every tag."""
        tags = self._list(f"list tags of {repository}", self._tags.list_tags, repository)
        return ((tag.id, tag.commit_id) for tag in tags)

    def log_page(self, repository: str, ref: str, *, after: str, amount: int) -> LogPage:
        """Return commits of the history of ``ref``, which includes ``ref`` itself, that follow the commit ``after``."""
        # Parsed here: the models of the SDK take ten times as long, and histories are long.
        body = self._get(
            f"read the log of {ref}",
            ("repositories", repository, "refs", ref, "commits"),
            partial(self._refs.log_commits_with_http_info, repository, ref),
            after=after,
            amount=amount,
        )
        try:
            content = json.loads(body)
            commits = [to_commit(item) for item in content["results"]]
            has_more, offset = content["pagination"]["has_more"], content["pagination"]["next_offset"]
        except (ValueError, KeyError, TypeError) as error:
            raise IncompleteAnswerError(
                f"The log of {ref} in {repository} is not an answer of lakeFS", remedy=INCOMPLETE_REMEDY
            ) from error
        # Unlike the names of a list, commit ids in a log have no order.
        if has_more and (not offset or offset == after):
            raise IncompleteAnswerError(
                f"The log of {ref} in {repository} does not advance past {offset!r}", remedy=INCOMPLETE_REMEDY
            )
        self._metaranges.setdefault(repository, {}).update((commit.id, commit.meta_range_id) for commit in commits)
        return LogPage(commits, offset if has_more else "")

    def metarange_of(self, repository: str, commit_id: str) -> str:
        """Return the metarange id of a commit, empty for the first commit of a repository. Requests it only once."""
        known = self._metaranges.setdefault(repository, {})
        if commit_id not in known:
            known[commit_id] = str(self._commit(repository, commit_id).meta_range_id)
        return known[commit_id]

    def committer_of(self, repository: str, commit_id: str) -> str:
        """Return who made a commit."""
        return str(self._commit(repository, commit_id).committer)

    def _commit(self, repository: str, commit_id: str) -> Any:
        what = f"read commit {commit_id}"
        return about(commit_id, self._call(what, self._commits.get_commit, repository, commit_id), what)

    def metaranges_of(self, repository: str, commit_ids: Collection[str]) -> Iterator[tuple[str, str]]:
        """Return each commit id with its metarange id, as ``metarange_of`` returns it, in any order."""
        known = self._metaranges.setdefault(repository, {})
        unknown = [commit_id for commit_id in commit_ids if commit_id not in known]
        # Known ones without threads: a mark has read the logs, so it knows all, and threads would only delay them.
        yield from [(commit_id, known[commit_id]) for commit_id in commit_ids if commit_id in known]
        yield from map_unordered(lambda commit_id: self.metarange_of(repository, commit_id), unknown, _CALLS_AT_ONCE)

    def read_object(self, repository: str, ref: str, path: str, piece_bytes: int = _PIECE_BYTES) -> Iterator[bytes]:
        """Yield the content of an object as the server returns it, in pieces: the SDK holds each answer in memory.

        Raises ``RepositoryNotFoundError`` if the object does not exist, and ``ServerError`` (410) if its bytes are
        gone.
        """
        what = f"read {path} of {ref}"
        size_bytes = self._call(what, self._objects.stat_object, repository, ref, path).size_bytes or 0
        if not size_bytes:  # no range is valid for an empty object, but the server must still open it
            yield bytes(self._call(what, self._objects.get_object, repository, ref, path))
        for start in range(0, size_bytes, piece_bytes):
            end = min(start + piece_bytes, size_bytes)
            piece = self._call(what, self._objects.get_object, repository, ref, path, range=f"bytes={start}-{end - 1}")
            yield bytes(piece)

    def shown_address(self, repository: str, branch: str, path: str) -> str:
        """Return the URL of the object that ``branch`` shows at ``path``. Empty if it shows none, or is deleted.

        A 404 alone proves nothing, because a proxy in front of the server may answer it, too. So the objects of the
        branch are then listed from this path on. Raises ``IncompleteAnswerError`` for an answer without an address, or
        about another path, which a cache may give.
        """
        what = f"stat {path} of {branch}"
        try:
            stats = self._call(what, self._objects.stat_object, repository, branch, path, user_metadata=False)
        except RepositoryNotFoundError:
            try:
                first = self.shown_objects(repository, branch, 1, prefix=path)
            except RepositoryNotFoundError:  # the branch is deleted: ``shown_objects`` has proved it
                return ""
            return first.get(path, "")
        if str(stats.path) != path:
            raise IncompleteAnswerError(f"{what}: the answer is about {stats.path}", remedy=INCOMPLETE_REMEDY)
        return address_of(stats, what)

    def shown_objects(self, repository: str, branch: str, amount: int, *, prefix: str = "") -> dict[str, str]:
        """Return path and URL of the first ``amount`` (up to 1000) objects of ``branch`` whose paths have ``prefix``.

        Raises ``RepositoryNotFoundError`` only for a branch that the server no longer lists.
        """
        return self.shown_page(repository, branch, amount, prefix=prefix)[0]

    def shown_page(
        self, repository: str, branch: str, amount: int, *, prefix: str = "", after: str = ""
    ) -> tuple[dict[str, str], bool]:
        """Return path and URL of objects of ``branch`` in the order of their paths, and whether more follow.

        Up to ``amount`` (at most 1000) paths that have ``prefix`` and come after ``after``. Raises
        ``RepositoryNotFoundError`` only for a branch that the server no longer lists. The server fails for the whole
        page if it cannot read the address of one object.
        """
        what = f"list {branch} of {repository}"
        with proving_absence(self._call, self._branches, repository, branch, self.absences):
            body = self._get(
                what,
                ("repositories", repository, "refs", branch, "objects", "ls"),
                partial(self._objects.list_objects_with_http_info, repository, branch),
                amount=amount,
                prefix=prefix,
                after=after,
                user_metadata=False,
            )
        page = parse_page(what, body)
        return dict(to_shown(what, item) for item in page.results), page.pagination.has_more

    def retention_rules(self, repository: str) -> GCRules | None:
        """Return the garbage collection rules. None if none are set: then every commit is active."""
        try:
            # The SDK's own model refuses the null that the server sends for rules without branches.
            answer = self._call(
                f"read the rules of {repository}",
                self._repositories.get_gc_rules_with_http_info,
                repository,
                _preload_content=False,
            )
        except RepositoryNotFoundError:
            # The server answers the same 404 for missing rules and for an unknown repository.
            self.repository(repository)
            return None
        try:
            return rules_from_api(json.loads(answer.raw_data))
        except (ValueError, ConfigurationError) as error:
            raise IncompleteAnswerError(
                f"The rules of {repository} are not an answer of lakeFS", remedy=INCOMPLETE_REMEDY
            ) from error

    def metadata_file(self, repository: str, name: str) -> bytes | None:
        """Return the file ``name`` below ``_lakefs/``, as the server reads it in its store. None if it has none.

        Raises ``ServerError`` (404) if the server does not have the call: lakeFS before 1.25.
        """
        try:
            return bytes(self._call(f"read {name}", self._internal.get_metadata_object, repository, name, "range"))
        except ServerError as error:
            if error.facts.get("status") != 410:
                raise
            return None

    def prepare_uncommitted(self, repository: str, continuation_token: str = "") -> UncommittedPage:
        """Have the server write one page of its uncommitted addresses."""
        request = lakefs_sdk.PrepareGCUncommittedRequest(continuation_token=continuation_token or None)
        requests = 0

        def send(**timeout: Any) -> Any:
            nonlocal requests
            requests += 1
            return self._internal.prepare_garbage_collection_uncommitted(
                repository, prepare_gc_uncommitted_request=request, **timeout
            )

        answer = self._call(f"prepare uncommitted data of {repository}", send)
        folder, token = answer.gc_uncommitted_location or "", answer.continuation_token or ""
        return UncommittedPage(answer.run_id, folder, token, requests)

    def prepare_commits(self, repository: str, *, timeout_seconds: float) -> PreparedCommits:
        """Have the server list the active commits: asynchronously, or synchronously if the server has only that.

        Raises ``ServerError`` when the server's task fails, and ``ServerUnavailableError`` after ``timeout_seconds``.
        """
        return prepared_commits(
            self._call,
            self._internal,
            repository,
            refuse_missing=lambda: self.repository(repository),
            timeout_seconds=timeout_seconds,
            sleep=self._sleep,
        )

    def _list(self, what: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Return all results of a call that lists page by page."""
        return all_pages(what, lambda after: self._call(what, method, *args, after=after, amount=_PAGE_ITEMS, **kwargs))

    def _changes(self, what: str, repository: str, branch: str, prefix: str = "") -> Iterator[dict[str, Any]]:
        """Yield the changes of a branch at paths with ``prefix``, as the server's JSON. Raises as ``changes`` does."""
        path = ("repositories", repository, "branches", branch, "diff")
        by_sdk = partial(self._branches.diff_branch_with_http_info, repository, branch)

        def read_page(after: str) -> Page:
            return parse_page(what, self._get(what, path, by_sdk, after=after, amount=_PAGE_ITEMS, prefix=prefix))

        with proving_absence(self._call, self._branches, repository, branch, self.absences):
            yield from all_pages(what, read_page)

    def _get(self, what: str, path: tuple[str, ...], by_sdk: Callable[..., Any], **query: str | int | bool) -> bytes:
        """Return the body of an answer. ``by_sdk`` sends the request if ``JsonGets`` cannot."""
        texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}

        def get(**options: Any) -> bytes:
            body = self._gets.get(path, texts)
            return by_sdk(_preload_content=False, **query, **options).raw_data if body is None else body

        return self._call(what, get)
