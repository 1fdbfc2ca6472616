"""Rule 12: the three answers to a question that stands between an object and its deletion.

"Could not look" is an answer of its own.  It is a type here, so that no ``except``, default or empty list can turn it
into "nothing found": whoever reads such a fact has to say what follows from ``Unknown``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Answer(StrEnum):
    """What is proved.  ``UNKNOWN`` blocks a sweep as ``UNSAFE`` does."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Unknown:
    """A fact that could not be established, was not asked for, or had nothing to look at; ``reason`` is for people."""

    reason: str
