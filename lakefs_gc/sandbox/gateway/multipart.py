"""The handlers of multipart uploads; ``uploads`` stores their parts."""

from __future__ import annotations

from itertools import islice
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from lakefs_gc.sandbox.data import objects
from lakefs_gc.sandbox.data.objects import Upload
from lakefs_gc.sandbox.data.streams import byte_range, pieces, pieces_of
from lakefs_gc.sandbox.gateway.call import COPY_SOURCE, GatewayCall, Handler, find_entry
from lakefs_gc.sandbox.gateway.documents import document, read_completed_parts, shown_time
from lakefs_gc.sandbox.gateway.listings import url_encoded
from lakefs_gc.sandbox.gateway.problems import invalid_argument
from lakefs_gc.sandbox.gateway.uploads import MAX_PART_NUMBER

_MAX_LISTED = 1000


def begin(call: GatewayCall) -> Response:
    """``CreateMultipartUpload``."""
    branch, path = call.ref_and_path
    objects.check_path(path)
    call.sandbox.refs.branch(call.bucket, branch)
    facts = {"content_type": call.content_type, "metadata": call.metadata}
    upload_id = call.uploads.begin(call.whole_key, facts)
    return document("InitiateMultipartUploadResult", {"Bucket": call.bucket, "Key": call.key, "UploadId": upload_id})


def put_part(call: GatewayCall) -> Response:
    """``UploadPart``, and ``UploadPartCopy`` of an object or a range of it."""
    number = call.number("partNumber", 0, MAX_PART_NUMBER + 1)
    if not 1 <= number <= MAX_PART_NUMBER:
        raise invalid_argument(f"Argument partNumber must be a number of at most {MAX_PART_NUMBER}")
    upload_id = call.query["uploadId"]
    if COPY_SOURCE not in call.headers:
        part = call.uploads.put_part(upload_id, call.whole_key, number, pieces_of(call.content))
        return Response(status_code=200, headers={"ETag": f'"{part.digest}"'})
    source = call.copy_source()
    call.uploads.facts(upload_id, call.whole_key)
    entry = find_entry(call.sandbox, source.repository, source.ref, source.path)
    wanted = byte_range(call.headers.get(f"{COPY_SOURCE}-range"), entry.size_bytes)
    first, last = wanted or (0, entry.size_bytes - 1)
    stream = objects.open_bytes(call.sandbox, source.repository, entry)
    part = call.uploads.put_part(upload_id, call.whole_key, number, pieces(stream, first, last - first + 1))
    return document("CopyPartResult", {"ETag": f'"{part.digest}"', "LastModified": shown_time(part.last_modified_ns)})


def list_parts(call: GatewayCall) -> Response:
    """``ListParts``."""
    upload_id = call.query["uploadId"]
    amount = call.number("max-parts", _MAX_LISTED, _MAX_LISTED)
    marker = call.number("part-number-marker", 0, MAX_PART_NUMBER)
    following = [part for part in call.uploads.parts(upload_id, call.whole_key) if part.number > marker]
    shown = following[:amount]
    fields: dict[str, Any] = {
        "Bucket": call.bucket,
        "Key": call.key,
        "UploadId": upload_id,
        "PartNumberMarker": marker,
        "MaxParts": amount,
        "IsTruncated": len(following) > len(shown),
        "StorageClass": "STANDARD",
        "Part": [
            {
                "PartNumber": part.number,
                "LastModified": shown_time(part.last_modified_ns),
                "ETag": f'"{part.digest}"',
                "Size": part.size_bytes,
            }
            for part in shown
        ],
    }
    if shown:
        fields["NextPartNumberMarker"] = shown[-1].number
    return document("ListPartsResult", fields)


def list_uploads(call: GatewayCall) -> Response:
    """``ListMultipartUploads``: those of the bucket that are neither completed nor aborted."""
    query, prefix = call.query, call.query.get("prefix", "")
    amount = call.number("max-uploads", _MAX_LISTED, _MAX_LISTED)
    marker = (query.get("key-marker", ""), query.get("upload-id-marker", ""))
    # A marker without an id stands for all uploads to that key.
    following = (
        upload
        for upload in call.uploads.unfinished(call.bucket)
        if upload.key.startswith(prefix)
        and ((upload.key, upload.upload_id) > marker if marker[1] else not marker[0] or upload.key > marker[0])
    )
    uploads = list(islice(following, amount + 1))
    shown = url_encoded if query.get("encoding-type") == "url" else str
    fields: dict[str, Any] = {
        "Bucket": call.bucket,
        "Prefix": shown(prefix),
        "KeyMarker": shown(marker[0]),
        "UploadIdMarker": marker[1],
        "MaxUploads": amount,
        "IsTruncated": len(uploads) > amount,
        "Upload": [
            {
                "Key": shown(upload.key),
                "UploadId": upload.upload_id,
                "Initiated": shown_time(upload.begun_at_ns),
                "StorageClass": "STANDARD",
            }
            for upload in uploads[:amount]
        ],
    }
    if "encoding-type" in query:
        fields["EncodingType"] = query["encoding-type"]
    if len(uploads) > amount > 0:
        last = uploads[amount - 1]
        fields |= {"NextKeyMarker": shown(last.key), "NextUploadIdMarker": last.upload_id}
    return document("ListMultipartUploadsResult", fields)


def complete(call: GatewayCall) -> Response:
    """``CompleteMultipartUpload``: the parts become one object."""
    upload_id, (branch, path) = call.query["uploadId"], call.ref_and_path
    facts: dict[str, Any] = call.uploads.facts(upload_id, call.whole_key)
    parts = read_completed_parts(call.content.read())
    content, e_tag = call.uploads.open_parts(upload_id, call.whole_key, parts)
    upload = Upload(path, facts["content_type"], facts["metadata"], call.conditions, e_tag=e_tag)
    with content:
        objects.upload(call.sandbox, call.repository(), branch, upload, content)
    call.uploads.end(upload_id, call.whole_key)
    location = f"http://{call.headers['host']}/{quote(call.whole_key)}"
    fields = {"Location": location, "Bucket": call.bucket, "Key": call.key, "ETag": f'"{e_tag}"'}
    return document("CompleteMultipartUploadResult", fields)


def abort(call: GatewayCall) -> Response:
    """``AbortMultipartUpload``."""
    call.uploads.end(call.query["uploadId"], call.whole_key)
    return Response(status_code=204)


HANDLERS: dict[str, Handler] = {"PUT": put_part, "POST": complete, "DELETE": abort, "GET": list_parts}
"""The handlers of requests that name an upload, by method."""
