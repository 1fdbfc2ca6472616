"""Repositories, branches, tags and commit records, and the resolution of expressions such as ``main~2``."""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from lakefs_gc.sandbox.problems import ApiError, NotFound
from lakefs_gc.sandbox.state.database import Database
from lakefs_gc.sandbox.versions.commit_id import commit_id

_VALID_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9-]{2,62}")
_VALID_BRANCH = re.compile(r"\w[-\w]*", re.ASCII)
_HASH = re.compile(r"[a-fA-F0-9]{1,64}")
_COMMIT_ID_CHARACTERS = 64
_KNOWN_COMMITS = 50_000
_MODIFIER = re.compile(r"[~^@$][^~^@$]*")


@dataclass(frozen=True)
class Repository:
    """A repository. ``storage_namespace`` is as its creator spelled it, ``creation_date`` in seconds since 1970."""

    name: str
    storage_namespace: str
    default_branch: str
    creation_date: int
    read_only: bool
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """Return the namespace with exactly one final slash, so that it is a prefix only of its own content."""
        return self.storage_namespace.rstrip("/") + "/"


@dataclass(frozen=True)
class Branch:
    """A branch. Its staging area consists of the layers of ``tokens``, the newest first.

    A commit *seals* the current token. Uploads then use a new token, while the sealed layers are written to ranges.
    """

    name: str
    commit_id: str
    staging_token: str
    sealed_tokens: tuple[str, ...] = ()
    hidden: bool = False

    @property
    def tokens(self) -> tuple[str, ...]:
        """Return all layers of the staging area, the newest first."""
        return (self.staging_token, *self.sealed_tokens)

    def sealed(self) -> Branch:
        """Return the branch with a new empty layer on top."""
        return replace(self, staging_token=new_staging_token(self.name), sealed_tokens=self.tokens)


@dataclass(frozen=True)
class CommitRecord:
    """A commit. ``creation_date`` in seconds since 1970; ``meta_range_id`` is empty for a repository's first commit."""

    id: str
    parents: tuple[str, ...]
    committer: str
    message: str
    creation_date: int
    meta_range_id: str
    metadata: dict[str, str]
    generation: int
    version: int = 1


@dataclass(frozen=True)
class Resolved:
    """The meaning of a ref expression: a commit, and the branch with a staging area on top of it, if any."""

    commit_id: str
    branch: Branch | None = None
    staging_only: bool = False


def new_staging_token(branch: str) -> str:
    """Return a new unique name for a layer of a staging area."""
    return f"{branch}:{secrets.token_hex(16)}"


def new_commit(
    parents: tuple[str, ...],
    *,
    committer: str,
    message: str,
    creation_date: int,
    meta_range_id: str,
    metadata: dict[str, str],
    generation: int,
) -> CommitRecord:
    """Return a commit record with the id that results from its content."""
    identity = commit_id(
        committer=committer,
        message=message,
        meta_range_id=meta_range_id,
        creation_date=creation_date,
        metadata=metadata,
        parents=parents,
    )
    return CommitRecord(identity, parents, committer, message, creation_date, meta_range_id, metadata, generation)


def is_repository_name(name: str) -> bool:
    """Return whether lakeFS accepts the name of a repository."""
    return _VALID_REPOSITORY.fullmatch(name) is not None


def is_branch_name(name: str) -> bool:
    """Return whether lakeFS accepts the name of a branch."""
    return _VALID_BRANCH.fullmatch(name) is not None


def is_tag_name(name: str) -> bool:
    """Return whether lakeFS accepts the name of a tag: git's rules, without the slash."""
    return (
        name != "@"
        and not name.endswith((".", ".lock"))
        and not any(part in name for part in ("..", "/", "@{"))
        and not any(character <= " " or character in "^:?*[\\" for character in name)
    )


