"""The paths of the expired objects of a mark, for the list that a person downloads. Needs no Spark.

Expired objects have paths in commits that the rules no longer retain. Reading all of their ranges can cost as much as a
mark, so the newest of these commits are read first, and only a number of ranges: the other objects have no path here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakefs_gc.engine.explain.history import History, texts
from lakefs_gc.engine.explain.keepers import Commits
from lakefs_gc.engine.explain.sources import Sources
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.workspace.fingerprints import fingerprints
from lakefs_gc.formats.ranges import read_range
from lakefs_gc.formats.sstable.reader import TableData
from lakefs_gc.lakefs.active_commits import Commit

_MOST_RANGES = 200
"""Up to 20 MB each."""

_COLUMNS = pa.schema([(name, pa.string()) for name in ("address", "path", "commit_id", "branch")])


@dataclass(frozen=True)
class _LastCommit:
    number: int
    """Ascending from the newest commit."""
    commit_id: str


def expired_paths(sources: Sources, mark: Mark, addresses: pa.ChunkedArray) -> pa.Table:
    """Return a path of each of ``addresses`` where it is known, with the last commit that has the object there.

    Columns: ``address``, ``path``, ``commit_id``, ``branch``. The branch is empty for a commit that is on the main line
    of none. What cannot be read has no path.
    """
    history = sources.history
    commits = Commits(history, sources.settings.safety.protect, sources.now)
    ranges = _expired_ranges(history, commits, mark)
    wanted = np.unique(fingerprints(addresses.combine_chunks()))

    def entries_of(data: TableData, key: str) -> pa.Table:
        entries = history.known.entries(read_range(data, key, keys=True))
        # Fingerprints exclude most of the others. The caller joins on the addresses.
        entries = entries.filter(pa.array(np.isin(fingerprints(entries.column("address")), wanted)))
        return pa.table([entries.column("address"), texts(entries.column("key"))], names=["address", "path"])

    found: list[pa.Table] = [
        entries.append_column("number", pa.array(np.full(len(entries), ranges[range_id].number)))
        for range_id, entries in history.each(list(ranges)[:_MOST_RANGES], entries_of)
        if not isinstance(entries, str)
    ]
    if not found:
        return _COLUMNS.empty_table()
    last = (
        pa.concat_tables(found)
        .sort_by([("number", "ascending"), ("path", "ascending")])
        .group_by("address", use_threads=False)
        .aggregate([("path", "first"), ("number", "first")])
    )
    ids = {last_commit.number: last_commit.commit_id for last_commit in ranges.values()}
    of_object = [ids[number] for number in last["number_first"].to_pylist()]
    branches = [commits.branch_of.get(commit_id, "") for commit_id in of_object]
    columns = [last["address"], last["path_first"], pa.array(of_object, pa.string()), pa.array(branches, pa.string())]
    return pa.table(columns, schema=_COLUMNS)


def _expired_ranges(history: History, commits: Commits, mark: Mark) -> dict[str, _LastCommit]:
    """Return the ranges that no active commit has, each with the newest commit that has it, newest first."""
    active: list[Commit] = []
    expired: list[Commit] = []
    for commit in history.commits.values():
        retained = commits.retained.get(commit.id)
        is_active = history.rules is None or (retained is not None and retained.until > mark.created_at)
        (active if is_active else expired).append(commit)
    seen = {range_id for commit in active for range_id in history.ranges_of(commit)}
    newest_first = sorted(expired, key=lambda commit: (commit.creation_date, commit.id), reverse=True)
    found: dict[str, _LastCommit] = {}
    for number, commit in enumerate(newest_first):
        for range_id in history.ranges_of(commit):
            if range_id not in seen:
                seen.add(range_id)
                found[range_id] = _LastCommit(number, commit.id)
    return found
