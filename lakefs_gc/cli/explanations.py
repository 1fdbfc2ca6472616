"""Opens what ``explain`` and ``prove-erased`` read, and prints their answers. Needs neither Dagster nor Java."""

from __future__ import annotations

from collections.abc import Iterator

from lakefs_gc.config import Settings, load_server_credentials
from lakefs_gc.engine.explain.answers import CommitFacts, Explanation, PathHistory, State
from lakefs_gc.engine.explain.erasure import ErasureProof
from lakefs_gc.engine.explain.mark_records import Marking
from lakefs_gc.engine.explain.sources import Sources, open_sources
from lakefs_gc.engine.explain.words import day, short
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.units import human_bytes

_MOST = 5
"""Lines of one kind that are printed; ``--json`` has all."""


def sources_of(settings: Settings, repository: str) -> Sources:
    """Return what answers about a repository are made from."""
    server = LakeFSClient(load_server_credentials(), settings.lakefs)
    return open_sources(repository, server, settings, Workspace(settings.resolved_work_url()))


def explanation_lines(answer: Explanation) -> Iterator[str]:
    """Yield an explanation as text, without what was looked at."""
    yield answer.asked if answer.asked == answer.address or not answer.address else f"{answer.asked} = {answer.address}"
    size = "the store could not be asked for this key" if answer.state is State.UNKNOWN else "not in the store"
    if answer.size_bytes is not None and answer.last_modified is not None:
        size = f"{human_bytes(answer.size_bytes)}, last modified {day(answer.last_modified)}"
    yield f"  {answer.state.value.replace('_', ' ')}: {size}"
    for path in answer.paths[:_MOST]:
        yield f"  path {path.path}: {_shown(path)}"
    for keeper in answer.kept_by[:_MOST]:
        yield f"  kept by: {keeper.what}"
    if answer.kept_until:
        yield f"  until: {answer.kept_until}"
    if answer.expired:
        yield f"  {answer.expired}"
    for mark in answer.marks[:_MOST]:
        yield f"  mark {mark.mark_id} of {day(mark.created_at)}: {_swept(mark)}"
    for copy in answer.copies[:_MOST]:
        yield f"  copy: {copy}"
    for advice in answer.would_keep:
        yield f"  would keep it: {advice}"
    for note in answer.notes:
        yield f"  note: {note}"


def _shown(path: PathHistory) -> str:
    if path.first is None or path.last is None:
        return "in no commit that can be listed"
    ended = f", ended by {', '.join(map(_commit, path.ended_by[:_MOST]))}" if path.ended_by else ""
    if path.commits == 1:
        return f"in commit {_commit(path.first)}{ended}"
    return f"in {path.commits:,} commits, from {_commit(path.first)} to {_commit(path.last)}{ended}"


def _commit(commit: CommitFacts) -> str:
    branch = f" on {commit.branch}" if commit.branch else ""
    return f"{short(commit.id)} ({day(commit.created_at)}{branch})"


def _swept(mark: Marking) -> str:
    reason = (mark.reason or "reason not recorded").replace("_", " ")
    if mark.outcome is None:
        return f"{reason}, not swept"
    by = f", approved by {mark.outcome.approved_by}" if mark.outcome.approved_by else ""
    error = f" ({mark.outcome.error})" if mark.outcome.error else ""
    outcome = mark.outcome.outcome.replace("_", " ")
    restored = f", restored {day(mark.restored_at)}" if mark.restored_at else ""
    return f"{reason}, {outcome} by the sweep of {day(mark.outcome.recorded_at)}{by}{error}{restored}"


def looks(looked_at: tuple[str, ...], not_looked_at: tuple[str, ...]) -> Iterator[str]:
    """Yield what was looked at, and everything that could not be looked at."""
    yield f"looked at: {'; '.join(looked_at)}"
    for each in not_looked_at:
        yield f"NOT looked at: {each}"


def proof_lines(proof: ErasureProof) -> Iterator[str]:
    """Yield the report about an erasure as text."""
    for each in proof.objects:
        yield f"{each.verdict.value}: {each.explanation.asked} = {each.explanation.address}"
        for line in (*each.remains, *each.deleted_by):
            yield f"  {line}"
    yield from looks(proof.looked_at, proof.not_looked_at)
    for line in (*proof.stated, *proof.limits):
        yield f"note: {line}"
    yield f"{proof.verdict.value}: {len(proof.objects):,} objects at {', '.join(proof.paths)}"
    yield f"digest {proof.digest}"
