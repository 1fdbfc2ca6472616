"""Proves that a backup reads, and a restore writes, the store in which lakeFS keeps the repository (rule 12).

``mounts`` may lead to a mirror of a namespace, and an endpoint to a copy of it. What such a store lacks may well exist,
and what is restored there is not in lakeFS.
"""

from __future__ import annotations

from lakefs_gc.engine.collect.references.store_of_server import lacks_call, refuse_other_store
from lakefs_gc.engine.run import RunContext
from lakefs_gc.engine.workspace.range_cache import METADATA_FOLDER
from lakefs_gc.errors import SafetyError, ServerError, ServerUnavailableError
from lakefs_gc.storage.base import ObjectStore


def refuse_mirror(context: RunContext, repository: str, store: ObjectStore, again: str) -> None:
    """Raise ``SafetyError`` unless ``store`` is where the server keeps a repository, as ``refuse_other_store`` does.

    Of a server without the call (lakeFS before 1.25), the store must have a list that it writes now, which it does
    only for a repository with retention rules. That proves less: replication takes the list to a mirror, too. So a
    server that refuses the call (403) does not prove its store. ``again`` says what to repeat: nothing was copied.
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
        cause = error.__cause__
        if not isinstance(cause, ServerError):
            raise
        if not lacks_call(context.server, cause):
            raise SafetyError(
                f"Whether {store.location.folder_url} is the store of lakeFS at {context.server.endpoint_url} is "
                f"unknown, because the server refuses to read a file of the repository: {cause.message}",
                remedy="Grant the user fs:ReadRepository and fs:ListObjects for the repository, also at a gateway "
                f"before lakeFS. Then {again}: nothing was copied",
            ) from error
        if not _has_list_of_now(context, repository, store):
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
