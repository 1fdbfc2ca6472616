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

    @property
    def is_small(self) -> bool:
        """Return whether the current run is small, so that this process does the work of workers (``scale``)."""

    def scale(self, small: bool) -> None:
        """Prepare the session for a small run, or for one of any size."""


@dataclass(frozen=True)
class StartedSpark:
    """A session that is already running. It takes no run for a small one."""

    session: SparkSession
    cores: int
    is_small: bool = False

    def scale(self, small: bool) -> None:
        """Leave the session as it is."""
