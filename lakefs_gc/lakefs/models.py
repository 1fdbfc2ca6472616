"""The answers of the lakeFS server that a collector needs, parsed from JSON and from the models of the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lakefs_gc.errors import IncompleteAnswerError
from lakefs_gc.lakefs.active_commits import Commit
from lakefs_gc.lakefs.pagination import INCOMPLETE_REMEDY

Heads = Mapping[str, str]
"""Branch to commit id."""


@dataclass(frozen=True)
class Repository:
    """A repository. ``storage_namespace`` is as the server returns it, with or without a slash at the end.

    ``created_at`` is UTC, to the second.
    """

    name: str
    storage_namespace: str
    storage_id: str
    default_branch: str
    read_only: bool
    created_at: datetime

    @property
    def identity(self) -> str:
        """What tells a repository from a later one of the same name."""
        return f"{self.storage_namespace} {self.created_at.isoformat()}"


@dataclass(frozen=True)
class Change:
    """A path that a branch has staged an object for, and the size of that object."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class LogPage:
    """Some commits of a history, newest first. ``next_offset`` is empty on the last page."""

    commits: list[Commit]
    next_offset: str


@dataclass(frozen=True)
class UncommittedPage:
    """One answer of prepare_uncommited. ``location`` is empty when nothing is staged on this page.

    ``requests``: how many it took. The server may have written a file for each of them.
    """

    run_id: str
    location: str
    continuation_token: str
    requests: int = 1


@dataclass(frozen=True)
class PreparedCommits:
    """The active commits that the server prepared: a run id, and the URL of the CSV file."""

    run_id: str
    location: str


_CHANGE_TYPES = ("added", "removed", "changed", "conflict", "prefix_changed")


def to_change(what: str, item: dict[str, Any]) -> Change | None:
    """Return a change from its JSON, None for a path that the branch deletes.

    Raises ``IncompleteAnswerError`` for a change without a path, a size or a known type.
    """
    change_type, path, size_bytes = item.get("type"), item.get("path"), item.get("size_bytes")
    if change_type not in _CHANGE_TYPES or not isinstance(path, str):
        raise IncompleteAnswerError(f"{what}: an unknown type of change, or no path", remedy=INCOMPLETE_REMEDY)
    if change_type == "removed":
        return None
    if type(size_bytes) is not int:
        raise IncompleteAnswerError(f"The change of {path} has no size", remedy=INCOMPLETE_REMEDY)
    return Change(path, size_bytes)


def to_shown(what: str, item: dict[str, Any]) -> tuple[str, str]:
    """Return path and URL of an object that a branch shows, from its JSON.

    Raises ``IncompleteAnswerError`` for an object without a path or an address.
    """
    path, url = item.get("path"), item.get("physical_address")
    if not isinstance(path, str):
        raise IncompleteAnswerError(f"{what}: an object has no path", remedy=INCOMPLETE_REMEDY)
    if not isinstance(url, str) or not url:
        raise IncompleteAnswerError(f"{what}: {path} has no physical address", remedy=INCOMPLETE_REMEDY)
    return path, url


def to_repository(answer: Any) -> Repository:
    """Return a repository from the model of the SDK."""
    return Repository(
        name=answer.id,
        storage_namespace=answer.storage_namespace,
        storage_id=answer.storage_id or "",
        default_branch=answer.default_branch,
        read_only=bool(answer.read_only),
        created_at=datetime.fromtimestamp(answer.creation_date, UTC),
    )


def to_commit(item: dict[str, Any]) -> Commit:
    """Return a commit from its JSON. Raises ``KeyError`` or ``TypeError`` for another shape."""
    if not isinstance(item["meta_range_id"], str):
        raise TypeError("meta_range_id is no string")  # not the same as "", which means that there is no content
    return Commit(
        id=item["id"],
        parents=tuple(item["parents"] or ()),
        creation_date=datetime.fromtimestamp(item["creation_date"], UTC),
        meta_range_id=item["meta_range_id"],
        version=item.get("version", 1),
    )


def about(name: str, answer: Any, what: str) -> Any:
    """Return an answer. Raise ``IncompleteAnswerError`` if it is about another one, which a cache may give."""
    if answer.id != name:
        raise IncompleteAnswerError(f"{what}: the answer is about {answer.id}", remedy=INCOMPLETE_REMEDY)
    return answer


def address_of(stats: Any, what: str) -> str:
    """Return the URL in the facts of an object. Raise ``IncompleteAnswerError`` if there is none."""
    if not stats.physical_address:
        raise IncompleteAnswerError(f"{what}: {stats.path} has no physical address", remedy=INCOMPLETE_REMEDY)
    return str(stats.physical_address)
