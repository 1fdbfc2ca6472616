"""The answers about one object, as frozen records. ``as_json`` is what ``--json`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from lakefs_gc.engine.explain.mark_records import Marking


class State(StrEnum):
    """What is the case with an object."""

    MARKED = "marked"
    """In the store, and a mark names it that no sweep has followed for this object."""
    KEPT = "kept"
    """In the store, and something keeps it."""
    UNREFERENCED = "unreferenced"
    """In the store, in no mark, and nothing was found that keeps it: the next mark names it."""
    DELETED = "deleted"
    """Not in the store: a sweep deleted it."""
    MISSING = "missing"
    """Not in the store although something refers to it, and no sweep deleted it: data loss."""
    NOT_IN_STORE = "not_in_store"
    """Not in the store, and no sweep recorded it."""
    UNKNOWN = "unknown"
    """The store could not be asked for this key, so whether it has the object is unknown."""
    NOT_SHOWN = "not_shown"
    """The reference shows no object at the path."""


class KeptBy(StrEnum):
    """What keeps an object."""

    HEAD = "head"
    COMMIT = "commit"
    NO_RULES = "no_rules"
    PROTECTED_COMMIT = "protected_commit"
    PROTECTED_PATH = "protected_path"
    STAGED = "staged"
    HIDDEN_TWIN = "hidden_twin"
    UNVERIFIED = "unverified"
    OTHER_REPOSITORY = "other_repository"
    TOO_NEW = "too_new"
    NEVER_COLLECTED = "never_collected"


REFERENCES = frozenset(KeptBy) - {KeptBy.TOO_NEW, KeptBy.NEVER_COLLECTED, KeptBy.PROTECTED_PATH, KeptBy.UNVERIFIED}
"""What refers to an object, so that its absence from the store is data loss."""


@dataclass(frozen=True)
class Keeper:
    """One thing that keeps an object. ``until`` is None if it has no known end; ``ends`` says when it ends, and why."""

    by: KeptBy
    what: str
    ends: str
    until: datetime | None = None


@dataclass(frozen=True)
class CommitFacts:
    """A commit. ``branch`` is the branch on whose main line it is, empty if it is on none."""

    id: str
    created_at: datetime
    branch: str


@dataclass(frozen=True)
class PathHistory:
    """The commits that show an object at one path, and the commits that ended that, newest first.

    ``first`` and ``last`` are None, and ``commits`` is 0, if only commits show it that cannot be listed: those of
    deleted branches.
    """

    path: str
    commits: int
    first: CommitFacts | None
    last: CommitFacts | None
    ended_by: tuple[CommitFacts, ...]


@dataclass(frozen=True)
class Explanation:
    """Everything that is known about one object.

    ``address`` is relative to the namespace. ``expired`` says until when commits kept it, if they no longer do.
    ``kept_until`` summarizes ``kept_by``. ``would_keep`` says what a user can do to keep it. ``not_looked_at`` names
    what could not be looked at: anything there may keep the object, or may be a copy of it.
    """

    asked: str
    address: str
    state: State
    size_bytes: int | None = None
    last_modified: datetime | None = None
    paths: tuple[PathHistory, ...] = ()
    kept_by: tuple[Keeper, ...] = ()
    kept_until: str = ""
    expired: str = ""
    marks: tuple[Marking, ...] = ()
    copies: tuple[str, ...] = ()
    would_keep: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    looked_at: tuple[str, ...] = ()
    not_looked_at: tuple[str, ...] = ()

    @property
    def exists(self) -> bool:
        """Whether the object is in the store."""
        return self.size_bytes is not None


def as_json(value: Any) -> Any:
    """Return a record as JSON: times in ISO 8601, and properties of records as they are stored."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    return value.value if isinstance(value, StrEnum) else value
