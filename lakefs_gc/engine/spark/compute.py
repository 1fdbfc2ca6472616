"""What stages need of Spark: a session, and how many tasks run at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import SparkSession


class Compute(Protocol):
    """Gives a Spark session.  An implementation may start Spark when ``session`` or ``cores`` is first read."""

    @property
    def session(self) -> SparkSession:
        """The session."""

    @property
    def cores(self) -> int:
        """How many tasks run at once."""


@dataclass(frozen=True)
class StartedSpark:
    """A session that runs already."""

    session: SparkSession
    cores: int
