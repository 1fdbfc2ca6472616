"""The part of Spark that stages use: a session, and the number of concurrent tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import SparkSession


class Compute(Protocol):
    """Provides a Spark session. An implementation may start Spark when ``session`` or ``cores`` is first read."""

    @property
    def session(self) -> SparkSession:
        """Return the session."""

    @property
    def cores(self) -> int:
        """Return the number of concurrent tasks."""


@dataclass(frozen=True)
class StartedSpark:
    """A session that is already running."""

    session: SparkSession
    cores: int
