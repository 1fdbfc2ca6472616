"""What the summaries of a mark's sweeps say, which are beside the mark. ``SweepResult.to_json`` writes them.

A summary is there also if deletes failed, or if objects were kept: only its outcomes tell. One without outcomes is
damaged, and never the summary of a complete sweep (rule 12).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from lakefs_gc.engine.records.ledger import ALREADY_GONE, DELETED, FAILED, SEQUENCE_FORMAT
from lakefs_gc.engine.scope import Scope, is_swept
from lakefs_gc.errors import CorruptFileError
from lakefs_gc.formats.json_object import read_json_object
from lakefs_gc.storage.base import ObjectStore

_DONE = (DELETED, ALREADY_GONE)
_NEEDED = (DELETED, FAILED)
"""The outcomes that every version has recorded."""


@dataclass(frozen=True)
class SweepSummary:
    """What a sweep wrote at its end: objects and bytes by outcome, and when it began (None: unknown).

    ``mark_digest`` is empty if an earlier version wrote it.
    """

    outcomes: dict[str, dict[str, int]]
    began_at: datetime | None
    mark_digest: str = ""

    def is_of(self, mark_digest: str, marked_at: datetime, written_at: datetime) -> bool:
        """Return whether the sweep was one of the mark with this digest, and not of an earlier mark with the same id.

        Marks of lakeFS's client may have one id, and it leaves the records of the former one in the folder. Without a
        digest, the sweep must not have begun before the run of the mark, nor have ended (``written_at``) before that.
        """
        if self.mark_digest:
            return self.mark_digest == mark_digest
        return min(self.began_at or written_at, written_at) >= marked_at

    @property
    def is_incomplete(self) -> bool:
        """Whether a delete failed, so that the mark has to be swept again."""
        return self.outcomes[FAILED]["objects"] > 0

    @property
    def left_nothing(self) -> bool:
        """Whether every object was deleted, or already gone: none was kept, and no delete failed."""
        return not any(counted["objects"] for name, counted in self.outcomes.items() if name not in _DONE)

    @property
    def sequence(self) -> str:
        """The time at which the sweep began, as the names of its records begin; empty if the summary does not say."""
        return f"{self.began_at:{SEQUENCE_FORMAT}}" if self.began_at else ""


def read_sweep_summary(store: ObjectStore, key: str) -> SweepSummary:
    """Return the summary of a sweep. Raise ``CorruptFileError``."""
    content = read_json_object(store.read(key), key, "the summary of a sweep")
    try:
        outcomes: dict[str, dict[str, int]] = content["outcomes"]
        for counted in (*outcomes.values(), *(outcomes[name] for name in _NEEDED)):
            counted["objects"] += 0
        began_at = datetime.fromisoformat(content["began_at"]) if content.get("began_at") else None
        if began_at and began_at.tzinfo is None:
            raise ValueError(f"began_at {began_at} has no offset from UTC")
        mark_digest = str(content.get("mark_digest") or "")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(key, f"not the summary of a sweep: {error!r}") from None
    return SweepSummary(outcomes, began_at, mark_digest)


def not_followed(swept_at: Mapping[Scope, datetime]) -> list[Scope]:
    """Return the sweeps that no later sweep of the same objects follows, given the time of each summary."""

    def is_followed(only: Scope) -> bool:
        return is_swept(only, [other for other, at in swept_at.items() if other != only and at > swept_at[only]])

    return [only for only in swept_at if not is_followed(only)]