class Refs:
    """Everything with a name or an id, in all repositories. Lists are sorted by the bytes of the names."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Each page of a log walks all pages before it. A commit never changes, and only with its repository it ends.
        self._known_commits: dict[tuple[str, str], CommitRecord] = {}

    # -- repositories

    def repository(self, name: str) -> Repository:
        """Raise ``NotFound``."""
        row = self._row("SELECT * FROM repositories WHERE name = ?", name)
        if row is None:
            raise NotFound("repository")
        return _repository(row)

    def repositories(self) -> list[Repository]:
        """Return all repositories."""
        return [_repository(row) for row in self._rows("SELECT * FROM repositories ORDER BY name")]

    def add_repository(self, repository: Repository) -> None:
        """Store a new repository, without branches and commits."""
        with self._database.write() as connection:
            connection.execute(
                "INSERT INTO repositories VALUES (?, ?, ?, ?, ?, ?)",
                (
                    repository.name,
                    repository.storage_namespace,
                    repository.default_branch,
                    repository.creation_date,
                    repository.read_only,
                    json.dumps(repository.metadata),
                ),
            )

    def set_metadata(self, name: str, metadata: dict[str, str]) -> None:
        """Replace a repository's metadata."""
        with self._database.write() as connection:
            connection.execute("UPDATE repositories SET metadata = ? WHERE name = ?", (json.dumps(metadata), name))

    def delete_repository(self, name: str) -> None:
        """Delete a repository and everything that belongs to it. As in lakeFS, its objects stay in the store."""
        with self._database.write() as connection:
            for branch in self.branches(name):
                _drop_tokens(connection, branch.tokens)
            for table in ("branches", "tags", "commits", "link_tokens", "copies", "tasks"):
                connection.execute(f"DELETE FROM {table} WHERE repository = ?", (name,))
            connection.execute("DELETE FROM repositories WHERE name = ?", (name,))
        self._known_commits = {}  # another one, because a thread may still add what it read before

    # -- branches

    def branch(self, repository: str, name: str) -> Branch:
        """Raise ``NotFound``."""
        row = self._row("SELECT * FROM branches WHERE repository = ? AND name = ?", repository, name)
        if row is None:
            raise NotFound("branch")
        return _branch(row)

    def branches(self, repository: str) -> list[Branch]:
        """Return all branches, including hidden ones."""
        query = "SELECT * FROM branches WHERE repository = ? ORDER BY name"
        return [_branch(row) for row in self._rows(query, repository)]

    def put_branch(self, repository: str, branch: Branch) -> None:
        """Create a branch or replace it."""
        values = (repository, branch.name, branch.commit_id, branch.staging_token)
        with self._database.write() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO branches VALUES (?, ?, ?, ?, ?, ?)",
                (*values, json.dumps(branch.sealed_tokens), branch.hidden),
            )

    def update_branch(self, repository: str, name: str, change: Callable[[Branch], Branch]) -> Branch:
        """Read, change and store a branch in one transaction. Drop the layers that it no longer has."""
        with self._database.write() as connection:
            before = self.branch(repository, name)
            after = change(before)
            self.put_branch(repository, after)
            _drop_tokens(connection, tuple(set(before.tokens) - set(after.tokens)))
        return after

    def delete_branch(self, repository: str, name: str) -> None:
        """Delete a branch and its staged changes. Its commits become dangling. Raise ``NotFound``."""
        with self._database.write() as connection:
            branch = self.branch(repository, name)
            connection.execute("DELETE FROM branches WHERE repository = ? AND name = ?", (repository, name))
            _drop_tokens(connection, branch.tokens)

    # -- tags

    def tag(self, repository: str, name: str) -> str:
        """Return the commit of a tag. Raise ``NotFound``."""
        row = self._row("SELECT commit_id FROM tags WHERE repository = ? AND name = ?", repository, name)
        if row is None:
            raise NotFound("tag")
        return str(row["commit_id"])

    def tags(self, repository: str) -> list[tuple[str, str]]:
        """Yield the name and the commit of each tag."""
        rows = self._rows("SELECT * FROM tags WHERE repository = ? ORDER BY name", repository)
        return [(row["name"], row["commit_id"]) for row in rows]

    def put_tag(self, repository: str, name: str, commit: str) -> None:
        """Create a tag."""
        with self._database.write() as connection:
            connection.execute("INSERT INTO tags VALUES (?, ?, ?)", (repository, name, commit))

    def delete_tag(self, repository: str, name: str) -> None:
        """Raise ``NotFound``."""
        with self._database.write() as connection:
            self.tag(repository, name)
            connection.execute("DELETE FROM tags WHERE repository = ? AND name = ?", (repository, name))

    # -- commits

    def commit(self, repository: str, commit: str) -> CommitRecord:
        """Return the commit with this complete id. Raise ``NotFound``."""
        known, key = self._known_commits, (repository, commit)
        if key in known:
            return known[key]
        row = self._row("SELECT * FROM commits WHERE repository = ? AND id = ?", *key)
        if row is None:
            raise NotFound("commit")
        if len(known) >= _KNOWN_COMMITS:
            self._known_commits = known = {}
        record = _commit(row)
        if not self._database.connection.in_transaction:  # it may be rolled back
            known[key] = record
        return record

    def has_commit(self, repository: str, commit: str) -> bool:
        """Return whether a commit with this complete id exists."""
        return self._row("SELECT 1 FROM commits WHERE repository = ? AND id = ?", repository, commit) is not None

    def commits(self, repository: str) -> Iterator[CommitRecord]:
        """Yield all commits of a repository, in the order of their ids."""
        query = "SELECT * FROM commits WHERE repository = ? ORDER BY id"
        return (_commit(row) for row in self._rows(query, repository))

    def add_commit(self, repository: str, commit: CommitRecord) -> None:
        """Store a commit record. An existing record with the same id has the same content, and is kept."""
        values: dict[str, Any] = {
            "repository": repository,
            **vars(commit),
            "parents": json.dumps(commit.parents),
            "metadata": json.dumps(commit.metadata),
        }
        columns = ", ".join(values)
        places = ", ".join(f":{name}" for name in values)
        with self._database.write() as connection:
            connection.execute(f"INSERT OR IGNORE INTO commits ({columns}) VALUES ({places})", values)

    # -- expressions

    def resolve(self, repository: str, expression: str) -> Resolved:
        """Resolve ``expression``: a commit id or its beginning, a branch or a tag, followed by ``~n``, ``^n``,
        ``@`` (the branch's HEAD, without its staging area) or ``$`` (the staging area).

        Raise ``NotFound``, or ``ApiError`` 400 for an invalid expression.
        """
        base = re.split(r"[~^@$]", expression, maxsplit=1)[0]
        modifiers = _MODIFIER.findall(expression[len(base) :])
        if not base or re.search(r"\s", expression):
            raise _invalid_ref()
        resolved = self._resolve_name(repository, base)
        if not modifiers:
            return resolved
        if modifiers[0][0] in "@$":
            if resolved.branch is None or len(modifiers) > 1 or len(modifiers[0]) > 1:
                raise _invalid_ref()
            if modifiers[0] == "@":
                return Resolved(resolved.commit_id)
            return replace(resolved, staging_only=True)
        commit = resolved.commit_id
        for modifier in modifiers:
            commit = self._ancestor(repository, commit, modifier)
        return Resolved(commit)

    def resolve_commit(self, repository: str, expression: str) -> CommitRecord:
        """Return the commit of an expression; for a branch, its HEAD."""
        resolved = self.resolve(repository, expression)
        if resolved.staging_only:
            raise ApiError(400, f"reference '{expression}': reference to staging area with $ is not a commit")
        return self.commit(repository, resolved.commit_id)

    def _resolve_name(self, repository: str, name: str) -> Resolved:
        # A complete commit id takes precedence over a branch or tag of that name, a prefix does not.
        if len(name) == _COMMIT_ID_CHARACTERS and _HASH.fullmatch(name) and self.has_commit(repository, name):
            return Resolved(name)
        row = self._row("SELECT * FROM branches WHERE repository = ? AND name = ?", repository, name)
        if row is not None:
            branch = _branch(row)
            return Resolved(branch.commit_id, branch)
        row = self._row("SELECT commit_id FROM tags WHERE repository = ? AND name = ?", repository, name)
        if row is not None:
            return Resolved(str(row["commit_id"]))
        if _HASH.fullmatch(name):
            query = "SELECT id FROM commits WHERE repository = ? AND id >= ? AND id < ? LIMIT 2"
            rows = self._rows(query, repository, name.lower(), name.lower() + "g")
            if len(rows) == 1:
                return Resolved(str(rows[0]["id"]))
        raise NotFound

    def _ancestor(self, repository: str, commit: str, modifier: str) -> str:
        kind, amount = modifier[0], modifier[1:] or "1"
        if kind not in "~^":
            raise _invalid_ref()
        if not amount.isdecimal():
            raise ApiError(400, f"could not parse modifier {modifier}: ref: invalid value: validation error")
        if kind == "~":
            for _ in range(int(amount)):
                parents = self.commit(repository, commit).parents
                if not parents:
                    raise NotFound
                commit = parents[0]
            return commit
        if int(amount) == 0:
            return commit
        parents = self.commit(repository, commit).parents
        if int(amount) > len(parents):
            raise _invalid_ref()
        return parents[int(amount) - 1]

    def _row(self, query: str, *values: str) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._database.connection.execute(query, values).fetchone()
        return row

    def _rows(self, query: str, *values: str) -> list[sqlite3.Row]:
        return self._database.connection.execute(query, values).fetchall()


def _invalid_ref() -> ApiError:
    return ApiError(400, "ref: invalid value: validation error")


def _drop_tokens(connection: sqlite3.Connection, tokens: tuple[str, ...]) -> None:
    connection.executemany("DELETE FROM staged WHERE token = ?", [(token,) for token in tokens])


def _repository(row: sqlite3.Row) -> Repository:
    return Repository(
        row["name"],
        row["storage_namespace"],
        row["default_branch"],
        row["creation_date"],
        bool(row["read_only"]),
        json.loads(row["metadata"]),
    )


def _branch(row: sqlite3.Row) -> Branch:
    sealed = tuple(json.loads(row["sealed_tokens"]))
    return Branch(row["name"], row["commit_id"], row["staging_token"], sealed, bool(row["hidden"]))


def _commit(row: sqlite3.Row) -> CommitRecord:
    return CommitRecord(
        id=row["id"],
        parents=tuple(json.loads(row["parents"])),
        committer=row["committer"],
        message=row["message"],
        creation_date=row["creation_date"],
        meta_range_id=row["meta_range_id"],
        metadata=json.loads(row["metadata"]),
        generation=row["generation"],
        version=row["version"],
    )
