"""What the gateway answers: buckets, objects, listings, and uploads in parts."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, BinaryIO
from urllib.parse import quote, unquote

from starlette.responses import Response, StreamingResponse

from lakefs_gc.formats.entry import Entry
from lakefs_gc.sandbox import objects
from lakefs_gc.sandbox.context import Sandbox
from lakefs_gc.sandbox.gateway.documents import document, read_completed_parts, read_keys_to_delete, shown_time
from lakefs_gc.sandbox.gateway.problems import invalid_argument, no_such_key, not_implemented, s3_error
from lakefs_gc.sandbox.gateway.uploads import MAX_PART_NUMBER, Uploads
from lakefs_gc.sandbox.objects import Conditions, Replacing, Upload
from lakefs_gc.sandbox.problems import ApiError, NotFound
from lakefs_gc.sandbox.records import Record, list_level
from lakefs_gc.sandbox.refs import Repository
from lakefs_gc.sandbox.streams import byte_range, pieces

MAX_KEYS = 1000
_METADATA_HEADER = "x-amz-meta-"
_STORED_METADATA = "X-Amz-Meta-"
"""How lakeFS keeps what came by this header; metadata of the API has no prefix and is not shown here."""


@dataclass(frozen=True)
class GatewayCall:
    """One request; ``key`` is what follows the bucket, decoded, and empty for the bucket itself."""

    sandbox: Sandbox
    uploads: Uploads
    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    content: BinaryIO

    def repository(self) -> Repository:
        """The repository that the bucket is.  Raises ``NotFound``."""
        return self.sandbox.refs.repository(self.bucket)

    @property
    def place(self) -> tuple[str, str]:
        """Ref and path of the key."""
        return _split(self.key)

    @property
    def metadata(self) -> dict[str, str]:
        """The user's metadata, as it is stored."""
        return {
            _STORED_METADATA + name.removeprefix(_METADATA_HEADER): value
            for name, value in self.headers.items()
            if name.startswith(_METADATA_HEADER)
        }

    @property
    def content_type(self) -> str:
        """Of the object that is sent."""
        return self.headers.get("content-type") or objects.DEFAULT_CONTENT_TYPE


def handle(call: GatewayCall) -> Response:
    """The answer to a request whose signature was verified.  Raises ``S3Error`` or ``ApiError``."""
    if not call.bucket:
        handler = _SERVICE.get(call.method)
    elif not call.key:
        call.repository()
        handler = _bucket_handler(call)
    else:
        call.repository()
        handler = _object_handler(call)
    if handler is None:
        raise not_implemented()
    return handler(call)


def _bucket_handler(call: GatewayCall) -> _Handler | None:
    if call.method == "GET":
        if "location" in call.query:
            return _bucket_location
        # ``prefix`` and the like; everything else is a subresource, such as ``versioning``.
        return list_objects if set(call.query) <= _LISTING_PARAMETERS else None
    if call.method == "HEAD":
        return _head_bucket
    return delete_objects if call.method == "POST" and "delete" in call.query else None


def _object_handler(call: GatewayCall) -> _Handler | None:
    if "uploadId" in call.query:
        return {"PUT": put_part, "POST": complete_upload, "DELETE": abort_upload}.get(call.method)
    if call.method == "POST":
        return begin_upload if "uploads" in call.query else None
    if {"acl", "tagging", "attributes", "legal-hold", "retention"} & set(call.query):
        return None
    return {"GET": get_object, "HEAD": head_object, "PUT": put_object, "DELETE": delete_object}.get(call.method)


# -- buckets


def _list_buckets(call: GatewayCall) -> Response:
    buckets = [
        {"Name": repository.name, "CreationDate": shown_time(repository.creation_date * 1_000_000_000)}
        for repository in call.sandbox.refs.repositories()
    ]
    return document("ListAllMyBucketsResult", {"Buckets": {"Bucket": buckets}})


def _head_bucket(call: GatewayCall) -> Response:
    return Response(status_code=200)


def _bucket_location(call: GatewayCall) -> Response:
    return document("LocationConstraint", {})


