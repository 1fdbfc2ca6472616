"""Where a mark was backed up, noted beside the mark if its facts do not say so.

``backup.url`` may be set after a mark was made, or be another one on the machine that backs it up. Then only such a
note leads a proof of an erasure to the copies.
"""

from __future__ import annotations

import hashlib
from types import MappingProxyType

from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.mark_facts import read_facts
from lakefs_gc.formats.durable_record import DurableRecord, record
from lakefs_gc.storage.base import ObjectStore


@record
class BackupPlace(DurableRecord):
    """The note that a backup of a mark was begun in a backup location."""

    kind = "the note of a backup location"
    version_keys = MappingProxyType({1: None})
    remedy = "Remove the file: only a proof of erasure asks for it. Name its location in backup.url for the proof"
    sorted_fields = False

    mark_id: str
    url: str


def note_backup_place(store: ObjectStore, mark: Mark, url: str) -> None:
    """Note the backup location beside a mark, before the first copy, unless the facts of the mark name it."""
    facts = read_facts(store, mark)
    if facts is None or facts.backup_url != url:
        name = hashlib.sha256(url.encode()).hexdigest()[:16]
        store.put(f"{_folder(mark.mark_id)}{name}.json", BackupPlace(mark.mark_id, url).to_json(), if_absent=True)


def noted_places(store: ObjectStore, mark_id: str) -> list[str]:
    """Return the URLs that were noted beside a mark. Raise ``CorruptFileError`` for a note that cannot be read."""
    keys = [key for batch in store.list(_folder(mark_id)) for key in batch.column("address").to_pylist()]
    return [BackupPlace.from_json(content, key).url for key, content in store.read_many(sorted(keys))]


def _folder(mark_id: str) -> str:
    return f"{MarkPaths.of(mark_id).folder}backups/"
