"""Finds temporary files below a local folder: those of writes in progress, and those that killed programs left."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from lakefs_gc.storage.base import UnfinishedWrite, UnfinishedWrites
from lakefs_gc.storage.local_folder import GONE, TEMPORARY, LocalFolder


def unfinished_in(folder: LocalFolder, level: str) -> UnfinishedWrites:
    """Return the temporary files directly in a level. A write makes its file in the folder of its object."""
    return _scan(folder, level)[0]


def unfinished_below(folder: LocalFolder, prefix: str) -> Iterator[UnfinishedWrite]:
    """Yield the temporary files below a folder whose path starts with a prefix. Links are not followed."""
    above = prefix.rpartition("/")[0]
    pending = [f"{above}/" if above else ""]
    while pending:
        writes, levels = _scan(folder, pending.pop())
        yield from (write for write in writes if write.key.startswith(prefix))
        pending += [level for level in levels if level.startswith(prefix) or prefix.startswith(level)]


def _scan(folder: LocalFolder, level: str) -> tuple[UnfinishedWrites, list[str]]:
    """Return the temporary files and the folders directly in a level; none if it does not exist."""
    writes: UnfinishedWrites = []
    levels: list[str] = []
    with folder.errors(level):
        try:
            with folder.open(level) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        levels.append(f"{level}{entry.name}/")
                    elif TEMPORARY.fullmatch(entry.name):
                        with suppress(FileNotFoundError):  # ended since
                            writes.append(_described(folder, level + entry.name, entry.stat(follow_symlinks=False)))
        except OSError as error:
            if error.errno not in GONE:
                raise
            folder.require()
            folder.refuse_link_above(level)
    return writes, levels


def _described(folder: LocalFolder, key: str, facts: os.stat_result) -> UnfinishedWrite:
    changed_at = datetime.fromtimestamp(facts.st_mtime, UTC)
    command = f"rm {shlex.quote(str(folder.path / key))}"
    return UnfinishedWrite(key, changed_at, command, size_bytes=facts.st_size)