def list_objects(call: GatewayCall) -> Response:
    """``ListObjects`` and ``ListObjectsV2``; a prefix without a slash lists branches, as prefixes."""
    query, is_v2 = call.query, call.query.get("list-type") == "2"
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    amount = _number(query.get("max-keys", str(MAX_KEYS)), "maxKeys", MAX_KEYS)
    if is_v2 and query.get("continuation-token"):
        after = _decoded_token(query["continuation-token"])
    else:
        after = query.get("start-after" if is_v2 else "marker", "")
    found, has_more = _found(call, prefix, delimiter, after, amount) if amount else ([], False)
    shown = _url_encoded if query.get("encoding-type") == "url" else str
    fields: dict[str, Any] = {
        "Name": call.bucket,
        "Prefix": shown(prefix),
        "MaxKeys": amount,
        "IsTruncated": has_more,
        "Contents": [_shown(key, entry, shown) for key, entry in found if entry is not None],
        "CommonPrefixes": [{"Prefix": shown(key)} for key, entry in found if entry is None],
    }
    if delimiter:
        fields["Delimiter"] = shown(delimiter)
    if "encoding-type" in query:
        fields["EncodingType"] = query["encoding-type"]
    if is_v2:
        fields["KeyCount"] = len(found)
        if has_more:
            fields["NextContinuationToken"] = base64.urlsafe_b64encode(found[-1][0].encode()).decode()
    else:
        fields["Marker"] = shown(after)
        if has_more:
            fields["NextMarker"] = shown(found[-1][0])
    return document("ListBucketResult", fields)


def _found(
    call: GatewayCall, prefix: str, delimiter: str, after: str, amount: int
) -> tuple[list[tuple[str, Entry | None]], bool]:
    """Keys with their entries, or without one for a common prefix; whether more follow."""
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
        found, has_more = list_level(
            lambda first: objects.walk(call.sandbox, call.repository(), ref, first),
            lambda record: record.key,
            prefix=path.encode(),
            delimiter=delimiter.encode(),
            after=after.removeprefix(start).encode(),
            amount=amount,
        )
    except NotFound:  # as lakeFS: a ref that does not exist has no objects
        return [], False
    return [_keyed(start, item) for item in found], has_more


def _keyed(start: str, item: Record | bytes) -> tuple[str, Entry | None]:
    return (start + item.decode(), None) if isinstance(item, bytes) else (start + item.path, item.entry)


def delete_objects(call: GatewayCall) -> Response:
    """``DeleteObjects``: each key by itself."""
    keys, is_quiet = read_keys_to_delete(call.content.read())
    if len(keys) > objects.MAX_DELETE_PATHS:
        raise invalid_argument(f"at most {objects.MAX_DELETE_PATHS} keys")
    deleted, errors = [], []
    for key in keys:
        try:
            branch, path = _split(key)
            objects.delete(call.sandbox, call.repository(), branch, [path])
            deleted.append({"Key": key})
        except ApiError as error:
            shown = s3_error(error)
            errors.append({"Key": key, "Code": shown.code, "Message": shown.message})
    return document("DeleteResult", {"Deleted": [] if is_quiet else deleted, "Error": errors})


# -- objects


def get_object(call: GatewayCall) -> Response:
    """``GetObject``: the bytes, or a range of them."""
    entry = _find(call)
    if _is_unmodified(call, entry):
        return Response(status_code=304, headers=_headers(entry))
    part = byte_range(call.headers.get("range"), entry.size_bytes)
    stream = objects.open_bytes(call.sandbox, call.repository(), entry)
    first, last = part or (0, entry.size_bytes - 1)
    headers = _headers(entry, part)
    body = pieces(stream, first, last - first + 1)
    return StreamingResponse(body, 206 if part else 200, headers)


def head_object(call: GatewayCall) -> Response:
    """``HeadObject``."""
    entry = _find(call)
    part = byte_range(call.headers.get("range"), entry.size_bytes)
    status = 304 if _is_unmodified(call, entry) else 206 if part else 200
    return Response(None, status, _headers(entry, part))


def put_object(call: GatewayCall) -> Response:
    """``PutObject`` and ``CopyObject``."""
    if "x-amz-copy-source" in call.headers:
        return _copy_object(call)
    branch, path = call.place
    upload = Upload(path, call.content_type, call.metadata, _conditions(call))
    record = objects.upload(call.sandbox, call.repository(), branch, upload, call.content)
    return Response(status_code=200, headers={"ETag": f'"{record.entry.e_tag}"'})


def _copy_object(call: GatewayCall) -> Response:
    source = unquote(call.headers["x-amz-copy-source"].partition("?")[0]).removeprefix("/")
    bucket, _, key = source.partition("/")
    source_ref, source_path = _split(key)
    directive = call.headers.get("x-amz-metadata-directive", "COPY")
    if directive not in ("COPY", "REPLACE"):
        raise invalid_argument("Unknown metadata directive.")
    branch, path = call.place
    record = objects.copy(
        call.sandbox,
        call.repository(),
        branch,
        path,
        source_ref,
        source_path,
        source_repository=call.sandbox.refs.repository(bucket),
        replacing=Replacing(call.content_type, call.metadata) if directive == "REPLACE" else None,
    )
    entry = record.entry
    fields = {"ETag": f'"{entry.e_tag}"', "LastModified": shown_time(entry.last_modified_ns)}
    return document("CopyObjectResult", fields)


