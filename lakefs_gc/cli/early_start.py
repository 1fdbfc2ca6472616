"""Starts Spark in another thread while this one imports Dagster and asks the server: Java takes as long as both.

Java's process starts first of all. It then compiles for a small run, because only the listing tells how large the run
is; for a large one, another Java replaces it. If an earlier run listed the repository, that happens before Spark starts
in it, and costs a second. Otherwise it happens after the listing, and costs a run of minutes some five.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakefs_gc.config import Settings, load_server_credentials

if TYPE_CHECKING:  # loads Spark
    from lakefs_gc.engine.spark.session import Size

logger = logging.getLogger(__name__)


def start_spark_early(settings: Settings, repository: str) -> None:
    """Start Spark for a mark of a repository, as the first stage would.

    Raise what ``LakeFSClient.repository`` raises.
    """
    with _starting(settings) as start:
        from lakefs_gc.lakefs.client import LakeFSClient

        server = LakeFSClient(load_server_credentials(), settings.lakefs)
        server.repository(repository)  # a wrong name fails before Spark starts
        if start:
            start.decide(_size_of_run(settings, repository))


def start_spark_for_sweep(settings: Settings, repository: str, mark_id: str) -> None:
    """Start Spark for the sweep of a mark. Raise what ``open_mark`` raises: a wrong id fails before Spark starts."""
    with _starting(settings) as start:
        from lakefs_gc.engine.records.stored_marks import open_mark
        from lakefs_gc.engine.spark.scale import SMALL_RUN_OBJECTS
        from lakefs_gc.engine.spark.session import Size
        from lakefs_gc.lakefs.client import LakeFSClient

        server = LakeFSClient(load_server_credentials(), settings.lakefs)
        listed = open_mark(repository, mark_id, server, settings).mark.counts.get("store_listing")
        if start:
            start.decide(Size(small=listed is not None and listed <= SMALL_RUN_OBJECTS))


class _Start:
    """A start of Spark in another thread. Java's process starts at once, and Spark in it after ``decide``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._size: Size | None = None
        self._decided = threading.Event()
        threading.Thread(target=self._run, name="start-spark", daemon=True).start()

    def decide(self, size: Size | None) -> None:
        """Let Spark start for a run of this size, or not at all."""
        if not self._decided.is_set():
            self._size = size
            self._decided.set()

    def _decision(self) -> Size | None:
        self._decided.wait()
        return self._size

    def _run(self) -> None:
        from lakefs_gc.engine.spark.session import start_spark_in_advance

        try:
            session = start_spark_in_advance(self._settings.spark, self._decision)
        except Exception as error:  # the first stage starts Spark again, and raises this as its own error
            logger.info("Spark was not started early: %s", error)
            return
        if session is not None and self._size is not None and self._size.small:
            from lakefs_gc.engine.spark.first_query import run_first_query

            run_first_query(session)


@contextmanager
def _starting(settings: Settings) -> Iterator[_Start | None]:
    """Yield a start of Spark, which ends if nothing is decided; None if this process starts no Java."""
    starts_here = settings.emr is None and "spark.remote" not in settings.spark
    start = _Start(settings) if starts_here and "PYSPARK_GATEWAY_PORT" not in os.environ else None
    try:
        yield start
    finally:
        if start:
            start.decide(None)


def _size_of_run(settings: Settings, repository: str) -> Size:
    """Return how large the newest listing of the repository was. A first run is assumed to be small."""
    from lakefs_gc.engine.spark.scale import SMALL, SMALL_RUN_OBJECTS
    from lakefs_gc.engine.spark.session import Size
    from lakefs_gc.engine.workspace.workspace import Workspace
    from lakefs_gc.errors import LakeFSGCError

    if SMALL in settings.spark:
        return Size(small=str(settings.spark[SMALL]) == "true")
    workspace = Workspace(settings.resolved_work_url())
    try:
        listed = workspace.last_listed(repository) if workspace.exists() else None
    except (LakeFSGCError, OSError) as error:  # the first stage raises it
        logger.info("the size of the repository is unknown: %s", error)
        listed = None
    return Size(is_guess=True) if listed is None else Size(small=listed <= SMALL_RUN_OBJECTS)
