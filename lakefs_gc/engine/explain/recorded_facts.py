"""What is recorded beside marks: paths of their objects, and the locations of their backups."""

from __future__ import annotations

from dataclasses import dataclass

from lakefs_gc.engine.explain.copies.found import FORMER_LOCATION
from lakefs_gc.engine.records.backups.notes import noted_places
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.mark_facts import MarkFacts, facts_key
from lakefs_gc.engine.records.stored_marks import mark_folders
from lakefs_gc.errors import CorruptFileError, ObjectNotFoundError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered

_READS_AT_ONCE = 16


@dataclass(frozen=True)
class RecordedPath:
    """The path that a mark recorded for one of its objects."""

    path: str
    address: str
    mark_id: str


@dataclass(frozen=True)
class Recorded:
    """What is beside all marks of a namespace: paths, the backup locations that were configured when the marks were
    made and backed up, and what could not be read. ``unknown_locations`` are those of marks whose facts do not exist.
    """

    paths: tuple[RecordedPath, ...]
    backup_urls: frozenset[str]
    unread: tuple[str, ...]
    unknown_locations: tuple[str, ...]


def recorded_facts(store: ObjectStore) -> Recorded:
    """Return what the facts beside all marks of a namespace have, and the notes of where they were backed up.

    A mark records the paths of up to ten of its objects. They stay when the metadata files are gone.
    """
    found: list[RecordedPath] = []
    urls: set[str] = set()
    unread: list[str] = []
    without_facts: list[str] = []

    def noted(mark_id: str) -> list[str] | str:
        try:
            return noted_places(store, mark_id)
        except (CorruptFileError, ObjectNotFoundError) as error:
            return f"where mark {mark_id} was backed up: {error.message}"

    def read(mark_id: str) -> MarkFacts | str | None:
        key = facts_key(mark_id)
        try:
            facts = MarkFacts.from_json(store.read(key), key)
        except ObjectNotFoundError:
            return None
        except CorruptFileError as error:
            return f"the paths that mark {mark_id} recorded, and its backup location: {error.message}"
        if facts.mark_id != mark_id:
            return f"the paths that mark {mark_id} recorded, and its backup location: {key} is about another mark"
        return facts

    mark_ids = mark_folders(store)
    for _, places in map_unordered(noted, mark_ids, _READS_AT_ONCE):
        if isinstance(places, str):
            unread.append(places)
        else:
            urls.update(places)
    for mark_id, facts in map_unordered(read, mark_ids, _READS_AT_ONCE):
        if isinstance(facts, str):
            unread.append(facts)
        elif facts is None:
            without_facts.append(mark_id)
        else:
            urls.update({facts.backup_url} - {""})
            found += [
                RecordedPath(str(row["path"]), str(row["address"]), mark_id) for row in facts.sample if row.get("path")
            ]
    paths = sorted(found, key=lambda each: (each.path, each.address, each.mark_id))
    # A mark of lakeFS's own client has no manifest, and none was made where a run was killed before.
    manifests = {MarkPaths.of(mark_id).manifest: mark_id for mark_id in sorted(without_facts)}
    ours = store.stat_many(list(manifests))
    unknown = (
        f"{FORMER_LOCATION}if one was configured when mark {manifests[key]} was made: {facts_key(manifests[key])} does "
        "not exist"
        for key in manifests
        if key in ours
    )
    return Recorded(tuple(paths), frozenset(urls), tuple(sorted(unread)), tuple(unknown))
