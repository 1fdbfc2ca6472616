"""What became of the objects of a mark, read back from its ledger."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.errors import SweepIncompleteError

_ERRORS_SHOWN = 10


@dataclass(frozen=True)
class Outcome:
    """How many marked objects had one outcome, and their size."""

    objects: int
    size_bytes: int


@dataclass(frozen=True)
class SweepResult:
    """What happened to the objects of a mark, by outcome; every outcome is there."""

    mark_id: str
    outcomes: dict[str, Outcome]

    def to_json(self, ended_at: datetime) -> bytes:
        """As it is kept beside the mark."""
        content = {"mark_id": self.mark_id, "ended_at": ended_at.isoformat()}
        outcomes = {name: asdict(outcome) for name, outcome in self.outcomes.items()}
        return json.dumps(content | {"outcomes": outcomes}, indent=2).encode()

    def raise_if_incomplete(self) -> None:
        """Raise ``SweepIncompleteError`` when a delete failed (rule 9)."""
        failed = self.outcomes[ledger.FAILED].objects
        if failed:
            raise SweepIncompleteError(
                f"{failed} of {sum(o.objects for o in self.outcomes.values())} objects of mark {self.mark_id} "
                "could not be deleted",
                remedy="see their errors, or the ledger beside the mark; mend the cause, and sweep it again: it goes "
                "on with what is left",
                mark_id=self.mark_id,
                outcomes={name: asdict(outcome) for name, outcome in self.outcomes.items()},
            )


def failures(recorded: DataFrame) -> list[dict[str, str | int]]:
    """The most frequent errors of a sweep (columns ``schemas.SWEEP``): each with a count and one of its addresses."""
    failed = recorded.where(F.col("outcome") == ledger.FAILED)
    with driver_errors():
        rows = (
            failed.groupBy("error")
            .agg(F.count(F.lit(1)).alias("objects"), F.min("address").alias("for_example"))
            .orderBy(F.desc("objects"), "error")
            .limit(_ERRORS_SHOWN)
            .collect()
        )
    return [row.asDict() for row in rows]


def read_result(mark: Mark, recorded: DataFrame) -> SweepResult:
    """Count the outcomes (columns ``schemas.SWEEP``).  Raises ``SweepIncompleteError`` when one is missing."""
    rows = recorded.groupBy("outcome").agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("size")).collect()
    found = {row["outcome"]: Outcome(row["objects"], row["size"] or 0) for row in rows}
    ended = sum(outcome.objects for name, outcome in found.items() if name != ledger.INTENT)
    if ended != mark.candidates or ledger.INTENT in found:
        raise SweepIncompleteError(
            f"the ledger of mark {mark.mark_id} accounts for {ended} of {mark.candidates} objects",
            remedy="sweep the same mark again: it goes on with what is left",
        )
    return SweepResult(mark.mark_id, {name: found.get(name, Outcome(0, 0)) for name in ledger.OUTCOMES})
