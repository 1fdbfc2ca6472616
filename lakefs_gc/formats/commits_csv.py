"""The list of active commits that lakeFS prepares for a run.

``_lakefs/retention/gc/commits/run_id=<id>/commits.csv``: a header, then a line for each active commit in random order.
The first commit of a repository has no metarange. The file is written as a stream, so a file that is truncated at the
end of a line looks complete: compare its rows with other knowledge of the repository if possible.

Source: lakeFS ``pkg/graveler/retention/garbage_collection_manager.go``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

from lakefs_gc.errors import CorruptFileError

ACTIVE_COMMITS_SCHEMA = pa.schema(
    [
        pa.field("commit_id", pa.string(), nullable=False),
        pa.field("metarange_id", pa.string(), nullable=False),
    ]
)
"""Columns of the active commits: ids in hex; ``metarange_id`` is empty for a commit without content."""

_HEADER = b"commit_id,expired,metarange_id"
_ROW = re.compile(rb"([0-9a-f]{64}),(true|false),([0-9a-f]{64}|)")


def read_active_commits(data: bytes, file: str) -> pa.RecordBatch:
    """Return the rows of a commits CSV, as ``ACTIVE_COMMITS_SCHEMA``.

    An empty list is not an error here: the caller knows whether the repository has commits, and must then refuse it.
    Raise ``CorruptFileError`` for anything that lakeFS does not write: another header, a truncated line, an id that is
    not hex, a repeated commit, or an expired commit (lakeFS lists active ones only).
    """
    if not data.endswith(b"\n"):
        raise CorruptFileError(file, "the last line has no line end, so the list of commits is truncated")
    header, *rows = data.removesuffix(b"\n").split(b"\n")
    if header != _HEADER:
        raise CorruptFileError(file, f"the header is {header[:80]!r}, not {_HEADER!r}")
    commit_ids, metarange_ids = [], []
    for number, row in enumerate(rows, start=2):
        match = _ROW.fullmatch(row)
        if match is None:
            raise CorruptFileError(file, f"line {number} is not a row of a list of commits: {row[:160]!r}")
        if match[2] != b"false":
            raise CorruptFileError(file, f"line {number}: commit {match[1].decode()} is listed as expired")
        commit_ids.append(match[1].decode())
        metarange_ids.append(match[3].decode())
    if len(set(commit_ids)) < len(commit_ids):
        raise CorruptFileError(file, "a commit is listed twice")
    return pa.RecordBatch.from_arrays(
        [pa.array(commit_ids, pa.string()), pa.array(metarange_ids, pa.string())],
        schema=ACTIVE_COMMITS_SCHEMA,
    )


def write_active_commits(commits: Iterable[tuple[str, str]]) -> bytes:
    """Return the CSV of (commit id, metarange id or empty), as lakeFS writes it."""
    rows = [f"{commit_id},false,{metarange_id}".encode() for commit_id, metarange_id in commits]
    return b"".join(row + b"\n" for row in [_HEADER, *rows])