def delete_object(call: GatewayCall) -> Response:
    """``DeleteObject``; what does not exist is deleted."""
    branch, path = call.place
    objects.delete(call.sandbox, call.repository(), branch, [path])
    return Response(status_code=204)


# -- uploads in parts


def begin_upload(call: GatewayCall) -> Response:
    """``CreateMultipartUpload``."""
    branch, path = call.place
    objects.check_path(path)
    call.sandbox.refs.branch(call.bucket, branch)
    facts = {"content_type": call.content_type, "metadata": call.metadata}
    upload_id = call.uploads.begin(_whole(call), facts)
    return document("InitiateMultipartUploadResult", {"Bucket": call.bucket, "Key": call.key, "UploadId": upload_id})


def put_part(call: GatewayCall) -> Response:
    """``UploadPart``."""
    if "x-amz-copy-source" in call.headers:
        raise not_implemented()
    number = _number(call.query.get("partNumber", ""), "partNumber", MAX_PART_NUMBER)
    digest = call.uploads.put_part(call.query["uploadId"], _whole(call), number, call.content)
    return Response(status_code=200, headers={"ETag": f'"{digest}"'})


def complete_upload(call: GatewayCall) -> Response:
    """``CompleteMultipartUpload``: the parts become one object."""
    upload_id, (branch, path) = call.query["uploadId"], call.place
    facts: dict[str, Any] = call.uploads.facts(upload_id, _whole(call))
    content, e_tag = call.uploads.open_parts(upload_id, _whole(call), read_completed_parts(call.content.read()))
    upload = Upload(path, facts["content_type"], facts["metadata"], _conditions(call), e_tag=e_tag)
    with content:
        objects.upload(call.sandbox, call.repository(), branch, upload, content)
    call.uploads.end(upload_id, _whole(call))
    location = f"http://{call.headers['host']}/{quote(_whole(call))}"
    fields = {"Location": location, "Bucket": call.bucket, "Key": call.key, "ETag": f'"{e_tag}"'}
    return document("CompleteMultipartUploadResult", fields)


def abort_upload(call: GatewayCall) -> Response:
    """``AbortMultipartUpload``."""
    call.uploads.end(call.query["uploadId"], _whole(call))
    return Response(status_code=204)


def _find(call: GatewayCall) -> Entry:
    ref, path = call.place
    try:
        return objects.find(call.sandbox, call.repository(), ref, path).entry
    except ApiError as error:
        if error.status in (400, 404):  # a directory or a ref that is none is no key either
            raise no_such_key() from None
        raise


def _headers(entry: Entry, part: tuple[int, int] | None = None) -> dict[str, str]:
    first, last = part or (0, entry.size_bytes - 1)
    modified = datetime.fromtimestamp(entry.last_modified_ns // 1_000_000_000, UTC)
    headers = {
        "ETag": f'"{entry.e_tag}"',
        "Last-Modified": format_datetime(modified, usegmt=True),
        "Content-Type": entry.content_type,
        "Accept-Ranges": "bytes",
        "Content-Length": str(last - first + 1),
    }
    if part:
        headers["Content-Range"] = f"bytes {first}-{last}/{entry.size_bytes}"
    return headers | {name: value for name, value in entry.metadata.items() if name.startswith(_STORED_METADATA)}


def _is_unmodified(call: GatewayCall, entry: Entry) -> bool:
    return call.headers.get("if-none-match", "").strip('"') == entry.e_tag


def _conditions(call: GatewayCall) -> Conditions:
    return Conditions(call.headers.get("if-match", ""), call.headers.get("if-none-match", ""))


def _split(key: str) -> tuple[str, str]:
    ref, _, path = key.partition("/")
    return ref, path


def _whole(call: GatewayCall) -> str:
    return f"{call.bucket}/{call.key}"


def _number(text: str, name: str, maximum: int) -> int:
    if not (text.isascii() and text.isdecimal()) or (name == "partNumber" and not 1 <= int(text) <= maximum):
        raise invalid_argument(f"Argument {name} must be a number of at most {maximum}")
    return min(int(text), maximum)


def _decoded_token(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise invalid_argument("The continuation token provided is incorrect") from None


def _url_encoded(key: str) -> str:
    return quote(key, safe="/-_.~")


def _shown(key: str, entry: Entry, shown: Callable[[str], str]) -> dict[str, Any]:
    return {
        "Key": shown(key),
        "LastModified": shown_time(entry.last_modified_ns),
        "ETag": f'"{entry.e_tag}"',
        "Size": entry.size_bytes,
        "StorageClass": "STANDARD",
    }


_Handler = Callable[[GatewayCall], Response]
_SERVICE: dict[str, _Handler] = {"GET": _list_buckets}
_LISTING_PARAMETERS = {
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
