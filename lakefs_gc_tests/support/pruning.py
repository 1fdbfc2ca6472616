"""Backups of a few objects, and prunings of them, days from now."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta

from pyspark.sql import SparkSession

from lakefs_gc.engine.records.ledger import OUTCOMES
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.restore_log import RestoreEnd
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.undo.pruning import Pruned, prune_backups
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository

DAYS = 30
"""For how many days backups are kept."""
KEYS = [f"data/s/{number}" for number in range(6)]


def prune(place: Backups, repository: LakeRepository, days: float) -> Pruned:
    """As a server does that has this repository's lake, so many days from now."""
    reach = repository.lake.settings.reach
    later = utc_now() + timedelta(days=days)
    url = repository.lake.credentials.endpoint_url
    return prune_backups(place.store, "lake", DAYS, later, lambda namespace: open_store(reach(namespace)), url)


def pruned(place: Backups, repository: LakeRepository, days: float) -> list[str]:
    """Return the marks whose backups a pruning removed. It must have kept no expired one."""
    found = prune(place, repository, days)
    assert found.kept == [], "an expired backup was kept"
    return [listed.mark_id for listed in found.removed]


def backed_up(spark: SparkSession, repository: LakeRepository, place: Backups) -> tuple[Collector, Mark]:
    """Back up a mark of objects that no branch shows."""
    for key in KEYS:
        repository.put_stray(key)
    collector = Collector(spark, repository)
    mark = collector.mark_objects(*KEYS)
    place.back_up(spark, collector, mark)
    return collector, mark


def ends(repository: LakeRepository, note: str, days: float) -> None:
    """End the restore with this note, so many days from now."""
    end = f"{note.removesuffix('.json')}-ended.json"
    repository.store.put(end, RestoreEnd(0, 0).to_json())
    ages(repository, end, days)


def ages(repository: LakeRepository, key: str, days: float) -> None:
    """Make a file look as if it was written so many days from now."""
    at = utc_now().timestamp() + days * 86400
    os.utime(repository.folder / key, (at, at))


def write_sweep_summary(
    store: ObjectStore,
    mark_id: str,
    only: Scope = Scope.all,
    *,
    began_at: datetime | None = None,
    digest: str = "",
    **outcomes: int,
) -> None:
    """Write what a sweep writes at its end, with so many objects of these ``outcomes``; without any: an empty mark.

    Earlier versions wrote no ``digest`` of the mark.
    """
    times = {"began_at": began_at.isoformat(), "ended_at": utc_now().isoformat()} if began_at else {}
    counted = {name: {"objects": outcomes.get(name, 0), "size_bytes": 0} for name in OUTCOMES}
    of_mark = {"mark_id": mark_id, **({"mark_digest": digest} if digest else {})}
    content = {**of_mark, **times, "only": only.value, "outcomes": counted}
    store.put(MarkPaths.of(mark_id).sweep_summary_of(only), json.dumps(content).encode())
