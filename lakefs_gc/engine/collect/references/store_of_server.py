"""Proves that the store of a run is the one in which its lakeFS server keeps the repository (rule 12).

A copy of an installation has the same bucket, namespace and metadata as the original. If the server is that of one, and
the store that of the other, all that was staged since the copy looks like garbage.

So the server is asked for a file that this process has just written. That a run has read a list which the server has
just written proves less: a replica of the bucket has it, too. Only lakeFS before 1.25 may do without the call.
"""

from __future__ import annotations

import logging
from uuid import uuid4

from lakefs_gc.engine.workspace.range_cache import METADATA_FOLDER
from lakefs_gc.errors import SafetyError, ServerError, ServerUnavailableError, StorageError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.server_version import has_metadata_files
from lakefs_gc.storage.base import ObjectStore

logger = logging.getLogger(__name__)

WITNESSES = "retention/gc/lakefs-gc/"
"""The folder of these files below ``METADATA_FOLDER``. Each is deleted at once."""


def refuse_other_store(server: LakeFSClient, repository: str, store: ObjectStore, *, has_list: bool = False) -> None:
    """Raise ``SafetyError`` unless the server reads in its store what this process writes to the namespace's ``store``.

    Also if that is unknown. A server without the call passes if it writes a list for this run (``has_list``), which is
    read in this store. Raises ``ServerUnavailableError`` if the server does not answer.
    """
    where = f"The store of lakeFS at {server.endpoint_url}"
    try:
        is_same = is_store_of_server(server, repository, store)
    except ServerError as error:
        if isinstance(error, ServerUnavailableError) and error.facts.get("status") != 404:
            raise
        if has_list and lacks_call(server, error):
            return
        raise SafetyError(
            f"{where} may be another one than {store.location.folder_url}: a file that was written to show that cannot "
            f"be read through the server: {error.message}",
            remedy="Permit fs:ReadRepository and fs:ListObjects on the repository. If lakeFS is older than 1.25, "
            "upgrade it, or set a retention rule for the repository, even one of 10,000 days: then the server writes a "
            "list in each run",
        ) from error
    if not is_same:
        raise SafetyError(
            f"{where} is another one than {store.location.folder_url}: it does not have the file that this process has "
            "just written",
            remedy="Check that LAKECTL_SERVER_ENDPOINT_URL and the store (endpoint, credentials, mounts) are of the "
            "same installation, then start a new run",
        )


def lacks_call(server: LakeFSClient, error: ServerError) -> bool:
    """Return whether a server has read no file because it does not have the call. Of later ones, a 404 is a proxy's."""
    return error.facts.get("status") in (404, 500) and has_metadata_files(server.version()) is False


def is_store_of_server(server: LakeFSClient, repository: str, store: ObjectStore) -> bool:
    """Return whether the server reads in its store a file that this process writes to ``store``, and deletes at once.

    Raises the errors of the server and of the store: then it is unknown.
    """
    content = uuid4().hex
    name = WITNESSES + content
    store.put(METADATA_FOLDER + name, content.encode())
    try:
        return server.metadata_file(repository, name) == content.encode()
    finally:
        _remove(store, METADATA_FOLDER + name)


def _remove(store: ObjectStore, key: str) -> None:
    try:
        failed = [deletion.error for deletion in store.delete_many([key]) if deletion.error]
    except StorageError as error:  # what the server answered matters more
        failed = [error.message]
    if failed:
        logger.warning("%s is not needed any more, and cannot be deleted: %s", key, failed[0])
