"""A backup stays if the list of its mark lacks the claim of a sweep, or the note of a restore, which was written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from lakefs_gc.engine.records.backups.claim import claim_backup
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.newest import NEWEST
from lakefs_gc.engine.records.restore_log import begin_restore
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.undo.pruning import prune_backups
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.complete_backup import write_complete_backup, write_unswept_mark
from lakefs_gc_tests.support.pruning import DAYS, write_sweep_summary

PATHS = MarkPaths.of("m1")


class Cached(LocalStore):
    """Lists what there was before the claims and the notes."""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[pa.RecordBatch]:
        for batch in super().list(prefix, start_after=start_after):
            before = [not key.startswith((PATHS.claims, PATHS.restores)) for key in batch["address"].to_pylist()]
            yield batch.filter(pa.array(before, pa.bool_()))


@pytest.mark.parametrize("begins", ["sweep", "restore"])
def test_a_list_that_lacks_the_newest_claim_or_note_removes_no_backup(tmp_path: Path, begins: str) -> None:
    """The mark was swept a month before. Now a second sweep waits, or a restore copies."""
    (tmp_path / "backups").mkdir()
    place, namespace = (open_store(StoreLocation((tmp_path / name).as_uri())) for name in ("backups", "namespace"))
    backup = write_complete_backup(place, "lake")
    write_unswept_mark(namespace)
    write_sweep_summary(namespace, "m1", began_at=utc_now(), digest=backup.mark_digest, deleted=1)
    later = utc_now() + timedelta(days=DAYS + 1)

    def kept(namespace: ObjectStore) -> list[str]:
        found = prune_backups(place, "lake", DAYS, later, lambda _: namespace)
        assert not found.removed
        return [why for _, why in found.kept]

    if begins == "sweep":
        claim_backup(namespace, "m1", Scope.all)
        assert kept(namespace) == [], "it is needed"
    else:
        begin_restore(namespace, "m1", "", utc_now(), time.sleep)
        assert "has not ended" in kept(namespace)[0]
    [why] = kept(Cached(namespace.location))
    folder = PATHS.claims if begins == "sweep" else PATHS.restores
    name = namespace.read(folder + NEWEST).decode()
    assert f"lacks {(folder + name).removeprefix(PATHS.report.folder)}, which exists" in why
