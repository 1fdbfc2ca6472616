"""The commits that a run read, kept in the workspace for what is shown to people.

A question about one object, and the page of a mark, need the whole history. A server lists 2,000 commits a second, so
they read only the commits that are newer than the last run. No decision about an object is made from this file: a run
reads the history from the server.

Layout: ``_history_index/commits/<key of the namespace>.parquet``. A file that is missing, damaged, or lacks an ancestor
is not used.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from lakefs_gc.errors import ObjectNotFoundError, StorageError
from lakefs_gc.formats.parquet import parquet_bytes
from lakefs_gc.lakefs.active_commits import Commit
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.units import EPOCH

logger = logging.getLogger(__name__)

_FOLDER = "_history_index/commits/"
_MOST_COMMITS = 300_000
"""The most commits that are kept: 30 MB."""
_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("parents", pa.list_(pa.string())),
        ("created_us", pa.int64()),
        ("meta_range_id", pa.string()),
        ("version", pa.int64()),
    ]
)


def read_commits(workspace: ObjectStore, namespace: str) -> dict[str, Commit]:
    """Return the commits by id, each with all of its ancestors. Some may no longer be in a branch."""
    key = _key_of(namespace)
    try:
        table = pq.read_table(pa.BufferReader(workspace.read(key)), page_checksum_verification=True)
        if table.schema.remove_metadata() != _SCHEMA:
            raise ValueError("it has other columns")
        commits = {
            commit_id: Commit(commit_id, tuple(parents), EPOCH + timedelta(microseconds=created), metarange, version)
            for commit_id, parents, created, metarange, version in zip(
                *(table[name].to_pylist() for name in _SCHEMA.names), strict=True
            )
        }
        if not all(parent in commits for commit in commits.values() for parent in commit.parents):
            raise ValueError("it lacks an ancestor")
    except ObjectNotFoundError:
        return {}
    except (StorageError, pa.ArrowException, OSError, ValueError, TypeError) as error:
        logger.warning("the known commits: %s is damaged, and is ignored: %s", key, str(error)[:200])
        return {}
    return commits


def keep_commits(workspace: ObjectStore, namespace: str, commits: Mapping[str, Commit]) -> None:
    """Keep commits, each with all of its ancestors, unless they are too many. A failure is only logged."""
    if len(commits) > _MOST_COMMITS or commits.keys() <= read_commits(workspace, namespace).keys():
        return
    columns = zip(
        *(
            (c.id, c.parents, (c.creation_date - EPOCH) // timedelta(microseconds=1), c.meta_range_id, c.version)
            for c in commits.values()
        ),
        strict=True,
    )
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    content = parquet_bytes(pa.record_batch(arrays, schema=_SCHEMA))
    try:
        workspace.put(_key_of(namespace), content)
    except StorageError as error:
        logger.warning("the known commits cannot be written: %s", error.message)


def _key_of(namespace: str) -> str:
    return f"{_FOLDER}{hashlib.sha256(namespace.encode()).hexdigest()[:32]}.parquet"
