"""Explains single objects: what keeps one and until when, why one is garbage, or what deleted one.

The answer comes from the server and the store as they are now, from the records in the namespace, and, for what takes a
run to find out, from the last run in the workspace. Nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from lakefs_gc.engine.collect.listing.foreign_names import NAMED_AT_ROOT
from lakefs_gc.engine.decide.matching.unmatched import LONGEST_UPLOAD
from lakefs_gc.engine.explain.answers import REFERENCES, Explanation, Keeper, KeptBy, PathHistory, State
from lakefs_gc.engine.explain.copies.remaining import find_backups, find_versions
from lakefs_gc.engine.explain.copies.unfinished import find_parts, find_unfinished, has_parts
from lakefs_gc.engine.explain.history import Sighting
from lakefs_gc.engine.explain.keepers import Commits, tags_of
from lakefs_gc.engine.explain.mark_records import Marking, find_markings
from lakefs_gc.engine.explain.sources import (
    Asked,
    Place,
    Sources,
    namespaces_of_others,
    of_last_run,
    resolve,
    staged,
    twins,
)
from lakefs_gc.engine.explain.stored import look_up
from lakefs_gc.engine.explain.words import day, short
from lakefs_gc.engine.run import effective_min_age_seconds
from lakefs_gc.engine.spark import schemas
from lakefs_gc.errors import SafetyError
from lakefs_gc.formats.candidate_addresses import UPLOAD_PART_REGEX, has_unrecognized_name, is_candidate_address
from lakefs_gc.lakefs.active_commits import Commit
from lakefs_gc.storage.base import ObjectInfo
from lakefs_gc.units import human_duration

Found = dict[str, list[Place]]


def explain(sources: Sources, words: Iterable[str], *, thorough: bool = False) -> list[Explanation]:
    """Return an explanation of each object that a user names (``resolve``), in their order.

    An address that may mean several objects has an explanation of each. Without ``thorough``, staged objects and hidden
    twins since the last run are looked up only if they are few; an explanation says if they were not.

    Raises ``ConfigurationError`` for what names no object of the repository, and the errors of the server and the
    store.
    """
    asked = [resolve(sources, each) for each in words]
    addresses = sorted({address for one in asked for address in one.addresses})
    facts = Facts(sources, addresses, thorough=thorough)
    explanations = []
    for one in asked:
        explanations += [facts.explanation(one, address) for address in one.addresses]
        if not one.addresses:
            explanations.append(Explanation(one.words, "", State.NOT_SHOWN, notes=(_not_shown(one),)))
    looked_at, not_looked_at = tuple(sources.looked_at), tuple(dict.fromkeys(sources.not_looked_at))
    return [replace(each, looked_at=looked_at, not_looked_at=not_looked_at) for each in explanations]


def _not_shown(asked: Asked) -> str:
    ref, path = asked.shown_by or ("", "")
    return f"{ref} shows no object at {path}. `lakefs-gc prove-erased` lists the objects that commits had there"


class Facts:
    """Everything that was found out about the objects that are asked about.

    ``backup_urls``: the backup locations that marks recorded. ``unfinished``: whether copies that did not end are
    looked for, too.
    """

    def __init__(
        self,
        sources: Sources,
        addresses: Sequence[str],
        *,
        thorough: bool,
        backup_urls: Collection[str] = (),
        unfinished: bool = False,
    ) -> None:
        self.sources, self._is_proof = sources, unfinished
        history, store = sources.history, sources.store
        self.commits = Commits(history, sources.settings.safety.protect, sources.now)
        self.sightings: dict[str, list[Sighting]] = {address: [] for address in addresses}
        for sighting in history.sightings(addresses):
            self.sightings[sighting.address].append(sighting)
        self.shown = history.showing({s.range_id for found in self.sightings.values() for s in found})
        # Before the store is asked for the objects: a write that ends in between is in one of the two answers.
        begun = find_unfinished(store, {address: address for address in addresses if unfinished})
        looked_up = look_up(store, addresses)
        self.stored, self.not_asked = looked_up.objects, looked_up.not_asked
        self.markings = find_markings(store, sources.repository, sources.namespace, addresses)
        sources.looked_at.append(f"{len(self.markings.marks):,} marks, with the ledgers of their sweeps")
        asked = [address for address in addresses if address not in self.not_asked]
        marks_of = {address: [marking.mark_id for marking in self.markings.of[address]] for address in asked}
        versions = find_versions(store, asked)
        # With the rest that writes may have left: only a proof asks for it.
        parts = unfinished and has_parts(sources.namespace, store.location.url)
        of_uploads = find_parts(store, {address: address for address in asked if parts})
        backups = find_backups(
            sources.settings.backup,
            sources.repository,
            sources.known.folders,
            marks_of,
            others=namespaces_of_others(sources) if backup_urls or sources.settings.backup.url else (),
            recorded=backup_urls,
            unfinished=unfinished,
            parts=parts,
        )
        refused = [
            f"{address}: the store could not be asked for this key: {why}" for address, why in self.not_asked.items()
        ]
        self.unread = (*history.unread, *self.markings.unread, *refused, *versions.unread, *backups.unread)
        self.unread += begun.unread
        self.unread += of_uploads.unread
        sources.not_looked_at += self.unread
        found = (begun.of, of_uploads.of, versions.of, backups.of)
        self.copies = {address: tuple(text for of in found for text in of.get(address, ())) for address in asked}
        self._look_beside_commits(addresses, thorough)

    def _look_beside_commits(self, addresses: Sequence[str], thorough: bool) -> None:
        """Look up staged objects, hidden twins, and what the last run found in other repositories."""
        sources, self.twins = self.sources, Found()
        sizes = {info.size_bytes for info in self.stored.values()}
        lost = not self._is_proof and any(self._may_be_lost(address) for address in addresses)
        found = staged(sources, None if lost else sizes, thorough=thorough) if sizes or lost else {}
        self.staged = found or {}
        kept_forever = {
            address
            for address in self.stored
            if self.staged.get(address) or any(k.until is None for k in self.commits.keepers(self._commits_of(address)))
        }
        alone = {info.size_bytes for address, info in self.stored.items() if address not in kept_forever}
        if alone:
            self.twins = twins(sources, alone, thorough=thorough)
        self.foreign = of_last_run(sources, "foreign_references", "repository", addresses, "other repositories")
        self.kept = of_last_run(
            sources, "kept", "why", addresses, "hidden twins, and objects that were kept unverified"
        )
        self.listed: Mapping[str, list[str]] = {}
        unlisted = addresses if found is None else [address for address in addresses if address not in self.stored]
        if unlisted:
            self.listed = of_last_run(sources, "uncommitted", "address", unlisted, "objects that were staged")
        facts = sources.last_run.facts("foreign_references")
        if facts.get("switched_off"):
            sources.not_looked_at.append("other repositories: safety.check_foreign_references is false")
        for name, why in {**facts.get("unreadable", {}), **facts.get("not_asked", {})}.items():
            sources.not_looked_at.append(f"repository {name}: {why}")
        if sources.settings.safety.protect.days and sources.history.unreachable:
            sources.not_looked_at.append(
                "metaranges of deleted branches, which safety.protect.days keeps: only a run reads them"
            )

    def _may_be_lost(self, address: str) -> bool:
        """Return whether an object is lost if a branch shows it: nothing else says so, or that a sweep deleted it.

        Its size is unknown, so all that is staged is looked up.
        """
        return (
            address not in self.stored
            and address not in self.not_asked
            and not any(marking.is_deleted for marking in self.markings.of[address])
            and not any(keeper.by in REFERENCES for keeper in self.commits.keepers(self._commits_of(address)))
        )

    def explanation(self, asked: Asked, address: str) -> Explanation:
        """Return what is known about one object."""
        sightings, info = self.sightings[address], self.stored.get(address)
        commits = self._commits_of(address)
        paths = self.commits.paths(sightings, self.shown)
        keepers = self._keepers(asked, address, info, commits, sightings)
        marks = tuple(self.markings.of[address])
        state = State.UNKNOWN if address in self.not_asked else _state(info, marks, keepers)
        is_garbage = state in (State.MARKED, State.UNREFERENCED)
        return Explanation(
            asked=asked.words,
            address=address,
            state=state,
            size_bytes=info.size_bytes if info else None,
            last_modified=info.last_modified if info else None,
            paths=paths,
            kept_by=tuple(keepers),
            kept_until=_kept_until(keepers),
            expired=self.commits.expired(commits) if self.sources.history.rules else "",
            marks=marks,
            copies=self.copies.get(address, ()),
            would_keep=tuple(self._would_keep(paths, commits)) if is_garbage else (),
            notes=(*self._notes(sightings, commits), *self._looks_of_marks(marks)),
        )

    def _commits_of(self, address: str) -> dict[str, Commit]:
        return {commit.id: commit for sighting in self.sightings[address] for commit in self.shown[sighting.range_id]}

    def _keepers(
        self,
        asked: Asked,
        address: str,
        info: ObjectInfo | None,
        commits: Mapping[str, Commit],
        sightings: Collection[Sighting],
    ) -> list[Keeper]:
        keepers = [*self._never_collected(address)]
        keepers += self.commits.keepers(commits)
        history, run = self.sources.history, self.sources.last_run
        if history.rules is None and sightings and not commits:
            ends = "never: without retention rules every metadata file keeps its objects"
            keepers.append(Keeper(KeptBy.NO_RULES, "a range of a commit that cannot be listed", ends))
        shown = [place for place in [asked.shown_by] if place and place[0] in history.heads]
        for branch, path in dict.fromkeys([*self.staged.get(address, ()), *shown]):
            if history.heads[branch] not in commits:
                ends = f"when branch `{branch}` no longer shows it at this path"
                keepers.append(Keeper(KeptBy.STAGED, f"branch `{branch}` shows it at {path}, not committed", ends))
        for branch, path in self.twins.get(address, ()):
            if history.heads[branch] not in commits and not any(k.by is KeptBy.STAGED for k in keepers):
                ends = f"when branch `{branch}` no longer shows it at this path"
                what = f"branch `{branch}` shows it at {path}, although it lists no change (a hidden twin)"
                keepers.append(Keeper(KeptBy.HIDDEN_TWIN, what, ends))
        for why in self.kept.get(address, ()):
            if why == schemas.KEPT_UNVERIFIED:
                ends = "unknown: each run looks it up again"
                keepers.append(Keeper(KeptBy.UNVERIFIED, f"it could not be looked up by {run.name}", ends))
            elif why == schemas.SHOWN_BY_BRANCH and not keepers:
                ends = "when no branch shows it any more"
                keepers.append(Keeper(KeptBy.HIDDEN_TWIN, f"a branch showed it during {run.name}", ends))
        if address in self.listed:
            ends = "when no branch shows it any more"
            keepers.append(Keeper(KeptBy.STAGED, f"the server listed it as staged for {run.name}", ends))
        for prefix in self.sources.settings.safety.protect.path_prefixes:
            if path := next((s.path for s in sightings if s.path.startswith(prefix)), ""):
                ends = "not while safety.protect.path_prefixes has this prefix"
                keepers.append(Keeper(KeptBy.PROTECTED_PATH, f"a commit has it at {path}, below {prefix}", ends))
        for repository in sorted(set(self.foreign.get(address, ()))):
            ends = f"when no metadata file of {repository} refers to it any more"
            keepers.append(Keeper(KeptBy.OTHER_REPOSITORY, f"repository {repository} refers to it ({run.name})", ends))
        if info:
            keepers += self._too_new(address, info)
        return keepers

    def _never_collected(self, address: str) -> Iterable[Keeper]:
        if not is_candidate_address(address):
            what = "it is not below data/, and not an object directly at the root: never collected"
            yield Keeper(KeptBy.NEVER_COLLECTED, what, "never")
        elif has_unrecognized_name(address) and not self.sources.last_run.facts("candidates").get(NAMED_AT_ROOT):
            what = "lakeFS does not generate such names at the root: it may belong to another program"
            yield Keeper(KeptBy.NEVER_COLLECTED, what, "when the repository itself refers to such a name")

    def _too_new(self, address: str, info: ObjectInfo) -> Iterable[Keeper]:
        safety, server = self.sources.settings.safety, self.sources.server
        try:
            min_age = timedelta(seconds=effective_min_age_seconds(safety, server.grace_period_seconds()))
        except SafetyError as error:
            self.sources.not_looked_at.append(f"the minimum age: {error.message}")
            return
        if re.match(UPLOAD_PART_REGEX, address):
            min_age += LONGEST_UPLOAD
        until = info.last_modified + min_age
        if until > self.sources.now:
            what = f"it is newer than the minimum age of {human_duration(min_age.total_seconds())}"
            yield Keeper(KeptBy.TOO_NEW, what, "it is older than the minimum age then", until)

    def _looks_of_marks(self, marks: Sequence[Marking]) -> Iterable[str]:
        """Say for each mark that a sweep may follow where its run looked for references."""
        for mark in self.markings.marks:
            if not any(marking.mark_id == mark.mark_id and marking.is_pending for marking in marks):
                continue
            counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in mark.counts.items())
            unread = sorted({*mark.unreadable, *mark.not_asked})
            others = f"all but {', '.join(unread)}" if unread else "all"
            yield f"mark {mark.mark_id} looked at: {counts or 'unknown'}; other repositories: {others}"

    def _would_keep(self, paths: Collection[PathHistory], commits: Mapping[str, Commit]) -> list[str]:
        advice = self.commits.would_keep(paths, commits)
        return advice or ["a commit, or a staged entry, that refers to it"]

    def _notes(self, sightings: Collection[Sighting], commits: Mapping[str, Commit]) -> Iterable[str]:
        if not sightings:
            yield "no commit that can be read has it: it was never committed, or its metadata files are gone"
        elif not commits:
            yield "only commits that no branch and no tag reaches have it, for example of a deleted branch"
        if tags := tags_of(self.sources.history, commits):
            ids = sorted({short(self.sources.history.tags[tag]) for tag in tags})
            yield f"tag {', '.join(tags[:5])} shows it (commit {', '.join(ids[:5])}), but tags retain nothing in lakeFS"


def _state(info: ObjectInfo | None, marks: Sequence[Marking], keepers: Sequence[Keeper]) -> State:
    if info is None:
        if any(mark.is_deleted for mark in marks):
            return State.DELETED
        return State.MISSING if any(keeper.by in REFERENCES for keeper in keepers) else State.NOT_IN_STORE
    if any(mark.is_pending for mark in marks):
        return State.MARKED
    return State.KEPT if keepers else State.UNREFERENCED


def _kept_until(keepers: Sequence[Keeper]) -> str:
    """Return when the last keeper ends: one without a known end before all others."""
    if not keepers:
        return ""
    last = max(keepers, key=lambda keeper: (keeper.until is None, keeper.until or 0))
    return last.ends if last.until is None else f"{day(last.until)}: {last.ends}"
