"""Moves that spoil what a mark or an approval has written, or end a sweep in the middle."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa

from lakefs_gc.config import BackupSettings, SafetyParameters
from lakefs_gc.engine.records.approval import Approval, approve
from lakefs_gc.engine.records.backups.location import find_backup
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.mark_parts import PART_SCHEMA, part_content, read_part
from lakefs_gc.engine.undo.restore import restore
from lakefs_gc.engine.undo.restore_source import RestoreSource
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import (
    ApprovalError,
    CorruptFileError,
    MarkError,
    SafetyError,
    SparkFailedError,
    StorageError,
)
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.properties.moves.shared import OTHERS, new_mark, sweep_safely, usual_overrides
from lakefs_gc_tests.properties.seeded import SeededHistory, ViolationError
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import marked
from lakefs_gc_tests.support.impatient_daemon import KILL_FILE
from lakefs_gc_tests.support.lake import keys_below
from lakefs_gc_tests.support.processes import kill_workers


def rewritten_marks(h: SeededHistory) -> list[str]:
    """Between mark and sweep, the mark is rewritten to list live objects, or parts of it are lost."""
    collector = h.collector()
    mark = new_mark(h, collector)
    paths, store = MarkPaths.of(mark.mark_id), h.repository.store
    how = h.random.choice(("part", "approved before", "approved after", "manifest lost", "summary lost", "part lost"))
    h.drawn = [f"rewritten marks: {how}"]
    live = sorted(key for key in h.reachable() & h.repository.objects() if key.startswith("data/"))
    if how != "approved after":
        collector.give_approval(mark, usual_overrides(mark))
    if how.endswith("lost"):
        key = {"manifest lost": paths.manifest, "summary lost": paths.summary}.get(how, mark.parts[0].key)
        store.delete_many([key])
        with h.must_fail(MarkError, StorageError):
            collector.sweep_approved(mark)
        return h.drawn
    part = mark.parts[0]
    infos = store.stat_many(live)
    rows: list[dict[str, Any]] = [
        {"address": k, "size": infos[k].size_bytes, "last_modified": infos[k].last_modified} for k in live
    ]
    table = pa.concat_tables([read_part(store, part), pa.Table.from_pylist(rows, PART_SCHEMA)])
    content = part_content(table)
    store.put(part.key, content)
    if how == "part":
        with h.must_fail(MarkError):
            collector.sweep_approved(mark)
        return h.drawn
    size = sum(row["size"] for row in rows)
    sha256 = hashlib.sha256(content).hexdigest()
    bigger = replace(part, objects=table.num_rows, size_bytes=part.size_bytes + size, sha256=sha256)
    forged = replace(
        mark,
        parts=(bigger, *mark.parts[1:]),
        candidates=mark.candidates + len(rows),
        candidate_bytes=(mark.candidate_bytes or 0) + size,
    )
    forged = forged.sealed()
    store.put(paths.manifest, forged.to_json())
    if how == "approved before":
        with h.must_fail(ApprovalError):
            collector.sweep_approved(forged)
    else:
        collector.give_approval(forged, usual_overrides(forged))
        with h.may_fail(SafetyError):
            sweep_safely(h, collector, forged)
    return h.drawn


def _approved(store: ObjectStore, mark: Mark, via: str, overrides: dict[str, str]) -> Approval:
    safety, just_made = SafetyParameters(), timedelta(0)
    return approve(
        store, mark, mark.digest, by="b", via=via, now=utc_now(), age=just_made, safety=safety, overrides=overrides
    )


def approvals(h: SeededHistory) -> list[str]:
    """An approval of another installation or of another mark, or a sweep without the workspace of the mark."""
    collector = h.collector()
    mark = new_mark(h, collector)
    how = h.random.choice(
        ("none", "older digest", "copied", "no reason", "damaged", "another installation", "another workspace")
    )
    h.drawn = [f"approvals: {how}"]
    store, path = h.repository.store, MarkPaths.of(mark.mark_id).approval
    overrides = dict.fromkeys(usual_overrides(mark), "a test")
    if how == "copied":
        _approved(store, mark, "v", overrides)
        content = store.read(path)
        collector = h.collector()
        mark = new_mark(h, collector)
        store.put(MarkPaths.of(mark.mark_id).approval, content)
    elif how != "none":
        approval = _approved(store, mark, "another", overrides)
        content = approval.to_json()
        if how == "older digest":
            store.put(path, content.replace(mark.digest.encode(), b"sha256:" + b"0" * 64))
        elif how == "no reason":
            store.put(path, json.dumps(json.loads(content) | {"overrides": {OTHERS: ""}}).encode())
        elif how == "damaged":
            store.put(path, content[: len(content) // 2])
    if how.startswith("another"):
        h.users(0, 3)
        if how == "another workspace":
            before = h.settings
            h.settings = before.model_copy(update={"work_url": (h.lake.folder / "work-elsewhere").as_uri()})
            collector = h.collector()
            h.settings = before
        sweep_safely(h, collector, mark)
    else:
        with h.must_fail(ApprovalError, CorruptFileError):
            collector.sweep_approved(mark)
    return h.drawn


def killed(h: SeededHistory) -> list[str]:
    """A sweep dies between a delete and its outcome. The next sweep counts exactly, and a restore brings all back."""
    with_backup = h.random.random() < 0.5
    place = Backups(StoreLocation((h.lake.folder / "backups").as_uri()))
    (h.lake.folder / "backups").mkdir()
    before = h.settings
    sweep = before.sweep.model_copy(update={"objects_per_request": h.random.choice((1, 2, 1000))})
    h.settings = before.model_copy(update={"sweep": sweep, "backup": BackupSettings(url=place.location.url)})
    collector = h.collector()
    h.settings = before
    mark = new_mark(h, collector)
    if not mark.candidates:
        return ["killed: nothing marked"]
    if with_backup:
        place.back_up(h.spark, collector, mark)
    overrides = [check.name for check in mark.checks if not check.passed]
    collector.give_approval(mark, overrides)
    there = h.repository.objects() & marked(h.repository, mark)
    kill_file = h.remote.kill_file if h.remote else h.lake.folder / KILL_FILE
    kill_file.write_text(str(h.random.randint(0, 3)))
    with h.nothing_live_is_lost(), h.may_fail(SparkFailedError) as caught:
        collector.sweep_approved(mark)
    # Spark's other workers outlive the one that was killed. They may delete, because their second look is recent.
    kill_workers(h.spark)
    kill_file.unlink(missing_ok=True)
    how = "killed" if caught else "nothing to delete"
    if h.random.random() < 0.4:
        h.do(lambda _: h.stage_garbage("main", "again", h.random.randint(0, 50)))
        h.do(lambda _: h.upload_again("main", h.random.randint(0, 50)))
    damaged = caught and h.random.random() < 0.25 and _damage_ledger(h, mark)
    with h.nothing_live_is_lost(), h.may_fail(*([CorruptFileError] if damaged else [])) as refused:
        collector.sweep_approved(mark)
        h._count_swept(collector)
    if damaged:
        return [f"killed: {how}, ledger damaged" + ("" if refused else ", gone on")]
    now = h.repository.objects()
    expected = {key: "resurrected" if key in now else "deleted" for key in there}
    if wrong := {
        key: (collector.swept.get(key), want) for key, want in expected.items() if collector.swept[key] != want
    }:
        raise ViolationError(f"outcomes, and what they should be: {wrong}")
    if now & there - h.reachable() - collector.addresses("uncommitted"):
        how += ", some are kept"
    if with_backup:
        gone = there - now
        # A restore waits minutes for a delete without a known end. Here this time has passed.
        for key in keys_below(h.repository.store, MarkPaths.of(mark.mark_id).ledger):
            h.repository.age(key, hours=1)
        result = restore(
            collector.context,
            RestoreSource(find_backup(place.store, mark.mark_id), place.location, h.repository.location),
        )
        if result.objects["restored"] != len(gone) or not gone <= h.repository.objects():
            raise ViolationError(f"restored {result.objects}, and {len(gone)} were deleted")
        with h.must_fail(ApprovalError):
            collector.sweep_approved(mark)
    return [f"killed: {how}" + (", restored" if with_backup else "")]


def _damage_ledger(h: SeededHistory, mark: Mark) -> bool:
    keys = sorted(keys_below(h.repository.store, MarkPaths.of(mark.mark_id).ledger))
    if keys:
        key = h.random.choice(keys)
        h.repository.store.put(key, h.repository.store.read(key)[:-9])
    return bool(keys)
