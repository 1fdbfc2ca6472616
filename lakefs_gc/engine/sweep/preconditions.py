"""Decides whether a mark may be swept, before the sweep waits or deletes anything (rules 5, 8, 9 and 12)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.collect.references.other_repositories import probe
from lakefs_gc.engine.decide.shown.value_filter import ValueFilter
from lakefs_gc.engine.records.approval import (
    POLICY,
    VIA_SWEEP_COMMAND,
    Approval,
    approve,
    is_approved,
    read_approval,
    refuse_other_digest,
    refuse_part_approved,
    refuse_without_person,
)
from lakefs_gc.engine.records.backups.location import require_backup
from lakefs_gc.engine.records.backups.manifest import Backup
from lakefs_gc.engine.records.check import CHECKS, refuse_failed_checks
from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.restore_log import notes, refuse_restored
from lakefs_gc.engine.records.stored_marks import Marked, age_of, mark_folders, refuse_unfit
from lakefs_gc.engine.run import GCRun, RunContext, begin_run
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.sweep.at_mark import Accepted, any_size_at_mark
from lakefs_gc.engine.sweep.client_marks import ClientMarkChecks
from lakefs_gc.engine.sweep.second_look import SecondLook, second_look_at
from lakefs_gc.engine.workspace.workspace import Clock
from lakefs_gc.errors import ApprovalError, ConfigurationError, MarkError, StorageError
from lakefs_gc.storage.base import ObjectStore, VersionedTarget
from lakefs_gc.storage.freed_space import hides_versions


@dataclass(frozen=True)
class SweepPermit:
    """The right to sweep a mark or its part ``only``, and what the sweep needs. ``check_preconditions`` makes it.

    ``known_restores`` are the notes of restores that are older than the approval. ``backup`` is None if none is
    required. ``named_at_root`` and ``any_size`` are those of ``ClientMarkFindings``.
    """

    marked: Marked
    approval: Approval
    backup: Backup | None
    known_restores: frozenset[str]
    accepted: Accepted
    named_at_root: str
    any_size: ValueFilter | None
    only: Scope

    def second_look(self, context: RunContext, run_key: str) -> tuple[GCRun, SecondLook]:
        """Begin the run of the sweep, and return it with its second look. Raises ``MarkError`` as ``refuse_unfit``.

        A name of the namespace that was known at the mark is known now, also if no mount tells it any more.
        """
        run = begin_run(context, run_key)
        mark = self.marked.mark
        refuse_unfit(mark, run.server)
        names = dict.fromkeys((*run.server_folders, *mark.run.get("server_folders", ())))
        run = replace(run, server_folders=tuple(names))
        return run, second_look_at(context, run, mark, self.accepted, self.any_size)


def check_preconditions(context: RunContext, run_key: str, marked: Marked, only: Scope = Scope.all) -> SweepPermit:
    """Return the permit to sweep an approved mark, or an approved part of it.

    Raises ``ApprovalError`` without a valid approval, ``BackupError`` without a required backup, ``ConfigurationError``
    or ``StorageError`` if the settings ask for versions to be deleted where that is impossible, ``MarkError`` for a
    mark of another server, without the result of a check or without the part, ``SafetyError`` for a failed check that
    the approval does not override, and what ``probe`` raises for other repositories that cannot be read.
    """
    mark = marked.mark
    # Before the approval is read: a restore that begins afterwards is unknown, and stops the sweep.
    known_restores = frozenset(notes(marked.store, mark.mark_id))
    mark.refuse_no_part(only)
    approval = read_approval(marked.store, mark, only)
    backup = require_backup(context.settings, mark, context.server.endpoint_url)
    if context.settings.sweep.delete_versions:
        refuse_unlisted_versions(marked.store, mark, context.clock())
    run = begin_run(context, run_key)
    refuse_unfit(mark, run.server)
    accepted = Accepted.of(mark, approval.overrides)
    checks = mark.checks
    named_at_root = ""
    any_size = any_size_at_mark(context, mark)
    _refuse_missing_checks(mark)
    if not mark.is_ours:
        checks, accepted, named_at_root, any_size = ClientMarkChecks(context).evaluate(run, mark, accepted)
    refuse_failed_checks(
        checks,
        approval.overrides,
        repository=mark.repository,
        mark_id=mark.mark_id,
        age=age_of(marked.store, mark, context.safety).most,
        safety=context.safety,
    )
    probe(context, mark.repository, accepted.others)
    return SweepPermit(marked, approval, backup, known_restores, accepted, named_at_root, any_size, only)


def refuse_unlisted_versions(store: ObjectStore, mark: Mark, now: datetime) -> None:
    """Raise ``StorageError`` if a store that keeps versions lists none of a file of the mark, which exists.

    Its empty lists do not prove that the marked objects have no versions. Raise ``ConfigurationError`` for a store
    whose versions cannot be deleted, before the sweep waits for commits. A folder through which a mount leads to an
    object store has none, whatever is kept there.
    """
    if hides_versions(store, mark.namespace):
        raise ConfigurationError(
            f"sweep.delete_versions is set, but `mounts` leads from {mark.namespace} to {store.location.url}, "
            "a folder. It does not show the versions of the objects, so they would stay",
            remedy="Remove this mount, so that the sweep reaches the object store itself, or set sweep.delete_versions "
            "to false",
        )
    summary = MarkPaths.of(mark.mark_id).summary
    [found] = store.find_versions([VersionedTarget(summary, None, now)])
    if not found.ids and store.space_not_freed():
        raise StorageError(
            f"{store.location.folder_url}{summary} exists in a store that keeps versions, and no version of it is "
            "listed. So versions of the marked objects could stay unnoticed",
            remedy="Check the proxies between this machine and the store, or set sweep.delete_versions to false",
        )


def _refuse_missing_checks(mark: Mark) -> None:
    missing = CHECKS.keys() - {check.name for check in mark.checks}
    if mark.is_ours and missing:
        raise MarkError(
            f"mark {mark.mark_id} does not record the result of these checks: {', '.join(sorted(missing))}",
            remedy="Mark again",
        )


def approve_if_needed(
    marked: Marked,
    digest: str,
    *,
    by: str,
    via: str,
    is_repeated: bool,
    safety: SafetyParameters,
    clock: Clock,
    only: Scope = Scope.all,
) -> None:
    """Approve a mark, or its part ``only``, that has no approval yet, if ``digest`` is not empty.

    A ``digest`` of another mark is refused even if this one is approved: the run was started for the other mark.
    ``is_repeated``: an earlier run is executed again, with the approval of the person who started that one. Raises
    ``ApprovalError`` for another digest, if a policy, a repeated run or the sweep command would approve a mark that was
    restored, and if a policy would approve a mark that was not made for it, or of which a part was approved. Also
    raises what ``approve`` raises.
    """
    if not digest:
        return
    refuse_other_digest(marked.mark, digest)
    if is_approved(marked.store, marked.mark, only):
        return
    age = age_of(marked.store, marked.mark, safety)
    # A script may repeat the sweep command that a restore has stopped: only an approval of its own shows a decision.
    if is_repeated or via == VIA_SWEEP_COMMAND or via.startswith(POLICY):
        refuse_restored(marked.store, marked.mark.mark_id, frozenset())
    if via.startswith(POLICY):
        refuse_without_person(marked.mark, age.least, safety)
        refuse_part_approved(marked.store, marked.mark)
        _refuse_restored_since(marked.store, marked.mark)
    approve(marked.store, marked.mark, digest, by=by, via=via, now=clock(), age=age.most, safety=safety, only=only)


def _refuse_restored_since(store: ObjectStore, mark: Mark) -> None:
    """Raise ``ApprovalError`` if any mark of the namespace was restored since this one was made.

    It may have the same objects. Those that the restore did not have to bring back are not newer than this mark.
    """
    for mark_id in mark_folders(store):
        if any(at >= mark.created_at for at in notes(store, mark_id).values()):
            raise ApprovalError(
                f"Mark {mark_id} was restored since mark {mark.mark_id} was made, which may have the same objects: so "
                "only a person can approve it",
                remedy="Review the mark with `lakefs-gc show`, then approve it with `lakefs-gc approve`, or make a new "
                "one",
            )
