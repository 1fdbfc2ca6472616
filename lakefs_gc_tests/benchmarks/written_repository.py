"""A repository of any size that is written to a lakeFS server through its API, with a known number of garbage objects.

Half of the garbage was overwritten before a commit. The other half was committed on old branches, whose commits have
expired by the retention rule of 30 days, and was deleted before their newest commit. A repository is written once: its
name says its shape, and its last change is the tag ``written``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import urllib3

from lakefs_gc.config import ServerCredentials
from lakefs_gc.errors import ConfigurationError, ServerError

_MAIN, _COMPLETE = "main", "written"
_RETENTION_DAYS = 30
_DAY_SECONDS = 86_400
# When the commits of a branch begin, in days ago. The first commit of main is older than all others.
_FIRST_DAYS, _OLD_DAYS, _MAIN_DAYS, _NEW_DAYS = 90, 60, 20, 10
_OLD_BRANCHES = 10
"""One of so many branches is old: all its commits except the newest have expired."""
_MAIN_SHARE = 0.1
"""The share of the committed objects that is on main, and so in a range of each branch."""
_THREADS = 32
_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class WrittenShape:
    """The numbers of a repository. ``objects`` includes the staged and the garbage objects."""

    objects: int
    branches: int
    commits: int
    staged: int
    garbage: int

    def __post_init__(self) -> None:
        if min(self.objects, self.staged, self.garbage) < 0 or self.branches < 1:
            raise ConfigurationError(f"Impossible shape: {self}", remedy="Pass numbers of 0 or more, and a branch")
        if self.commits < self.branches or self.committed < self.commits:
            raise ConfigurationError(
                f"Impossible shape: {self}",
                remedy="Pass at least a commit for each branch, and an object for each commit that is neither staged "
                "nor garbage",
            )

    @property
    def committed(self) -> int:
        """Return the number of objects that active commits contain."""
        return self.objects - self.staged - self.garbage

    def name(self, prefix: str) -> str:
        """Return the name of a repository of this shape."""
        return f"{prefix}-{self.objects}-{self.branches}-{self.commits}-{self.staged}-{self.garbage}"


@dataclass
class _Commit:
    """What happens on a branch up to one commit. ``overwritten`` are paths that are uploaded twice."""

    at_seconds: int
    uploads: list[str] = field(default_factory=list)
    overwritten: list[str] = field(default_factory=list)
    deletes: list[str] = field(default_factory=list)


@dataclass
class _Branch:
    """An old branch begins at the first commit of main, because later commits are newer than its own."""

    name: str
    is_old: bool
    commits: list[_Commit]
    staged: list[str] = field(default_factory=list)


def write_repository(
    credentials: ServerCredentials,
    shape: WrittenShape,
    prefix: str,
    namespace_root: str,
    *,
    note: Callable[[str], None] = lambda text: None,
) -> str:
    """Write the repository at ``namespace_root/<name>`` unless the server has it, and return its name.

    Raise ``ConfigurationError`` if the server has an unfinished one.
    """
    name = shape.name(prefix)
    with _Writer(credentials, name) as writer:
        if writer.exists():
            if not writer.is_complete():
                raise ConfigurationError(
                    f"Repository {name} exists, but was not written completely",
                    remedy="Delete it, or pass another prefix: --set prefix=NAME",
                )
            return name
        note(f"writing {name}: {shape.objects:,} objects")
        writer.write(namespace_root, plan(shape, int(time.time())))
    return name


def plan(shape: WrittenShape, now_seconds: int) -> list[_Branch]:
    """Return what is written: main first, then the branches that begin at it."""
    branches = [
        _Branch(
            _MAIN if number == 0 else f"branch-{number:05}", _is_old(shape, number), _dated(shape, number, now_seconds)
        )
        for number in range(shape.branches)
    ]
    on_main = shape.committed if shape.branches == 1 else max(_commits_of(shape, 0), int(shape.committed * _MAIN_SHARE))
    on_others = shape.committed - on_main
    _spread(branches[0].commits, on_main)
    if others := branches[1:]:
        _spread([commit for branch in others for commit in branch.commits], on_others)
    old = [branch for branch in branches if branch.is_old]
    expired = shape.garbage // 2 if old else 0
    for branch, share in zip(old, _shares(expired, len(old)), strict=True):
        paths = [f"expired/{number:07}" for number in range(share)]
        branch.commits[0].uploads += paths
        branch.commits[-1].deletes += paths
    # Each of these paths has a live object, too: one of those that are committed above.
    last_commits = [branch.commits[-1] for branch in branches]
    remaining = shape.garbage - expired
    for commit, share in zip(last_commits, _shares(remaining, len(last_commits)), strict=True):
        commit.overwritten += [path for _, path in zip(range(share), _again(commit.uploads), strict=False)]
    for branch, share in zip(branches, _shares(shape.staged, len(branches)), strict=True):
        branch.staged = [f"staged/{number:07}" for number in range(share)]
    return branches


def _commits_of(shape: WrittenShape, number: int) -> int:
    return _shares(shape.commits, shape.branches)[number]


def _is_old(shape: WrittenShape, number: int) -> bool:
    return number % _OLD_BRANCHES == 1 and _commits_of(shape, number) > 1


def _dated(shape: WrittenShape, number: int, now_seconds: int) -> list[_Commit]:
    days = _MAIN_DAYS if number == 0 else _OLD_DAYS if _is_old(shape, number) else _NEW_DAYS
    begin = now_seconds - days * _DAY_SECONDS
    commits = [_Commit(begin + 60 * position) for position in range(_commits_of(shape, number))]
    if number == 0:
        commits[0].at_seconds = now_seconds - _FIRST_DAYS * _DAY_SECONDS
    return commits


def _spread(commits: list[_Commit], objects: int) -> None:
    for position, (commit, share) in enumerate(zip(commits, _shares(objects, len(commits)), strict=True)):
        commit.uploads += [f"kept/{position:05}/{number:07}" for number in range(share)]


def _shares(total: int, parts: int) -> list[int]:
    """Return ``parts`` numbers that differ by one at most; their sum is ``total``."""
    return [total * (part + 1) // parts - total * part // parts for part in range(parts)]


def _again(paths: list[str]) -> Iterable[str]:
    while paths:
        yield from paths


class _Writer:
    """Writes one repository with many threads: some for branches, some for their objects."""

    def __init__(self, credentials: ServerCredentials, name: str) -> None:
        self.name = name
        self._url = f"{credentials.endpoint_url}/api/v1/repositories"
        self._pool = urllib3.PoolManager(
            maxsize=2 * _THREADS,
            timeout=_TIMEOUT_SECONDS,
            # An upload that is sent twice could add a garbage object.
            retries=False,
            headers=urllib3.make_headers(basic_auth=f"{credentials.access_key_id}:{credentials.secret_access_key}"),
        )
        self._branches = ThreadPoolExecutor(_THREADS, thread_name_prefix="branch")
        self._objects = ThreadPoolExecutor(_THREADS, thread_name_prefix="object")
        self._failure: Exception | None = None

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *failure: object) -> None:
        self._branches.shutdown(cancel_futures=True)
        self._objects.shutdown(cancel_futures=True)
        self._pool.clear()

    def exists(self) -> bool:
        return self._call("GET", f"/{self.name}", missing=True) is not None

    def is_complete(self) -> bool:
        return self._call("GET", f"/{self.name}/tags/{_COMPLETE}", missing=True) is not None

    def write(self, namespace_root: str, branches: list[_Branch]) -> None:
        namespace = f"{namespace_root.rstrip('/')}/{self.name}"
        body = {"name": self.name, "storage_namespace": namespace, "default_branch": _MAIN}
        self._call("POST", "", body)
        rules = {"default_retention_days": _RETENTION_DAYS, "branches": []}
        self._call("PUT", f"/{self.name}/settings/gc_rules", rules)
        main, others = branches[0], branches[1:]
        first = self._write_commits(main.name, main.commits[:1])
        head = self._write_commits(main.name, main.commits[1:]) or first
        _wait_for(
            self._branches.submit(self._write_branch, branch, first if branch.is_old else head) for branch in others
        )
        self._upload(main.name, main.staged)
        self._call("POST", f"/{self.name}/tags", {"id": _COMPLETE, "ref": _MAIN})

    def _write_branch(self, branch: _Branch, source: str) -> None:
        self._call("POST", f"/{self.name}/branches", {"name": branch.name, "source": source})
        self._write_commits(branch.name, branch.commits)
        self._upload(branch.name, branch.staged)

    def _write_commits(self, branch: str, commits: list[_Commit]) -> str:
        """Return the id of the last commit."""
        commit_id = ""
        for commit in commits:
            for number, round_of_garbage in enumerate(_rounds(commit.overwritten)):
                self._upload(branch, round_of_garbage, f" before {number}")
            self._upload(branch, commit.uploads)
            for begin in range(0, len(commit.deletes), 1000):
                paths = {"paths": commit.deletes[begin : begin + 1000]}
                answer = self._call("POST", f"/{self.name}/branches/{branch}/objects/delete", paths)
                if answer and answer.get("errors"):
                    raise ServerError(f"cannot delete paths of {branch}: {answer['errors'][0]}")
            body = {"message": f"commit {commit.at_seconds}", "date": commit.at_seconds}
            commit_id = str(self._call("POST", f"/{self.name}/branches/{branch}/commits", body)["id"])
        return commit_id

    def _upload(self, branch: str, paths: list[str], when: str = "") -> None:
        # An object with the content of the one that replaced it could be a hidden twin on every branch.
        _wait_for(self._objects.submit(self._upload_one, branch, path, when) for path in paths)

    def _upload_one(self, branch: str, path: str, when: str) -> None:
        content = f"{self.name} {branch} {path}{when}\n".encode()
        self._call("POST", f"/{self.name}/branches/{branch}/objects?path={quote(path)}", content)

    def _call(self, method: str, path: str, body: Any = None, *, missing: bool = False) -> Any:
        """Return the parsed answer, or None for 404 with ``missing``."""
        if self._failure:  # all threads end with the first error
            raise self._failure
        is_object = isinstance(body, bytes)
        headers = {"Content-Type": "application/octet-stream" if is_object else "application/json"}
        content = body if is_object else None if body is None else json.dumps(body).encode()
        try:
            answer = self._pool.request(
                method, self._url + path, body=content, headers={**self._pool.headers, **headers}
            )
            if missing and answer.status == 404:
                return None
            if answer.status >= 300:
                raise ServerError(f"{method} {path}: {answer.status} {answer.data[:300].decode(errors='replace')}")
            is_json = "json" in answer.headers.get("Content-Type", "")  # a new branch is answered with plain text
            return json.loads(answer.data) if is_json and answer.data else None
        except urllib3.exceptions.HTTPError as error:
            self._failure = ServerError(f"{method} {path}: {error}")
            raise self._failure from error
        except ServerError as error:
            self._failure = error
            raise


def _rounds(paths: list[str]) -> list[list[str]]:
    """Return the paths in lists that contain none twice: each path is overwritten as often as it is in ``paths``."""
    rounds: list[list[str]] = []
    seen: dict[str, int] = {}
    for path in paths:
        number = seen[path] = seen.get(path, -1) + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(path)
    return rounds


def _wait_for(futures: Iterable[Future[None]]) -> None:
    """Wait for all, and raise the first error."""
    for future in list(futures):
        future.result()
