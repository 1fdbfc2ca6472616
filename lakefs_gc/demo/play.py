"""Runs the demo: a repository, a mark, a refusal, an approval, a sweep, a restore, and the proofs of what it tells."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from lakefs_gc.demo import ui
from lakefs_gc.demo.stage import LANDING, UNTIL_OLD_ENOUGH_SECONDS, Stage
from lakefs_gc.demo.story import DAYS_DEFAULT, DAYS_MAIN, KEPT, REPOSITORY, Fate, Version
from lakefs_gc.engine.records.backups.location import find_backup
from lakefs_gc.engine.records.ledger import RESURRECTED
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.mark_parts import read_part
from lakefs_gc.engine.records.stored_marks import Marked, open_namespace
from lakefs_gc.engine.run import RunContext, new_run_key
from lakefs_gc.engine.undo.restore import RestoreResult, restore
from lakefs_gc.engine.undo.restore_source import RestoreSource
from lakefs_gc.engine.workspace.workspace import Workspace, utc_now
from lakefs_gc.errors import ApprovalError, SafetyError
from lakefs_gc.pipeline.assets.backup import BackupConfig
from lakefs_gc.pipeline.assets.sweep import SweepConfig
from lakefs_gc.pipeline.assets.sweep_approval import ApprovalConfig
from lakefs_gc.pipeline.resources.spark import SparkResource
from lakefs_gc.pipeline.session import GCSession
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.terminal.output import Output
from lakefs_gc.units import human_bytes

_REVIVED = "events/day-060/part-00.parquet"
_RESTORED = "events/day-050/"


def play(out: Output, *, store: str, ui_port: int | None, compiled: bool = False) -> None:
    """Run the demo with a ``local``, ``s3``, ``azure`` or ``gcs`` store.

    With ``ui_port``, keep Dagster's UI open until interrupted.

    ``compiled``: Spark compiles its plans, and Java its code, as in runs of real repositories.

    Raises ``SafetyError`` if one of its claims does not hold.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakefs-gc-demo-")))
        stage = Stage(folder, stack, store, compiled=compiled)
        with stage.spark_starting():
            show_beginning(out, stage, store)
            old_enough_at = time.monotonic() + UNTIL_OLD_ENOUGH_SECONDS
        with GCSession.open(stage.settings) as session:
            time.sleep(max(0.0, old_enough_at - time.monotonic()))
            Act(stage, session, out).play()
            out.say(f"\nDone in {time.monotonic() - began:.0f} s.")
            if ui_port is None:
                return
            stage.storyteller.more_garbage()
            time.sleep(UNTIL_OLD_ENOUGH_SECONDS)
            with out.progress("marking"):
                session.mark(new_run_key(REPOSITORY, utc_now()))
            out.say("A second mark waits for your approval in the UI.")
        ui.serve(out, stage.environment, ui_port)


def show_beginning(out: Output, stage: Stage, store: str) -> None:
    """Build the repository, and show what happened on each branch."""
    where = {"local": "files", "s3": "an S3 server", "azure": "Azurite", "gcs": "fake-gcs-server"}[store]
    out.say(f"A lakeFS-compatible server, {stage.credentials.endpoint_url}, on {where} in {stage.folder}")
    out.heading(f"1. A data lake: main retains {DAYS_MAIN} days, other branches {DAYS_DEFAULT} days")
    branches = stage.storyteller.tell(stage.namespace, stage.lake, LANDING, stage.landing_url)
    out.show_table(("branch", "what happened"), list(branches))


@dataclass
class Proofs:
    """The claims of the demo, each checked in the repository."""

    rows: list[tuple[str, str, int, int]] = field(default_factory=list)

    def add(self, claim: str, holding: int, total: int) -> None:
        """Add a claim that holds for ``holding`` of ``total`` things, and must hold for all, and for at least one."""
        self.rows.append(("✓" if holding == total > 0 else "✗", claim, holding, total))

    @property
    def broken(self) -> list[str]:
        """Return the claims that do not hold."""
        return [claim for tick, claim, _, _ in self.rows if tick != "✓"]


