"""Buckets in which a plain delete frees no space: versions, delete markers, and object lock.

Source: AWS S3 API reference (ListObjectVersions, DeleteObjects, HeadObject, GetBucketVersioning,
GetObjectLockConfiguration, GetBucketLifecycleConfiguration).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple
from xml.etree import ElementTree

from lakefs_gc.errors import AccessDeniedError, ObjectNotFoundError, StorageError
from lakefs_gc.storage.base import Deletion, DeletionOutcome, ObjectStore, ObjectVersions, VersionedTarget
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.delete_window import DeleteWindow
from lakefs_gc.storage.s3.client import RAW_PAGE, RetryingClient
from lakefs_gc.storage.s3.delete import Target, delete_targets

_LISTINGS_AT_ONCE = 16
_CLOCK_GRAIN = timedelta(seconds=1)  # of HEAD; a listing has milliseconds
# The complete answer: answers about a missing permission contain names of roles, buckets and keys, which can be any
# text.
_LOCKED_ANSWER = (
    "(?:AccessDenied: Access Denied because object protected by object lock"  # AWS
    "|AccessDenied: forbidden by object lock"  # Ceph
    r"|InvalidRequest: Object is WORM protected and cannot be overwritten)\.?"  # MinIO
)
# The answer to a bulk delete, or within the error of a single delete (``storage_error``).
_SAYS_LOCKED = re.compile(
    rf"{_LOCKED_ANSWER}|s3://.*: (?:access denied for s3:\w+|s3:\w+ failed) \({_LOCKED_ANSWER}\)", re.DOTALL
)
_NO_VERSION = (
    "the store shows the object, but lists no version of it. Set sweep.delete_versions to false if it keeps no versions"
)
_MAY_BE_LOCKED = re.compile("AccessDenied|access denied|InvalidRequest|Forbidden")


def space_not_freed(s3: RetryingClient, prefix: str) -> str:
    """Return why a delete below ``prefix`` frees no space; empty if it does.

    Raise ``AccessDeniedError`` if the credentials do not permit the question whether the bucket keeps versions, and
    ``StorageError`` if something else answers it.
    """
    answer = s3.call(lambda: s3.client.get_bucket_versioning(Bucket=s3.bucket), action="GetBucketVersioning", key="")
    # botocore does not look at the name of the root: any XML, and no body, would be a bucket without versions.
    if not _is_versioning(answer.get(RAW_PAGE, b"")):
        raise s3.incomplete_answer("", "is not about the versioning of the bucket")
    versioning = answer.get("Status", "")
    if not versioning:
        return ""  # object lock requires versions
    parts = [f"the bucket {s3.bucket} keeps versions (versioning: {versioning})"]
    parts += [text for text in (_lock_of_bucket(s3), _expiry(s3, prefix)) if text]
    return "; ".join(parts)


def _is_versioning(body: bytes) -> bool:
    try:
        root = ElementTree.fromstring(body).tag
    except ElementTree.ParseError:
        return False
    return root.rpartition("}")[2] == "VersioningConfiguration"


def _lock_of_bucket(s3: RetryingClient) -> str:
    try:
        configuration = s3.call(
            lambda: s3.client.get_object_lock_configuration(Bucket=s3.bucket),
            action="GetBucketObjectLockConfiguration",
            key="",
        ).get("ObjectLockConfiguration", {})
    except AccessDeniedError:
        return "object lock is unknown (access denied for s3:GetBucketObjectLockConfiguration)"
    except StorageError:
        return ""  # 404: no lock configured; 501 and similar: the store does not support it
    if configuration.get("ObjectLockEnabled") != "Enabled":
        return ""
    rule = configuration.get("Rule", {}).get("DefaultRetention", {})
    period = f"{rule['Days']} days" if "Days" in rule else f"{rule['Years']} years" if "Years" in rule else ""
    by_default = f", by default for {period} ({rule.get('Mode', '')})" if period else ""
    return f"object lock is on{by_default}: locked objects cannot be deleted before their lock ends"


def _expiry(s3: RetryingClient, prefix: str) -> str:
    try:
        rules = s3.call(
            lambda: s3.client.get_bucket_lifecycle_configuration(Bucket=s3.bucket),
            action="GetLifecycleConfiguration",
            key="",
        ).get("Rules", [])
    except AccessDeniedError:
        return "expiry by lifecycle rules is unknown (access denied for s3:GetLifecycleConfiguration)"
    except StorageError:
        return "no lifecycle rule expires them"
    days = [rule["NoncurrentVersionExpiration"].get("NoncurrentDays") for rule in rules if _covers(rule, prefix)]
    if not days:
        return "no lifecycle rule expires them"
    return f"a lifecycle rule expires noncurrent versions after {min(day or 0 for day in days)} days"


def _covers(rule: dict[str, Any], prefix: str) -> bool:
    """Return whether a rule expires the noncurrent versions of everything below ``prefix``."""
    condition = rule.get("Filter", {})
    narrower = set(condition) - {"Prefix"}  # tags, sizes, And
    of_rule = condition.get("Prefix", rule.get("Prefix", ""))
    return (
        rule.get("Status") == "Enabled"
        and "NoncurrentVersionExpiration" in rule
        and not narrower
        and prefix.startswith(of_rule)
    )


class _Version(NamedTuple):
    """A version or a delete marker."""

    target: Target
    is_marker: bool
    is_current: bool
    size_bytes: int | None
    last_modified: datetime


def find_versions(s3: RetryingClient, targets: Mapping[str, VersionedTarget]) -> dict[str, ObjectVersions]:
    """List the versions and delete markers of each name.

    Raise ``StorageError`` if a version has no time, or if an answer is not a listing of versions.
    """
    listed = map_unordered(lambda name: list(_versions(s3, name)), targets, _LISTINGS_AT_ONCE)
    return {
        name: ObjectVersions(
            targets[name],
            ids=tuple(version.target.version for version in versions),
            is_newer=_is_rewritten(targets[name], versions),
            markers=sum(version.is_marker for version in versions),
        )
        for name, versions in listed
    }


def count_versions(store: ObjectStore, keys: Sequence[str]) -> dict[str, int]:
    """Return what ``ObjectStore.count_versions`` says of a store with ``find_versions``.

    A bucket without versions lists each object as the version ``null``. So a list without any proves nothing.
    """
    exist, now = store.stat_many(keys), store.now()
    found = store.find_versions([VersionedTarget(key, exist.get(key), now) for key in keys])
    not_listed = [each.target.key for each in found if each.target.seen and not each.ids]
    if not any(each.ids for each in found):
        some = (key for batch in store.list("") for key in batch.column("address").to_pylist())
        targets = [VersionedTarget(key, None, now) for key in islice(some, 1)]
        not_listed += [each.target.key for each in store.find_versions(targets) if not each.ids]
    if not_listed:
        raise StorageError(
            f"{store.location.url}: the store has {not_listed[0]}, and lists no version of it, so a list without one "
            "shows nothing",
            remedy="Check whether a proxy in front of the store changes its answers, then run again",
        )
    return {each.target.key: len(each.ids) - each.markers - (each.target.key in exist) for each in found}


def delete_versions(
    s3: RetryingClient, listed: Mapping[str, ObjectVersions], window: DeleteWindow | None = None
) -> dict[str, Deletion]:
    """Delete the listed versions of each name permanently; return one outcome for each name.

    Each version is deleted by its id, so anything written after the listing stays. The exception is a bucket with
    suspended versioning: each write replaces the version ``null`` there, and a delete of ``null`` deletes what was
    written last.

    - ``NEWER``: the object was written again before the listing, and all its versions stay.
    - ``LOCKED``: a lock protects one of its versions.
    - ``FAILED``: one of its versions failed for another reason, or ``window`` was over. Or the listing has no version
      of an object that the store shows: a proxy answered, or a store without versions.

    With ``LOCKED`` and ``FAILED`` its other versions are deleted. Raise the errors of ``delete_targets``.
    """
    outcomes: dict[str, Deletion] = {}
    targets: list[Target] = []
    for name, versions in listed.items():
        if versions.is_newer:
            outcomes[name] = Deletion(name, DeletionOutcome.NEWER, "written again since the mark")
        elif versions.target.seen and not versions.ids:
            outcomes[name] = Deletion.of(name, _NO_VERSION)
        else:
            outcomes[name] = Deletion.of(name, "")
            targets += (Target(name, version) for version in versions.ids)
    failed = [(target, error) for target, error in delete_targets(s3, targets, window).items() if error]
    for (target, error), lock in map_unordered(lambda item: lock_of(s3, *item), failed, _LISTINGS_AT_ONCE):
        if outcomes[target.name].outcome is not DeletionOutcome.FAILED:
            outcome = DeletionOutcome.LOCKED if lock else DeletionOutcome.FAILED
            outcomes[target.name] = Deletion(target.name, outcome, lock or error)
    return outcomes


def _is_rewritten(deleted: VersionedTarget, versions: list[_Version]) -> bool:
    written = [version for version in versions if not version.is_marker]
    if any(version.last_modified > deleted.newest for version in written):
        return True
    # The time of an upload in parts is its start, so an object that was written again may look old.
    seen = deleted.seen
    return any(
        seen is None
        or version.size_bytes != seen.size_bytes
        or abs(version.last_modified - seen.last_modified) > _CLOCK_GRAIN
        for version in written
        if version.is_current
    )


def _versions(s3: RetryingClient, name: str) -> Iterator[_Version]:
    marker: dict[str, str] = {}
    while True:
        page = _page(s3, name, marker)
        for kind in ("Versions", "DeleteMarkers"):
            for entry in page.get(kind, []):
                if entry["Key"] == name:  # the prefix also matches longer keys
                    yield _version(s3, entry, is_marker=kind == "DeleteMarkers")
        if not page.get("IsTruncated"):
            return
        names = {"KeyMarker": "NextKeyMarker", "VersionIdMarker": "NextVersionIdMarker"}
        following = {parameter: page[field] for parameter, field in names.items() if page.get(field)}
        if not following or following == marker:
            raise StorageError(
                f"s3://{s3.bucket}/{name}: the store's listing of versions repeats its marker, so it never ends",
                remedy="Set sweep.delete_versions to false, and report it to the vendor of the store",
            )
        marker = following


def _version(s3: RetryingClient, entry: dict[str, Any], *, is_marker: bool) -> _Version:
    name, time = entry["Key"], entry.get("LastModified")
    if not isinstance(time, datetime):
        raise StorageError(
            f"s3://{s3.bucket}/{name}: the store's listing of versions has no time for a version",
            remedy="Set sweep.delete_versions to false, and report it to the vendor of the store",
        )
    is_current = bool(entry.get("IsLatest"))
    return _Version(Target(name, entry["VersionId"]), is_marker, is_current, entry.get("Size"), time)


def _page(s3: RetryingClient, name: str, marker: dict[str, str]) -> dict[str, Any]:
    answer: dict[str, Any] = s3.call(
        lambda: s3.client.list_object_versions(Bucket=s3.bucket, Prefix=name, **marker),
        action="ListBucketVersions",
        key=name,
    )
    if "Name" not in answer or "IsTruncated" not in answer:  # its value may differ: Ceph adds the tenant
        raise StorageError(
            f"s3://{s3.bucket}/{name}: the answer is no listing of versions, but one of a proxy or of a store without "
            "versions",
            remedy="Set sweep.delete_versions to false if the store keeps no versions. Check AWS_ENDPOINT_URL_S3",
        )
    if answer.get("Prefix", name) != name:
        raise s3.incomplete_answer(name, "is the listing of versions of another prefix")
    return answer


def deletion(key: str, error: str) -> Deletion:
    """Return the outcome of a plain delete with this error, or '' if the store deleted the key.

    AWS hides a locked object behind a delete marker, without an error. Some other stores refuse the delete and give the
    reason. A refusal with a text that is not known to be about a lock is a failure.
    """
    if _says_locked(error):
        return Deletion(key, DeletionOutcome.LOCKED, error)
    return Deletion.of(key, error)


def lock_of(s3: RetryingClient, target: Target, error: str) -> str:
    """Return the lock of an object that could not be deleted (its end, or a legal hold); empty if none is known.

    Stores answer "AccessDenied" for a lock and for a missing permission; the headers of the object distinguish them.
    """
    if not _MAY_BE_LOCKED.search(error):
        return ""
    request = {"Bucket": s3.bucket, "Key": target.name}
    if target.version:
        request["VersionId"] = target.version
    try:
        head = s3.call(lambda: s3.client.head_object(**request), action="GetObjectVersion", key=target.name)
    except ObjectNotFoundError:
        return ""
    except StorageError:
        return error if _says_locked(error) else ""
    if head.get("ObjectLockLegalHoldStatus") == "ON":
        return "locked: a legal hold"
    until = head.get("ObjectLockRetainUntilDate")
    if isinstance(until, datetime) and until > datetime.now(UTC):
        return f"locked until {until.astimezone(UTC).isoformat()} ({head.get('ObjectLockMode', '')})"
    return error if _says_locked(error) else ""


def _says_locked(error: str) -> bool:
    return _SAYS_LOCKED.fullmatch(error) is not None
