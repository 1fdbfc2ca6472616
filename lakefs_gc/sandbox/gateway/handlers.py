"""The handlers for buckets and objects; ``listings`` and ``multipart`` have the others."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

from starlette.responses import Response, StreamingResponse

from lakefs_gc.formats.entry import Entry
from lakefs_gc.sandbox.data import objects
from lakefs_gc.sandbox.data.objects import Replacing, Upload
from lakefs_gc.sandbox.data.streams import byte_range, pieces
from lakefs_gc.sandbox.gateway import listings, multipart
from lakefs_gc.sandbox.gateway.call import COPY_SOURCE, STORED_METADATA, GatewayCall, Handler, find_entry, split_key
from lakefs_gc.sandbox.gateway.documents import document, read_keys_to_delete, shown_time
from lakefs_gc.sandbox.gateway.problems import bucket_exists, invalid_argument, not_implemented, s3_error
from lakefs_gc.sandbox.problems import ApiError


def handle(call: GatewayCall) -> Response:
    """Answer a request with a verified signature. Raise ``S3Error`` or ``ApiError``."""
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


def _bucket_handler(call: GatewayCall) -> Handler | None:
    if call.method == "GET":
        if "location" in call.query:
            return _bucket_location
        if "uploads" in call.query:
            return multipart.list_uploads
        return listings.list_objects if set(call.query) <= listings.PARAMETERS else None
    if call.method == "PUT":
        return None if call.query else _create_bucket
    if call.method == "HEAD":
        return _head_bucket
    return delete_objects if call.method == "POST" and "delete" in call.query else None


def _object_handler(call: GatewayCall) -> Handler | None:
    if "uploadId" in call.query:
        return multipart.HANDLERS.get(call.method)
    if call.method == "POST":
        return multipart.begin if "uploads" in call.query else None
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


def _create_bucket(call: GatewayCall) -> Response:
    """Answer that the bucket exists. As in lakeFS, a bucket cannot be created through the gateway."""
    raise bucket_exists()


def _head_bucket(call: GatewayCall) -> Response:
    return Response(status_code=200)


def _bucket_location(call: GatewayCall) -> Response:
    return document("LocationConstraint", {})


def delete_objects(call: GatewayCall) -> Response:
    """``DeleteObjects``: deletes each key on its own."""
    keys, is_quiet = read_keys_to_delete(call.content.read())
    if len(keys) > objects.MAX_DELETE_PATHS:
        raise invalid_argument(f"at most {objects.MAX_DELETE_PATHS} keys")
    deleted, errors = [], []
    for key in keys:
        try:
            branch, path = split_key(key)
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
    if COPY_SOURCE in call.headers:
        return _copy_object(call)
    branch, path = call.ref_and_path
    upload = Upload(path, call.content_type, call.metadata, call.conditions)
    record = objects.upload(call.sandbox, call.repository(), branch, upload, call.content)
    return Response(status_code=200, headers={"ETag": f'"{record.entry.e_tag}"'})


def _copy_object(call: GatewayCall) -> Response:
    source = call.copy_source()
    directive = call.headers.get("x-amz-metadata-directive", "COPY")
    if directive not in ("COPY", "REPLACE"):
        raise invalid_argument("Unknown metadata directive.")
    branch, path = call.ref_and_path
    record = objects.copy(
        call.sandbox,
        call.repository(),
        branch,
        path,
        source.ref,
        source.path,
        source_repository=source.repository,
        replacing=Replacing(call.content_type, call.metadata) if directive == "REPLACE" else None,
    )
    entry = record.entry
    fields = {"ETag": f'"{entry.e_tag}"', "LastModified": shown_time(entry.last_modified_ns)}
    return document("CopyObjectResult", fields)


def delete_object(call: GatewayCall) -> Response:
    """``DeleteObject``: a missing object counts as deleted."""
    branch, path = call.ref_and_path
    objects.delete(call.sandbox, call.repository(), branch, [path])
    return Response(status_code=204)


def _find(call: GatewayCall) -> Entry:
    return find_entry(call.sandbox, call.repository(), *call.ref_and_path)


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
    return headers | {name: value for name, value in entry.metadata.items() if name.startswith(STORED_METADATA)}


def _is_unmodified(call: GatewayCall, entry: Entry) -> bool:
    return call.headers.get("if-none-match", "").strip('"') == entry.e_tag


_SERVICE: dict[str, Handler] = {"GET": _list_buckets}
