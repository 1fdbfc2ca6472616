"""The versions that a bucket has of its objects, also after versioning was switched off.

Source: Google's documents, "Objects: list" (``versions``) and "Object Versioning": versions stay when it is disabled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from lakefs_gc.errors import StorageError
from lakefs_gc.storage.concurrency import map_unordered
from lakefs_gc.storage.gcs.client import GCSClient, checked_kind
from lakefs_gc.storage.gcs.errors import IncompleteAnswerError
from lakefs_gc.storage.gcs.lookup import find_objects

_LISTINGS_AT_ONCE = 16
_FIELDS = "kind,items(name,generation),nextPageToken"


def count_versions(client: GCSClient, names: Sequence[str], others: Iterable[str]) -> dict[str, int]:
    """Return how many versions of each name are listed beside the current one. One listing for each name.

    Each object that exists is listed as a version, so lists without any prove nothing. If that of each name is empty,
    the first of ``others``, which exist, must be listed.
    """
    current = {
        name: str(facts["generation"]) if facts else ""
        for name, facts in find_objects(client, names, _LISTINGS_AT_ONCE)
    }
    listed = dict(map_unordered(lambda name: set(_generations(client, name)), current, _LISTINGS_AT_ONCE))
    not_listed = [name for name, generations in listed.items() if current[name] and not generations]
    if not any(listed.values()):
        not_listed += [name for name in islice(others, 1) if not any(_generations(client, name))]
    if not_listed:
        raise StorageError(
            f"{client.where(not_listed[0])}: the object exists, and the store lists no version of it, so a list "
            "without one shows nothing",
            remedy="Check whether a proxy in front of the store changes its answers, then run again",
        )
    return {name: len(generations - {current[name]}) for name, generations in listed.items()}


def _generations(client: GCSClient, name: str) -> Iterator[str]:
    query = {"prefix": name, "versions": "true", "fields": _FIELDS, "prettyPrint": "false"}
    seen: set[str] = set()
    while True:
        page = client.call(lambda: _page(client, query), action="list", key=name)
        # The prefix also matches longer names.
        yield from (str(item["generation"]) for item in page.get("items", []) if item["name"] == name)
        token = page.get("nextPageToken", "")
        if not token:
            return
        if token in seen:
            raise StorageError(
                f"{client.where(name)}: the store's listing of versions repeats a token, so it never ends",
                remedy="Report it to the vendor of the store",
            )
        seen.add(token)
        query["pageToken"] = token


def _page(client: GCSClient, query: dict[str, str]) -> dict[str, Any]:
    document = checked_kind(client.send("GET", client.listing_path, query=query)).document()
    try:
        names = [item["name"] for item in document.get("items", []) if item["generation"]]
    except (KeyError, TypeError) as error:
        raise IncompleteAnswerError("a version of the listing has no name or no generation") from error
    if not all(str(name).startswith(query["prefix"]) for name in names):
        raise IncompleteAnswerError(f"the store returned names outside {query['prefix']!r}")
    return document
