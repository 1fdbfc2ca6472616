"""The wait of a sweep for the commits that were in progress when its mark was made (rule 6)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.stored_marks import age_of
from lakefs_gc.storage.base import ObjectStore

logger = logging.getLogger(__name__)


def wait_for_commits(
    store: ObjectStore, mark: Mark, safety: SafetyParameters, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Wait until every commit that was in progress when the mark was made has ended.

    The reason: while a commit is in progress, an object that it commits and whose path is then written again is in no
    list of the server (``lakefs-gc designs show 6 without-wait``).

    The wait lasts until the mark is ``longest_commit_minutes`` old: the setting with which the mark was made or the
    current one, whichever is longer, because the sweep may run without the repository's own settings. 0 disables it.

    The mark's age is measured on the store's clock at both ends. A store may consist of many machines, and the clock of
    one may be set meanwhile. Each time may be wrong by the allowed skew, so twice the skew is added. The wait itself is
    measured on this machine's steady clock. Raises ``ClockSkewError``, as ``age_of`` does.
    """
    minutes = max(safety.longest_commit_minutes, mark.longest_commit_minutes)
    if not minutes:
        return
    required_age = timedelta(minutes=minutes) + safety.two_clocks_apart
    wait_seconds = (required_age - age_of(store, mark, safety).least).total_seconds()
    if wait_seconds > 0:
        logger.info(
            "mark %s: waiting %.0f s for commits that were in progress when it was made", mark.mark_id, wait_seconds
        )
        with RUN_PROGRESS.step("waiting_for_commits", seconds=wait_seconds):
            sleep(wait_seconds)
