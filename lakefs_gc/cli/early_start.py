"""Starts Spark in another thread while this one imports Dagster and asks the server: Java takes as long as both."""

from __future__ import annotations

import logging
import os
import threading

from lakefs_gc.config import Settings, load_server_credentials
from lakefs_gc.engine.records.stored_marks import open_mark
from lakefs_gc.engine.spark.scale import SMALL, SMALL_RUN_OBJECTS
from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.formats.addresses import normalize_namespace
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.open import open_store

logger = logging.getLogger(__name__)

_PAGES_ASKED = 3


def start_spark_early(settings: Settings, repository: str) -> None:
    """Start Spark for a mark of a repository, as the first stage would. Raise what ``LakeFSClient.repository`` raises.

    How Java compiles depends on the size of the run, so the first pages of the listing are counted before.
    """
    server = LakeFSClient(load_server_credentials(), settings.lakefs)
    namespace = server.repository(repository).storage_namespace  # a wrong name fails before Spark starts
    if _starts_here(settings):
        _start(settings, small=_is_small(settings, namespace))


def start_spark_for_sweep(settings: Settings, repository: str, mark_id: str) -> None:
    """Start Spark for the sweep of a mark. Raise what ``open_mark`` raises: a wrong id fails before Spark starts."""
    server = LakeFSClient(load_server_credentials(), settings.lakefs)
    counts = open_mark(repository, mark_id, server, settings).mark.counts
    if _starts_here(settings):
        listed = counts.get("store_listing")
        _start(settings, small=listed is not None and listed <= SMALL_RUN_OBJECTS)


def _starts_here(settings: Settings) -> bool:
    """Return whether this process will start Java."""
    return settings.emr is None and "spark.remote" not in settings.spark and "PYSPARK_GATEWAY_PORT" not in os.environ


def _start(settings: Settings, *, small: bool) -> None:
    def start() -> None:
        from lakefs_gc.engine.spark.session import start_spark

        try:
            start_spark(settings.spark, small=small)
        except Exception as error:  # the first stage starts Spark again, and raises this as its own error
            logger.info("Spark was not started early: %s", error)

    threading.Thread(target=start, name="start-spark", daemon=True).start()


def _is_small(settings: Settings, namespace: str) -> bool:
    """Return whether the first pages of a listing have all objects. Where that is unknown, the run may be large."""
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
