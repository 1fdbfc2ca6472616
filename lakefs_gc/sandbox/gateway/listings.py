"""The handlers that list the keys of a bucket."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from lakefs_gc.formats.entry import Entry
from lakefs_gc.sandbox.data import objects
from lakefs_gc.sandbox.gateway.call import GatewayCall
from lakefs_gc.sandbox.gateway.documents import document, shown_time
from lakefs_gc.sandbox.gateway.problems import invalid_argument
from lakefs_gc.sandbox.problems import NotFound
from lakefs_gc.sandbox.state.records import Record, list_level

MAX_KEYS = 1000
PARAMETERS = frozenset(
    {
        "list-type",
        "prefix",
        "delimiter",
        "max-keys",
        "start-after",
        "continuation-token",
        "marker",
        "encoding-type",
        "fetch-owner",
    }
)
"""The query parameters of a listing. Every other parameter names a subresource of the bucket."""


def list_objects(call: GatewayCall) -> Response:
    """``ListObjects`` and ``ListObjectsV2``. A prefix without a slash lists branches as prefixes."""
    query, is_v2 = call.query, call.query.get("list-type") == "2"
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    amount = call.number("max-keys", MAX_KEYS, MAX_KEYS)
    if is_v2 and query.get("continuation-token"):
        after = _decoded_token(query["continuation-token"])
    else:
        after = query.get("start-after" if is_v2 else "marker", "")
    items, has_more = _items(call, prefix, delimiter, after, amount) if amount else ([], False)
    shown = url_encoded if query.get("encoding-type") == "url" else str
    fields: dict[str, Any] = {
        "Name": call.bucket,
        "Prefix": shown(prefix),
        "MaxKeys": amount,
        "IsTruncated": has_more,
        "Contents": [_shown(key, entry, shown) for key, entry in items if entry is not None],
        "CommonPrefixes": [{"Prefix": shown(key)} for key, entry in items if entry is None],
    }
    if delimiter:
        fields["Delimiter"] = shown(delimiter)
    if "encoding-type" in query:
        fields["EncodingType"] = query["encoding-type"]
    if is_v2:
        fields["KeyCount"] = len(items)
        if has_more:
            fields["NextContinuationToken"] = base64.urlsafe_b64encode(items[-1][0].encode()).decode()
    else:
        fields["Marker"] = shown(after)
        if has_more:
            fields["NextMarker"] = shown(items[-1][0])
    return document("ListBucketResult", fields)


def _items(
    call: GatewayCall, prefix: str, delimiter: str, after: str, amount: int
) -> tuple[list[tuple[str, Entry | None]], bool]:
    """Return keys with their entries (None for a common prefix), and whether more follow."""
    ref, slash, path = prefix.partition("/")
    if not slash:
        branches = call.sandbox.refs.branches(call.bucket)
        names = [branch.name + "/" for branch in branches if branch.name.startswith(ref) and not branch.hidden]
        following = [(name, None) for name in names if name > after]
        return list(following[:amount]), len(following) > amount
    start = f"{ref}/"
    if not after.startswith(start):
        if after > prefix:
            return [], False
        after = ""
    try:
        items, has_more = list_level(
            lambda first: objects.walk(call.sandbox, call.repository(), ref, first),
            lambda record: record.key,
            prefix=path.encode(),
            delimiter=delimiter.encode(),
            after=after.removeprefix(start).encode(),
            amount=amount,
        )
    except NotFound:  # as in lakeFS, a missing ref has no objects
        return [], False
    return [_keyed(start, item) for item in items], has_more


def _keyed(start: str, item: Record | bytes) -> tuple[str, Entry | None]:
    return (start + item.decode(), None) if isinstance(item, bytes) else (start + item.path, item.entry)


def _decoded_token(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise invalid_argument("The continuation token provided is incorrect") from None


def url_encoded(key: str) -> str:
    """Return a key in a document whose ``encoding-type`` is ``url``."""
    return quote(key, safe="/-_.~")


def _shown(key: str, entry: Entry, shown: Callable[[str], str]) -> dict[str, Any]:
    return {
        "Key": shown(key),
        "LastModified": shown_time(entry.last_modified_ns),
        "ETag": f'"{entry.e_tag}"',
        "Size": entry.size_bytes,
        "StorageClass": "STANDARD",
    }
