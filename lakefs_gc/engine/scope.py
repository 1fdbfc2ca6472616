"""The parts of a mark, by the reason of its objects: a mark, an approval or a sweep may be of one part only."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum


class Scope(StrEnum):
    """Which objects of a mark an approval or a sweep is about, by their ``reason`` (``schemas.CANDIDATES``).

    Names equal values, because Dagster's run configuration uses the names and every record the values.
    """

    all = "all"
    expired = "expired"
    """A readable range in the namespace references the object, but no range of an active commit."""
    never_committed = "never_committed"
    """No readable range in the namespace references the object."""

    def covers(self, other: Scope) -> bool:
        """Return whether every object of ``other`` is one of this scope."""
        return self in (Scope.all, other)

    @property
    def is_part(self) -> bool:
        """Whether it is one part, and not the whole mark."""
        return self is not Scope.all

    @property
    def suffix(self) -> str:
        """What the names of a part's files end in; empty for the whole mark."""
        return f"-{self.value}" if self.is_part else ""

    @property
    def option(self) -> str:
        """The option of the command line that selects a part, with a leading blank; empty for the whole mark."""
        return f" --only {self.value.replace('_', '-')}" if self.is_part else ""

    @property
    def words(self) -> str:
        """A part in a message, with a leading blank; empty for the whole mark."""
        return f" (only {self.value.replace('_', ' ')} objects)" if self.is_part else ""


PARTS = (Scope.expired, Scope.never_committed)


def is_swept(only: Scope, swept: Collection[Scope]) -> bool:
    """Return whether sweeps of ``swept`` were of every object of ``only``."""
    return Scope.all in swept or all(part in swept for part in PARTS if only.covers(part))
