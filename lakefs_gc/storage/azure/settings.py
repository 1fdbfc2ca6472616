"""Settings of an account and its container that keep the bytes of deleted blobs, or forbid to delete them.

Source: Microsoft Learn, "Get Blob Service Properties", "Get Container Properties", "Get Account Information" and "List
Blobs" (``include=versions``).
"""

from __future__ import annotations

import re
from functools import partial
from xml.etree import ElementTree

from lakefs_gc.errors import AccessDeniedError, StorageError
from lakefs_gc.storage.azure.client import AzureClient

_REPORTS = "_lakefs/retention/gc/"
_VERSION = re.compile(rb"<VersionId>[^<]+</VersionId>")


def space_not_freed(azure: AzureClient) -> str:
    """Return why a delete frees no space; empty if it does.

    Raise ``AccessDeniedError`` if the credentials do not permit to read the settings of the account.
    """
    parts = [_soft_delete(azure), _versions(azure), _immutability(azure)]
    return "; ".join(part for part in parts if part)


def is_hierarchical(azure: AzureClient) -> bool | None:
    """Return whether the account has a hierarchical namespace; None if the credentials do not permit the question."""
    try:
        answer = azure.call(
            lambda: azure.send("GET", query={"restype": "account", "comp": "properties"}),
            action="read the settings of the account",
            key="",
        )
    except AccessDeniedError:
        return None
    text = answer.headers.get("x-ms-is-hns-enabled", "").lower()
    return text == "true" if text else None


def _soft_delete(azure: AzureClient) -> str:
    answer = azure.call(
        lambda: azure.send("GET", url=f"{azure.endpoint}/", query={"restype": "service", "comp": "properties"}),
        action="read the settings of the account",
        key="",
    )
    try:
        policy = ElementTree.fromstring(answer.body).find("DeleteRetentionPolicy")
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise StorageError(
            f"{azure.where('')}: the settings of the account cannot be read ({error})",
            remedy="Check whether a proxy in front of the store changes its answers, then run again",
        ) from error
    if policy is None or policy.findtext("Enabled", "").lower() != "true":
        return ""
    days = policy.findtext("Days", "an unknown number of")
    return f"the account {azure.folder.account} keeps deleted blobs for {days} days (soft delete)"


def _versions(azure: AzureClient) -> str:
    """Return whether the newest files that a run writes have versions: no request of the service shows the setting."""
    pages = []
    for prefix in (azure.folder.root + _REPORTS, azure.folder.root):
        query = {"restype": "container", "comp": "list", "prefix": prefix, "include": "versions"}
        answer = azure.call(partial(azure.send, "GET", query=query), action="list", key=prefix)
        pages.append(answer.body)
        if b"<Blob>" in answer.body:
            break
    if not _VERSION.search(pages[-1]):
        return ""
    return (
        f"the account {azure.folder.account} keeps versions of blobs: a rule of its lifecycle management must delete "
        "earlier versions"
    )


def _immutability(azure: AzureClient) -> str:
    headers = azure.call(
        lambda: azure.send("HEAD", query={"restype": "container"}),
        action="read the settings of the container",
        key="",
    ).headers
    parts = []
    if headers.get("x-ms-has-legal-hold", "").lower() == "true":
        parts.append("a legal hold")
    if headers.get("x-ms-has-immutability-policy", "").lower() == "true":
        parts.append("an immutability policy")
    if headers.get("x-ms-immutable-storage-with-versioning-enabled", "").lower() == "true":
        parts.append("immutability of versions")
    if not parts:
        return ""
    return f"the container {azure.folder.container} has {' and '.join(parts)}: locked blobs cannot be deleted"
