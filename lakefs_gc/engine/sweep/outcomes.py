"""The result of a sweep: how many marked objects have each outcome, read back from the mark's ledger (rule 9).

Nothing is counted from what was requested. A sweep that does not account for every object of the mark, or of the part
that it is of, raises an error.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.spark.frequent_errors import frequent_errors
from lakefs_gc.errors import SweepIncompleteError


@dataclass(frozen=True)
class Outcome:
    """How many marked objects have one outcome, and their total size in bytes."""

    objects: int
    size_bytes: int


@dataclass(frozen=True)
class SweepResult:
    """The objects of a mark or of its part ``only`` by outcome. ``outcomes`` has every name of ``ledger.OUTCOMES``."""

    mark_id: str
    mark_digest: str
    outcomes: dict[str, Outcome]
    only: Scope = Scope.all

    def to_json(self, began_at: datetime, ended_at: datetime) -> bytes:
        """Return the content of the summary that a sweep writes beside the mark.

        ``began_at`` is the time that its records in the ledger have, on the store's clock. ``ended_at`` is on the clock
        of this machine.
        """
        times = {"began_at": began_at.isoformat(), "ended_at": ended_at.isoformat()}
        content = {"mark_id": self.mark_id, "mark_digest": self.mark_digest, **times, "only": self.only.value}
        outcomes = {name: asdict(outcome) for name, outcome in self.outcomes.items()}
        return json.dumps(content | {"outcomes": outcomes}, indent=2).encode()

    def raise_if_incomplete(self) -> None:
        """Raise ``SweepIncompleteError`` if a delete failed (rule 9)."""
        failed = self.outcomes[ledger.FAILED].objects
        if failed:
            total = sum(outcome.objects for outcome in self.outcomes.values())
            raise SweepIncompleteError(
                f"{failed:,} of {total:,} objects of mark {self.mark_id}{self.only.words} could not be deleted",
                remedy="Read the errors here or in the ledger beside the mark, fix the cause and sweep the same mark "
                "again: the sweep continues with the remaining objects",
                mark_id=self.mark_id,
                outcomes={name: asdict(outcome) for name, outcome in self.outcomes.items()},
            )


def failures(recorded: DataFrame) -> list[dict[str, str | int]]:
    """Return the most frequent errors of a sweep (columns ``schemas.SWEEP``), as ``frequent_errors`` does."""
    return frequent_errors(recorded.where(F.col("outcome") == ledger.FAILED))


def read_result(mark: Mark, recorded: DataFrame, only: Scope = Scope.all) -> SweepResult:
    """Count the outcomes in ``recorded`` (columns ``schemas.SWEEP``): those of the mark, or of its part ``only``.

    Raises ``SweepIncompleteError`` if an object of the mark or part has no outcome.
    """
    rows = recorded.groupBy("outcome").agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("size")).collect()
    by_name = {row["outcome"]: Outcome(row["objects"], row["size"] or 0) for row in rows}
    ended = sum(outcome.objects for name, outcome in by_name.items() if name != ledger.INTENT)
    expected = mark.objects_of(only)
    if ended != expected or ledger.INTENT in by_name:
        raise SweepIncompleteError(
            f"The ledger of mark {mark.mark_id} accounts for {ended:,} of {expected:,} objects{only.words}",
            remedy="Sweep the same mark again: the sweep continues with the remaining objects",
        )
    outcomes = {name: by_name.get(name, Outcome(0, 0)) for name in ledger.OUTCOMES}
    return SweepResult(mark.mark_id, mark.digest, outcomes, only)
