"""Starts Spark in another thread while this one imports Dagster and asks the server: Java takes as long as both.

Java's process starts first of all. It then compiles for a small run, because only the listing tells how large the run
is; for a large one, another Java replaces it. That costs a run of minutes a second, and spares every small run one.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lakefs_gc.config import Settings, load_server_credentials

logger = logging.getLogger(__name__)

_PAGES_ASKED = 3


def start_spark_early(settings: Settings, repository: str) -> None:
    """Start Spark for a mark of a repository, as the first stage would. Raise what ``LakeFSClient.repository`` raises.

    How Java compiles depends on the size of the run, so the first pages of the listing are counted before.
    """
    with _starting(settings) as start:
        from lakefs_gc.lakefs.client import LakeFSClient

        server = LakeFSClient(load_server_credentials(), settings.lakefs)
        namespace = server.repository(repository).storage_namespace  # a wrong name fails before Spark starts
        if start:
            start.decide(small=_is_small(settings, namespace))


def start_spark_for_sweep(settings: Settings, repository: str, mark_id: str) -> None:
    """Start Spark for the sweep of a mark. Raise what ``open_mark`` raises: a wrong id fails before Spark starts."""
    with _starting(settings) as start:
        from lakefs_gc.engine.records.stored_marks import open_mark
        from lakefs_gc.engine.spark.scale import SMALL_RUN_OBJECTS
        from lakefs_gc.lakefs.client import LakeFSClient

        server = LakeFSClient(load_server_credentials(), settings.lakefs)
        listed = open_mark(repository, mark_id, server, settings).mark.counts.get("store_listing")
        if start:
            start.decide(small=listed is not None and listed <= SMALL_RUN_OBJECTS)


class _Start:
    """A start of Spark in another thread. Java's process starts at once, and Spark in it after ``decide``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._small: bool | None = None
        self._decided = threading.Event()
        threading.Thread(target=self._run, name="start-spark", daemon=True).start()

    def decide(self, *, small: bool | None) -> None:
        """Let Spark start for a small run or one of any size, or not at all if ``small`` is None."""
        if not self._decided.is_set():
            self._small = small
            self._decided.set()

    def _decision(self) -> bool | None:
        self._decided.wait()
        return self._small

    def _run(self) -> None:
        from lakefs_gc.engine.spark.session import start_spark_in_advance

        try:
            start_spark_in_advance(self._settings.spark, self._decision)
        except Exception as error:  # the first stage starts Spark again, and raises this as its own error
            logger.info("Spark was not started early: %s", error)


@contextmanager
def _starting(settings: Settings) -> Iterator[_Start | None]:
    """Yield a start of Spark, which ends if nothing is decided; None if this process starts no Java."""
    starts_here = settings.emr is None and "spark.remote" not in settings.spark
    start = _Start(settings) if starts_here and "PYSPARK_GATEWAY_PORT" not in os.environ else None
    try:
        yield start
    finally:
        if start:
            start.decide(small=None)


def _is_small(settings: Settings, namespace: str) -> bool:
    """Return whether the first pages of a listing have all objects. Where that is unknown, the run may be large."""
    from lakefs_gc.engine.spark.scale import SMALL, SMALL_RUN_OBJECTS
    from lakefs_gc.errors import LakeFSGCError
    from lakefs_gc.formats.addresses import normalize_namespace
    from lakefs_gc.storage.open import open_store

    if SMALL in settings.spark:
        return str(settings.spark[SMALL]) == "true"
    objects = 0
    try:
        pages = open_store(settings.reach(normalize_namespace(namespace))).pages("data/")
        for number, page in enumerate(pages, 1):
            objects += page.objects.num_rows
            if number > _PAGES_ASKED or objects > SMALL_RUN_OBJECTS:
                return False
    except LakeFSGCError as error:
        logger.info("the size of the repository is unknown: %s", error.message)  # the first stage raises it
        return False
    return True
