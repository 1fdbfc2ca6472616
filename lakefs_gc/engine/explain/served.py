"""Asks lakeFS itself for the content of objects that the store lacks.

lakefs-gc may look in another place than lakeFS does: ``mounts`` may lead to a mirror, or a folder may not be mounted
here. What lakeFS still serves is not erased, whatever a listing shows. That lakeFS has no content either proves less:
it may look in the same folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakefs_gc.engine.explain.history import Sighting
from lakefs_gc.engine.explain.keepers import short
from lakefs_gc.engine.explain.sources import Sources
from lakefs_gc.errors import LakeFSGCError, RepositoryNotFoundError, ServerError
from lakefs_gc.lakefs.active_commits import Commit
from lakefs_gc.lakefs.pagination import REPLACEMENT_CHARACTER
from lakefs_gc.storage.concurrency import map_unordered

_MOST_ASKED = 500
"""Up to so many objects are read through lakeFS, spread over all: two requests each, some seconds together."""
_CALLS_AT_ONCE = 16
_GONE = 410


@dataclass(frozen=True)
class Served:
    """For each address whose content lakeFS returned, at which commit and path. ``unread``: what it could not say."""

    at: dict[str, str]
    unread: tuple[str, ...]


def find_served(
    sources: Sources, sightings: Mapping[str, Sequence[Sighting]], shown: Mapping[str, Sequence[Commit]]
) -> Served:
    """Return which objects lakeFS still serves at the newest commit that has them.

    ``sightings`` are the entries of each object, and ``shown`` the commits of each range. An object that no known
    commit has cannot be asked for.
    """
    places = {}
    for address, found in sightings.items():
        at = [
            (commit.creation_date, commit.id, sighting.path)
            for sighting in found
            if REPLACEMENT_CHARACTER not in sighting.path  # the API cannot name it
            for commit in shown[sighting.range_id]
        ]
        if at:
            places[address] = max(at)[1:]
    some = sorted(places)[:: -(-len(places) // _MOST_ASKED) or 1]

    def ask(address: str) -> bool | LakeFSGCError:
        commit_id, path = places[address]
        try:
            next(sources.server.read_object(sources.repository, commit_id, path, piece_bytes=1))
        except RepositoryNotFoundError:
            return False
        except LakeFSGCError as error:
            is_gone = isinstance(error, ServerError) and error.facts.get("status") == _GONE
            return False if is_gone else error
        return True

    answers = dict(map_unordered(ask, some, _CALLS_AT_ONCE))
    if sightings:
        sources.looked_at.append(
            f"{len(some):,} of {len(sightings):,} objects that the store lacks, read through lakeFS"
        )
    return Served(
        {
            address: f"lakeFS serves its content: {places[address][1]} of commit {short(places[address][0])}"
            for address in some
            if answers[address] is True
        },
        tuple(
            f"{places[address][1]} of commit {short(places[address][0])}, read through lakeFS: {answer.message}"
            for address, answer in sorted(answers.items())
            if isinstance(answer, LakeFSGCError)
        ),
    )
