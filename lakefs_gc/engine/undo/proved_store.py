"""Proves that a backup reads, and a restore writes, the store in which lakeFS keeps the repository (rule 12).

``mounts`` may lead to a mirror of a namespace, and an endpoint to a copy of it. What such a store lacks may well exist,
and what is restored there is not in lakeFS.
"""

from __future__ import annotations

from lakefs_gc.engine.collect.references.store_of_server import refuse_other_store
from lakefs_gc.engine.run import RunContext
from lakefs_gc.engine.workspace.range_cache import METADATA_FOLDER
from lakefs_gc.errors import SafetyError, ServerError, ServerUnavailableError
from lakefs_gc.storage.base import ObjectStore


def refuse_mirror(context: RunContext, repository: str, store: ObjectStore, again: str) -> None:
    """Raise ``SafetyError`` unless ``store`` is where the server keeps a repository, as ``refuse_other_store`` does.

    Of a server without the call (lakeFS before 1.25), the store must have a list that it writes now, which it does only
    for a repository with retention rules. ``again`` says what to repeat: nothing was copied.
    """
    try:
        refuse_other_store(context.server, repository, store)
    except ServerUnavailableError as error:
        raise ServerUnavailableError(
            f"{error.message}. Without the server, whether {store.location.folder_url} is its store is unknown",
            remedy=f"{error.remedy}. Then {again}: nothing was copied",
            **error.facts,
        ) from error
    except SafetyError as error:
        if not isinstance(error.__cause__, ServerError) or not _has_list_of_now(context, repository, store):
            raise


def _has_list_of_now(context: RunContext, repository: str, store: ObjectStore) -> bool:
    """Return whether a store has the list of commits that the server is asked to write. Its name is a new one."""
    server = context.server
    if server.retention_rules(repository) is None:
        return False
    timeout_seconds = context.safety.prepare_timeout_hours * 3600
    location = server.prepare_commits(repository, timeout_seconds=timeout_seconds).location
    _, folder, name = location.rpartition(f"/{METADATA_FOLDER}")
    key = folder.removeprefix("/") + name
    return bool(folder and store.stat_many([key]))
