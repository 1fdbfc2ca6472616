"""Asks lakeFS itself for the content of objects that the store lacks.

lakefs-gc may look in another place than lakeFS does: ``mounts`` may lead to a mirror, or a folder may not be mounted
here. What lakeFS still serves is not erased, whatever a listing shows. That lakeFS has no content either proves less:
it may look in the same folder.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lakefs_gc.config import matching_mount
from lakefs_gc.engine.explain.history import Sighting
from lakefs_gc.engine.explain.sources import Place, Sources
from lakefs_gc.engine.explain.words import short
from lakefs_gc.errors import LakeFSGCError, RepositoryNotFoundError, ServerError
from lakefs_gc.lakefs.active_commits import Commit
from lakefs_gc.lakefs.pagination import REPLACEMENT_CHARACTER
from lakefs_gc.storage.concurrency import map_unordered

_MOST_ASKED = 5_000
"""Up to so many objects that no branch shows are read through lakeFS: two requests each, half a minute together. All
that a branch shows are read."""
_CALLS_AT_ONCE = 16
_GONE = 410


@dataclass(frozen=True)
class Served:
    """For each address whose content lakeFS returned, at which commit and path. ``unread``: what it could not say."""

    at: dict[str, str]
    unread: tuple[str, ...]


@dataclass(frozen=True)
class _Question:
    """A reference that has an object, its path, and how to name both."""

    ref: str
    path: str
    what: str


def find_served(
    sources: Sources,
    sightings: Mapping[str, Sequence[Sighting]],
    shown: Mapping[str, Sequence[Commit]],
    on_branches: Mapping[str, Sequence[Place]],
    without_record: Collection[str],
) -> Served:
    """Return which objects lakeFS still serves where branches show them, or at a commit that has them.

    ``sightings`` are the entries of each object, ``shown`` the commits of each range, and ``on_branches`` the places
    that show an object now. An object that neither a branch nor a known commit has at a path that the API can name
    cannot be asked for. ``unread`` has it if a branch shows it, and if it is ``without_record`` of a delete and a mount
    leads to the store, which may be another one than that of lakeFS. So it has the number of those that are not asked
    for because they are too many. Those without a record are asked for first, then others, spread over all.
    """
    questions = {
        address: _questions(on_branches.get(address, ()), found, shown) for address, found in sightings.items()
    }
    asked_for = [address for address in sorted(questions) if questions[address] and address in on_branches]
    others = sorted(address for address, asked in questions.items() if asked and address not in on_branches)
    unexplained = _spread([each for each in others if each in without_record], _MOST_ASKED)
    explained = [each for each in others if each not in without_record]
    asked_for += unexplained + _spread(explained, _MOST_ASKED - len(unexplained))
    answers = dict(map_unordered(lambda address: _ask(sources, questions[address]), asked_for, _CALLS_AT_ONCE))
    if sightings:
        sources.looked_at.append(
            f"{len(asked_for):,} of {len(sightings):,} objects that the store lacks, read through lakeFS"
        )
    is_mounted, _ = matching_mount(sources.namespace, sources.settings.mounts)
    doubted = {*on_branches, *(without_record if is_mounted else ())}
    not_asked = sum(address in doubted for address in set(others).difference(asked_for))
    return Served(
        {
            address: f"lakeFS serves its content: {answer.what}"
            for address, answer in answers.items()
            if isinstance(answer, _Question)
        },
        (
            *sorted(answer for answer in answers.values() if isinstance(answer, str)),
            *(
                f"{address}: whether lakeFS serves it is unknown, because no branch and no known commit has it at a "
                "path that the API can name. If you know a commit that has it, create a branch there, and ask again"
                for address in sorted(doubted)
                if address in questions and not questions[address]
            ),
            *(
                f"objects of which no sweep recorded the delete: lakeFS was not asked for {not_asked:,} of them, "
                f"because it is asked for {_MOST_ASKED:,} at most. Ask about longer prefixes, one by one"
                for _ in range(not_asked > 0)
            ),
        ),
    )


def _spread(addresses: Sequence[str], most: int) -> list[str]:
    """Return all addresses, or so many of them that are spread over all."""
    return list(addresses[:: -(-len(addresses) // most) or 1]) if most > 0 else []


def _questions(
    places: Sequence[Place], sightings: Sequence[Sighting], shown: Mapping[str, Sequence[Commit]]
) -> list[_Question]:
    """Return where to ask for an object: where branches show it, then at the newest and the oldest commit."""
    at = [(commit, sighting.path) for sighting in sightings for commit in shown[sighting.range_id]]
    commits = sorted((commit.creation_date, commit.id, path) for commit, path in at)
    asked = [_Question(branch, path, f"{path} of branch {branch}") for branch, path in places]
    asked += [
        _Question(each, path, f"{path} of commit {short(each)}") for _, each, path in commits[:-2:-1] + commits[:1]
    ]
    # The API cannot name a path that is not UTF-8, and may have another object at the one that is listed instead.
    return [each for each in dict.fromkeys(asked) if REPLACEMENT_CHARACTER not in each.path]


def _ask(sources: Sources, questions: Sequence[_Question]) -> _Question | str | None:
    """Return the question to which lakeFS answered with content, None if it has none, or why that is unknown.

    Only 410 says that lakeFS knows the object, and has no content. It does not find a commit that was picked for ten
    minutes, and a gateway in front of it may answer 404 to anything.
    """
    unknown = ""
    for each in questions:
        try:
            next(sources.server.read_object(sources.repository, each.ref, each.path, piece_bytes=1))
        except LakeFSGCError as error:
            if isinstance(error, ServerError) and error.facts.get("status") == _GONE:
                return None
            unknown = unknown or f"{each.what}, read through lakeFS: {error.message}"
            if not isinstance(error, RepositoryNotFoundError):
                return unknown
        else:
            return each
    return f"{unknown}. lakeFS knew it before. Ask again, ten minutes later"
