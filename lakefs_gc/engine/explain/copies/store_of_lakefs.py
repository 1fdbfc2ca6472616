"""Whether a proof looked at the store in which lakeFS keeps the repository.

Versions, unfinished uploads and the records of sweeps are in that store alone. A folder through which a bucket is
mounted shows none of its versions, and a mirror shows the records of its last synchronization.
"""

from __future__ import annotations

from lakefs_gc.config import matching_mount
from lakefs_gc.engine.collect.references.store_of_server import is_store_of_server
from lakefs_gc.engine.explain.sources import Sources
from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.formats.address_readings import as_read, is_local

_NEEDS = (
    "A proof writes a small file below _lakefs/retention/, reads it through lakeFS (1.25 or newer), and deletes it. "
    "Permit that, and ask again"
)


def why_not_the_store_of_lakefs(sources: Sources) -> list[str]:
    """Return what was not looked at because the store is another one than that of lakeFS, or because that is unknown.

    A file that this process writes to the store, and lakeFS reads, proves that both have one store (rule 12): variables
    such as ``AWS_ENDPOINT_URL_S3`` may lead to a replica, and the folder of a server's own disk to a copy. It proves
    nothing about versions where a mount leads from an object store to another URL: a folder may be the bucket itself.
    """
    namespace, store = sources.namespace, sources.store
    prefix, _ = matching_mount(namespace, sources.settings.mounts)
    url = store.location.folder_url
    if prefix and not is_local(namespace) and as_read(namespace) != as_read(url):
        return [
            f"versions, uploads that did not end, and records of sweeps in {namespace} itself: `mounts` leads from "
            f"{prefix} to {sources.settings.mounts[prefix]}. Ask again without this mount"
        ]
    of_lakefs = f"the store of lakeFS at {sources.server.endpoint_url}"
    try:
        is_same = is_store_of_server(sources.server, sources.repository, store)
    except LakeFSGCError as error:
        return [f"{of_lakefs}: whether {url} is this store is unknown: {error.message}. {_NEEDS}"]
    if not is_same:
        return [
            f"{of_lakefs}: {url} is another store, and lakeFS did not read the file that was written to it. Check "
            "that the address of lakeFS and the store (endpoint, credentials, mounts) are of the same installation, "
            "then ask again"
        ]
    sources.looked_at.append(f"a file that was written to {url}, read through lakeFS: both have one store")
    return []