class Act:
    """The steps of the demo on its servers."""

    def __init__(self, stage: Stage, session: GCSession, out: Output) -> None:
        self._stage, self._session, self._out = stage, session, out
        self._story, self._proofs = stage.storyteller, Proofs()
        self._store = open_namespace(REPOSITORY, stage.server, stage.settings).store

    def play(self) -> None:
        """Mark, be refused, approve, sweep and restore. Then show the proofs, all of which must hold."""
        fates = self._story.fates()
        marked = self._mark(fates)
        self._refuse(marked)
        revived = self._approve(marked)
        swept = self._sweep(marked, revived)
        self._verify(fates, revived, swept)
        self._restore(marked, [version for version in swept if version.path.startswith(_RESTORED)])
        self._out.heading("6. Proofs: all of this was checked after it happened")
        rows = [(tick, claim, f"{holding:,} of {total:,}") for tick, claim, holding, total in self._proofs.rows]
        self._out.show_table(("", "claim", "holds for"), rows)
        if self._proofs.broken:
            raise SafetyError(
                f"The demo could not verify: {'; '.join(self._proofs.broken)}",
                remedy="Report this with the output above",
            )

    def _mark(self, fates: list[Fate]) -> Marked:
        self._out.heading("2. The mark: what may be deleted, and why")
        with self._out.progress("marking"):
            facts = self._session.mark(new_run_key(REPOSITORY, utc_now()))
        marked = self._stage.open(facts["mark_id"])
        sizes, reasons = _marked_objects(marked)
        rows, right = [], 0
        for fate in fates:
            keys = [self._key(version) for version in fate.versions]
            decided = [reasons.get(key, KEPT) for key in keys]
            right += sum(decision == fate.decision for decision in decided)
            decision = ", ".join(sorted({"keep" if reason == KEPT else "delete" for reason in decided}))
            size = human_bytes(sum(sizes.get(key, 0) for key in keys)) if decision == "delete" else ""
            rows.append((decision, fate.paths, len(keys), size, fate.why))
        self._out.show_table(("decision", "path", "objects", "size", "why"), rows)
        mark, uploads = marked.mark, sum(len(fate.versions) for fate in fates)
        size = human_bytes(mark.candidate_bytes or 0)
        self._out.say(f"Marked: {mark.candidates:,} objects, {size}. Nothing is deleted yet. Mark {mark.mark_id}")
        self._proofs.add("each uploaded object is marked or kept as the table says", right, uploads)
        expected = {self._key(version) for fate in fates if fate.decision != KEPT for version in fate.versions}
        self._proofs.add("each marked object is in the table", len(expected & reasons.keys()), len(reasons))
        return marked

    def _refuse(self, marked: Marked) -> None:
        self._out.heading("3. A sweep without an approval is refused")
        refused = ""
        with self._out.progress("sweeping"):
            try:
                self._session.sweep(marked.mark.run_key, SweepConfig(mark_id=marked.mark.mark_id))
            except ApprovalError as error:
                refused = error.message
        self._out.say(f"Refused: {refused}." if refused else "The sweep was not refused.")
        remaining = self._existing(self._key(v) for fate in self._story.fates() for v in fate.versions)
        stored = sum(version.address.startswith(self._stage.namespace) for version in self._versions())
        self._proofs.add("the sweep without an approval was refused", int(bool(refused)), 1)
        self._proofs.add("after the refusal every object is still in the store", len(remaining), stored)

    def _approve(self, marked: Marked) -> tuple[Version, ...]:
        self._out.heading("4. Backup, approval, sweep")
        mark = marked.mark
        with self._out.progress("backing up"):
            self._session.backup(mark.run_key, BackupConfig(mark_id=mark.mark_id))
        self._out.say(f"Backup:   {mark.candidates:,} objects copied and verified")
        config = ApprovalConfig(mark_id=mark.mark_id, digest=mark.digest, approved_by="the demo")
        self._session.approve(mark.run_key, config)
        self._out.say(f"Approval: by the demo, of the content with the digest {mark.digest[:19]}…")
        revived = self._story.branch_from_oldest("audit", _REVIVED)
        self._out.say(
            f"Then:     a colleague creates the branch audit from an old commit with {len(revived)} marked objects"
        )
        return revived

    def _sweep(self, marked: Marked, revived: tuple[Version, ...]) -> list[Version]:
        """Have the sensor start the sweep, and return what was deleted."""
        before = _stored_bytes(self._store)
        with self._out.progress("sweeping"):
            self._session.sweep_approved()
        freed = before - _stored_bytes(self._store)
        outcomes = json.loads(marked.store.read(MarkPaths.of(marked.mark.mark_id).sweep_summary))["outcomes"]
        deleted, kept = outcomes["deleted"], outcomes[RESURRECTED]
        self._out.say(
            f"Sweep:    {deleted['objects']:,} objects deleted, {human_bytes(deleted['size_bytes'])} freed; "
            f"{kept['objects']:,} kept, because the second look saw the branch audit"
        )
        spared = {version.address for version in revived}
        _, reasons = _marked_objects(marked)
        swept = [v for v in self._versions() if self._key(v) in reasons and v.address not in spared]
        self._proofs.add(
            "each deleted object is gone from the store",
            len(swept) - len(self._existing(map(self._key, swept))),
            deleted["objects"],
        )
        self._proofs.add("each byte that was freed is one that the sweep counted", freed, deleted["size_bytes"])
        return swept

    def _verify(self, fates: list[Fate], revived: tuple[Version, ...], swept: list[Version]) -> None:
        places = self._story.places()
        kept = [v for fate in fates if fate.decision == KEPT for v in fate.versions]
        for claim, versions in (
            ("each kept object reads through lakeFS as it was uploaded", kept),
            ("each object of the branch audit reads as it was uploaded", list(revived)),
        ):
            self._proofs.add(claim, self._unchanged(versions, places), len(versions))
        shown = [places[version.address] for version in swept if version.address in places]
        gone = sum(self._story.is_gone(*place) for place in shown)
        self._proofs.add("old commits answer 410 Gone for deleted objects", gone, len(shown))

    def _restore(self, marked: Marked, versions: list[Version]) -> None:
        self._out.heading(f"5. Undo: {_RESTORED} was needed after all")
        with self._out.progress("restoring"):
            result = self._restored(marked)
        restored = result.objects["restored"]
        self._out.say(f"Restored: {restored:,} objects from the backup; the old commits show them again")
        self._proofs.add(
            "each restored object reads as it was uploaded", self._unchanged(versions, self._story.places()), restored
        )

    def _restored(self, marked: Marked) -> RestoreResult:
        settings, location = self._stage.settings, StoreLocation(self._stage.settings.backup.url)
        context = RunContext(
            compute=SparkResource(spark_config=dict(settings.spark)),
            connect=lambda: self._stage.server,
            settings=settings,
            workspace=Workspace(settings.resolved_work_url(), utc_now),
            clock=utc_now,
            open_store=open_store,
        )
        backup = find_backup(open_store(location), marked.mark.mark_id, REPOSITORY)
        return restore(context, RestoreSource(backup, location, marked.store.location), prefix=_RESTORED)

    def _versions(self) -> list[Version]:
        return [version for fate in self._story.fates() for version in fate.versions]

    def _key(self, version: Version) -> str:
        return version.address.removeprefix(self._stage.namespace + "/")

    def _existing(self, keys: Iterable[str]) -> set[str]:
        return set(self._store.stat_many(sorted(key for key in keys if key.startswith("data/"))))

    def _unchanged(self, versions: list[Version], places: dict[str, tuple[str, str]]) -> int:
        found = (version for version in versions if version.address in places)
        return sum(self._story.checksum(*places[version.address]) == version.sha256 for version in found)


def _marked_objects(marked: Marked) -> tuple[dict[str, int], dict[str, str]]:
    """Return the size and the reason of each marked object."""
    rows = [row for part in marked.mark.parts for row in read_part(marked.store, part).to_pylist()]
    return {row["address"]: row["size"] for row in rows}, {row["address"]: row["reason"] for row in rows}


def _stored_bytes(store: ObjectStore) -> int:
    return sum(sum(batch.column("size").to_pylist()) for batch in store.list("data/"))
