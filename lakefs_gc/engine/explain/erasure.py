"""Proves that the content at paths is erased: every object that was ever there, and every copy of it.

The objects are those that any readable metadata file has at the paths, also files of commits that no branch reaches,
and those that branches show there now, and those that a mark recorded there. For each, the store is asked whether it
exists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import product
from typing import Any

from lakefs_gc import __version__
from lakefs_gc.engine.explain.answers import Explanation, State, as_json
from lakefs_gc.engine.explain.blindness import why_blind, why_no_witness
from lakefs_gc.engine.explain.copies.found import FORMER_LOCATION, NO_LOCATION, OTHER_FOLDER
from lakefs_gc.engine.explain.copies.served import Served, find_served
from lakefs_gc.engine.explain.copies.store_of_lakefs import why_not_the_store_of_lakefs
from lakefs_gc.engine.explain.copies.unfinished import find_of_unknown_paths
from lakefs_gc.engine.explain.explain import Facts
from lakefs_gc.engine.explain.mark_records import Outcome
from lakefs_gc.engine.explain.recorded_facts import Recorded, recorded_facts
from lakefs_gc.engine.explain.sources import Asked, Place, Shown, Sources, shown_at
from lakefs_gc.engine.explain.stored import look_up
from lakefs_gc.engine.explain.words import day
from lakefs_gc.engine.records import ledger
from lakefs_gc.errors import ConfigurationError, ErasureUnknownError, NotErasedError, RepositoryNotFoundError
from lakefs_gc.formats.durable_record import digest_of
from lakefs_gc.lakefs.pagination import REPLACEMENT_CHARACTER

_MOST_SHOWN = 1000
"""The most objects below a prefix that one call of the API returns."""

LIMITS = (
    "Objects that were uploaded to these paths and were overwritten or deleted before a commit are in no commit, and "
    "ledgers record no paths. Such objects are garbage: each sweep deletes those that are old enough.",
    "Objects of metadata files that no longer exist are in no commit that can be read. Only those are found whose "
    "path a mark recorded: up to ten objects of each mark.",
    "Copies that users made at other paths, in other repositories or outside lakeFS are other objects. Name their "
    "paths to prove that they are erased.",
    "Backups are looked for in the configured location, and in each that was configured when a mark was made or backed "
    "up. A mark that was removed tells no location, and earlier versions of lakefs-gc noted none when they backed up a "
    "mark. Versions that remain of a removed backup "
    "are found while its mark exists, and not if the backup had been moved.",
    "A backup location is known by its URL alone. If its name leads to another server now, for example because "
    "AWS_ENDPOINT_URL_S3 was changed, the copies on the former server are not found. Nor are those on another disk "
    "that was mounted at its folder.",
    "A copy that is killed leaves a part of the content. Such parts are looked for in folders and in S3. In a store "
    "that lists the uploads of one key only (MinIO), they are found below a removed backup while its mark exists. In "
    "Azure and Google Cloud Storage they are not looked for: these stores discard them after a week.",
    "An upload in parts that did not end is not an object in S3, and no sweep removes it. Its path is unknown: so one "
    "that began after the last object at the paths was deleted, and within a day before the report, counts as one that "
    "is in progress. A store that lists the uploads of one key only (MinIO) does not show those of unknown objects.",
    "lakeFS keeps the parts of an unfinished upload as objects in Google Cloud Storage and in folders. In Google Cloud "
    "Storage they have the name of their object, and are found; versions of them are not looked for. In folders "
    "(<upload>-<number> at the root) nothing says which object they are of. Both are garbage: each sweep deletes those "
    "objects that are old enough.",
    "If soft delete was switched off in a bucket of Google Cloud Storage, what it kept before stays for the time that "
    "was set then, at most 90 days, and is not looked for.",
    "Replicas and snapshots of the store that its API does not show, and caches, are not covered.",
)
"""What no report of this kind can prove. Every report repeats it."""

_CONFIRMED = {
    ledger.DELETED: "the store confirmed the delete",
    ledger.INTENT: "it ended during the delete, and the object no longer exists",
    ledger.ALREADY_GONE: "the object was already gone",
}


class Verdict(StrEnum):
    """What is proved about one object, or about all."""

    ERASED = "erased"
    REMAINS = "remains"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ErasedObject:
    """An object that was at one of the paths. ``remains`` names each copy, ``deleted_by`` each sweep of it."""

    verdict: Verdict
    remains: tuple[str, ...]
    deleted_by: tuple[str, ...]
    explanation: Explanation


@dataclass(frozen=True)
class ErasureProof:
    """The report about paths of a repository. ``digest`` covers all other fields, as JSON."""

    repository: str
    namespace: str
    server: str
    paths: tuple[str, ...]
    made_at: datetime
    made_by: str
    verdict: Verdict
    objects: tuple[ErasedObject, ...]
    looked_at: tuple[str, ...]
    not_looked_at: tuple[str, ...]
    stated: tuple[str, ...]
    limits: tuple[str, ...] = LIMITS
    digest: str = ""

    def content(self) -> dict[str, Any]:
        """Return the report as JSON."""
        content: dict[str, Any] = as_json(self)
        return content

    def raise_unless_erased(self) -> None:
        """Raise ``NotErasedError`` if a copy remains, else ``ErasureUnknownError`` if something was not looked at."""
        if remaining := sum(each.verdict is Verdict.REMAINS for each in self.objects):
            raise NotErasedError(f"{remaining:,} of {len(self.objects):,} objects remain, or a copy of them")
        if self.verdict is Verdict.UNKNOWN:
            raise ErasureUnknownError(
                f"Whether all is erased is unknown. Not looked at: {'; '.join(self.not_looked_at)}"
            )


def prove_erased(sources: Sources, paths: Sequence[str], *, no_backups: bool = False) -> ErasureProof:
    """Return the report about ``paths``, of which one that ends in a slash names everything below it.

    ``no_backups``: the user states that no backup exists, so that no backup location is needed. Raises
    ``ConfigurationError`` without a path and for one that can never be one, and the errors of the server and the store.
    """
    _refuse_unusable(paths)
    history, unread = sources.history, list[str]()
    paths_of: dict[str, set[str]] = {}
    for sighting in history.objects_at(paths):
        paths_of.setdefault(sighting.address, set()).add(sighting.path)
    if history.ranges_not_read:
        sources.looked_at.append(
            f"{history.ranges_not_read:,} of these ranges were not read for the paths: their metaranges state a first "
            "and a last path that exclude them"
        )
    shown = _shown_now(sources, history.heads, paths, unread)
    outside = sorted(shown.outside.union(history.outside))
    for address, places in shown.at.items():
        paths_of.setdefault(address, set()).update(path for _, path in places)
    recorded = recorded_facts(sources.store)
    _add_recorded(sources, recorded, paths, paths_of, unread)
    facts = Facts(sources, sorted(paths_of), thorough=True, backup_urls=recorded.backup_urls, unfinished=True)
    not_read, stated = _without_backups((*facts.unread, *recorded.unknown_locations), no_backups=no_backups)
    unread += not_read
    unread += _put_meanwhile(sources, paths, {*paths_of, *(url for _, url in outside)})
    unread += _restored_meanwhile(sources, facts)
    absent = {each: of for each, of in facts.sightings.items() if each not in {**facts.stored, **facts.not_asked}}
    without_record = {
        address: {sighting.range_id for sighting in of}
        for address, of in absent.items()
        if not any(marking.is_deleted for marking in facts.markings.of[address])
    }
    served = find_served(sources, absent, facts.shown, shown.at, without_record)
    unread += served.unread
    unread += filter(None, [why_blind(sources, paths_of) or why_no_witness(sources, without_record)])
    unread += [
        f"{path}: {url} is outside the namespace, so lakefs-gc neither deletes nor checks it" for path, url in outside
    ]
    everywhere = {path for found in paths_of.values() for path in found} | {path for path, _ in outside}
    unread += [
        f"{path}: no object was ever there in what can be read. Check the spelling"
        for path in paths
        if not any(_is_at(found, path) for found in everywhere)
    ]
    objects = tuple(
        _erased(facts.explanation(Asked(", ".join(sorted(paths_of[address])), (address,)), address), served)
        for address in sorted(paths_of, key=lambda address: (sorted(paths_of[address]), address))
    )
    unread += find_of_unknown_paths(sources, paths_of, erased_at(objects))
    unread += why_not_the_store_of_lakefs(sources)
    remains = any(each.verdict is Verdict.REMAINS for each in objects)
    proof = ErasureProof(
        repository=sources.repository,
        namespace=sources.namespace,
        server=sources.server.endpoint_url,
        paths=tuple(paths),
        made_at=sources.now,
        made_by=f"lakefs-gc {__version__}",
        verdict=Verdict.REMAINS if remains else Verdict.UNKNOWN if unread else Verdict.ERASED,
        objects=objects,
        looked_at=tuple(sources.looked_at),
        not_looked_at=tuple(dict.fromkeys(unread)),
        stated=stated,
    )
    return replace(proof, digest=digest_of(proof.content()))


def _refuse_unusable(paths: Collection[str]) -> None:
    if not paths:  # about no path at all, everything would be erased
        raise ConfigurationError(
            "No path was given, so there is nothing to prove",
            remedy="Pass at least one path. A path that ends in a slash names everything below it",
        )
    for path in paths:
        if not path or "://" in path:
            raise ConfigurationError(
                f"{path!r} is not a path in a repository",
                remedy="Pass paths as `lakectl fs ls` shows them, without lakefs:// and the branch. A path that ends "
                "in a slash names everything below it",
            )


def _is_at(found: str, path: str) -> bool:
    return found == path or (path.endswith("/") and found.startswith(path))


def _shown_now(sources: Sources, branches: Collection[str], paths: Collection[str], unread: list[str]) -> Shown:
    """Return where ``branches`` show an object at one of ``paths`` now, committed or not."""
    places = [(branch, path) for branch, path in product(branches, paths) if not path.endswith("/")]
    # A path that is not UTF-8 is listed with replacement characters, and cannot be looked up: so the list's URLs count.
    listed: list[tuple[Place, str]] = []
    for branch, prefix in product(branches, (path for path in paths if path.endswith("/"))):
        try:
            shown, has_more = sources.server.shown_page(sources.repository, branch, _MOST_SHOWN, prefix=prefix)
        except RepositoryNotFoundError:  # the branch was deleted meanwhile
            continue
        if has_more:
            unread.append(f"{prefix} on branch {branch}: staged objects behind the first {_MOST_SHOWN:,} paths")
        if any(REPLACEMENT_CHARACTER in path for path in shown):
            unread.append(f"{prefix} on branch {branch}: a path is not UTF-8, and the server lists several as one")
        listed += [((branch, path), url) for path, url in shown.items()]
    return shown_at(sources, places, listed)


def _put_meanwhile(sources: Sources, paths: Collection[str], known: Collection[str]) -> list[str]:
    """Return what is at ``paths`` now, and was not there or not found before; and what could not be read.

    ``known`` are the addresses and the URLs that were found. Metadata files are listed before branches are asked, so
    what is committed and deleted in between is in neither, until the files are listed again. A branch may be new.
    """
    history, unread = sources.history, list[str]()
    shown = _shown_now(sources, sources.server.heads_of(sources.repository), paths, unread)
    new = {(path, address) for address, places in shown.at.items() for _, path in places} | shown.outside
    new |= {(sighting.path, sighting.address) for sighting in history.new_objects_at(paths)}
    new.update(history.outside)
    unread += [
        f"{path}: the repository changed while it was read, and has another object there: {what}. Ask again"
        for path, what in sorted(new)
        if what not in known
    ]
    return [*history.unread, *unread]


def _restored_meanwhile(sources: Sources, facts: Facts) -> list[str]:
    """Return what did not exist before the backups were asked, and exists now. Its backup may be gone meanwhile."""
    absent = facts.sightings.keys() - facts.stored.keys() - facts.not_asked.keys()
    again = look_up(sources.store, absent)
    return [
        f"{address}: it did not exist at first, and exists now: something brought it back. Ask again"
        for address in sorted(again.objects)
    ] + [f"{address}: the store could not be asked again: {why}" for address, why in sorted(again.not_asked.items())]


def _without_backups(unread: Iterable[str], *, no_backups: bool) -> tuple[list[str], tuple[str, ...]]:
    """Return what was not read and stays unknown, and what the user states.

    ``no_backups`` says something about locations that could not be read. What was found in a location stays.
    """
    if not no_backups:
        what_to_do = {
            FORMER_LOCATION: "Make this location readable. If it has no backup any more, pass --no-backups",
            OTHER_FOLDER: "Make it readable, move it out of the location, or move the backups in it to "
            "<repository>/<mark>/. If it has none, pass --no-backups",
        }
        advice_on = (
            (each, "".join(what_to_do[kind] for kind in what_to_do if each.startswith(kind))) for each in unread
        )
        return [f"{each}. {advice}" if advice else each for each, advice in advice_on], ()
    former = [each for each in unread if each.startswith((FORMER_LOCATION, OTHER_FOLDER))]
    stays = [each for each in unread if each != NO_LOCATION and each not in former]
    stated = "No backups exist but those at their place (<repository>/<mark>/) in the configured backup location."
    return stays, (stated, *(f"So these need not be read: {each}" for each in former))


def _add_recorded(
    sources: Sources, recorded: Recorded, paths: Collection[str], paths_of: dict[str, set[str]], unread: list[str]
) -> None:
    """Add the objects that marks recorded at ``paths``. One that nothing else shows means that files are gone."""
    unread += recorded.unread
    sources.looked_at.append(f"{len(recorded.paths):,} paths that marks recorded")
    for each in recorded.paths:
        if any(_is_at(each.path, path) for path in paths):
            found = paths_of.setdefault(each.address, set())
            if each.path not in found:
                unread.append(
                    f"{each.path}: mark {each.mark_id} recorded an object there, and the metadata file that had it is "
                    "gone. Such files may have had more objects there"
                )
            found.add(each.path)


def _erased(explanation: Explanation, served: Served) -> ErasedObject:
    remains = [*_in_store(explanation), *explanation.copies]
    remains += filter(None, [served.at.get(explanation.address)])
    absent = Verdict.UNKNOWN if explanation.state is State.UNKNOWN else Verdict.ERASED
    return ErasedObject(
        Verdict.REMAINS if remains else absent,
        tuple(remains),
        tuple(_deletions(explanation)),
        explanation,
    )


def erased_at(objects: Collection[ErasedObject]) -> datetime | None:
    """Return when the last of the objects was deleted; None if no sweep recorded that of each, or if one exists."""
    at = [
        max(
            (mark.outcome.recorded_at for mark in each.explanation.marks if mark.is_deleted and mark.outcome),
            default=None,
        )
        for each in objects
        if not each.explanation.exists
    ]
    known = [time for time in at if time is not None]
    return max(known) if known and len(known) == len(objects) else None


def _in_store(explanation: Explanation) -> Iterable[str]:
    if not explanation.exists:
        return
    if explanation.state is State.MARKED:
        pending = next(mark for mark in explanation.marks if mark.is_pending)
        again = f", but its sweep keeps it: {explanation.kept_until}" if explanation.kept_by else ""
        yield f"in the store: mark {pending.mark_id} of {day(pending.created_at)} waits for its sweep{again}"
    elif explanation.kept_by:
        kept = "; ".join(keeper.what for keeper in explanation.kept_by)
        yield f"in the store, kept by: {kept}. This ends: {explanation.kept_until}"
    else:
        yield "in the store: nothing was found that keeps it, and no mark names it yet"


def _deletions(explanation: Explanation) -> Iterable[str]:
    if explanation.exists:
        return
    if explanation.state is State.UNKNOWN:
        yield "whether it is in the store is unknown: the store could not be asked for this key"
        return
    for mark in explanation.marks:
        if mark.outcome is not None:
            yield _confirmed(mark.mark_id, mark.outcome)
    if not any(mark.outcome for mark in explanation.marks):
        yield "no sweep recorded it: it is not in the store, and what removed it is unknown"


def _confirmed(mark_id: str, outcome: Outcome) -> str:
    """Return which sweep handled an object that no longer exists, and how that was confirmed."""
    approved = f", approved by {outcome.approved_by}" if outcome.approved_by else ""
    how = _CONFIRMED.get(outcome.outcome, f"its last outcome is {outcome.outcome}, and the object no longer exists")
    return f"sweep of mark {mark_id} on {day(outcome.recorded_at)}{approved}: {how}"
