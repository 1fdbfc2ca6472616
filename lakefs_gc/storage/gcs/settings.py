"""Settings of a bucket that keep the bytes of deleted objects, or forbid to delete them.

Source: Google's documents, "Buckets" (the resource), "Soft delete", "Object Versioning" and "Bucket Lock".
"""

from __future__ import annotations

from typing import Any

from lakefs_gc.storage.gcs.client import API, GCSClient
from lakefs_gc.storage.gcs.errors import IncompleteAnswerError

_DAY_SECONDS = 86_400
_FIELDS = "kind,versioning,softDeletePolicy,retentionPolicy,defaultEventBasedHold"


def space_not_freed(client: GCSClient) -> str:
    """Return why a delete frees no space; empty if it does.

    Raise ``AccessDeniedError`` if the credentials do not permit to read the settings of the bucket.
    """

    def ask() -> dict[str, Any]:
        path = f"{API}/b/{client.folder.bucket}"
        document = client.send("GET", path, query={"fields": _FIELDS}).document()
        if document.get("kind") != "storage#bucket":
            raise IncompleteAnswerError("the answer does not have the settings of the bucket")
        return document

    settings = client.call(ask, action="read the settings of the bucket", key="")
    bucket, parts = client.folder.bucket, []
    # A disabled policy has 0 seconds.
    if seconds := int((settings.get("softDeletePolicy") or {}).get("retentionDurationSeconds") or 0):
        parts.append(f"the bucket {bucket} keeps deleted objects for {_days(seconds)} (soft delete)")
    if (settings.get("versioning") or {}).get("enabled"):
        parts.append(f"the bucket {bucket} keeps versions of objects: a lifecycle rule must delete noncurrent versions")
    if seconds := int((settings.get("retentionPolicy") or {}).get("retentionPeriod") or 0):
        parts.append(
            f"the bucket {bucket} has a retention policy: objects younger than {_days(seconds)} cannot be deleted"
        )
    if settings.get("defaultEventBasedHold"):
        parts.append(f"the bucket {bucket} holds new objects: held objects cannot be deleted")
    return "; ".join(parts)


def _days(seconds: int) -> str:
    days = seconds / _DAY_SECONDS
    return f"{days:g} day{'' if days == 1 else 's'}"
