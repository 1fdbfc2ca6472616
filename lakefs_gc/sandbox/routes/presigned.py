"""The routes of multipart uploads with presigned URLs, directly to the store; only for a store in S3."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from lakefs_gc.formats.entry import AddressType
from lakefs_gc.sandbox.data import objects
from lakefs_gc.sandbox.data.namespaces import relative_if_data
from lakefs_gc.sandbox.data.objects import Staged
from lakefs_gc.sandbox.problems import ApiError
from lakefs_gc.sandbox.routes.call import Call, RouteTable, answer, check_fields, no_content, text_map
from lakefs_gc.sandbox.routes.objects import shown_object
from lakefs_gc.sandbox.versions.refs import Repository

_MAX_PARTS = 10_000


def create(call: Call) -> Response:
    """``POST .../branches/{branch}/staging/pmpu``: an address with its token, an upload and URLs for its parts."""
    repository, path, branch = _supported(call), call.required("path"), call.path["branch"]
    if not objects.has_branch(call.sandbox, repository, branch):
        raise ApiError(404, f"branch '{branch}' not found")
    if not path:
        raise ApiError(400, "path is required")
    parts = _number(call.query.get("parts") or "0", "parts")
    if not 0 <= parts <= _MAX_PARTS:
        raise ApiError(400, f"parts can be between 0 and {_MAX_PARTS}")
    address = repository.folder + objects.new_link(call.sandbox, repository, branch, path)
    presigner = call.sandbox.presigner
    upload_id = presigner.begin(address)
    shown: dict[str, Any] = {"physical_address": address, "upload_id": upload_id}
    if parts:
        shown["presigned_urls"] = [presigner.part_url(address, upload_id, number + 1) for number in range(parts)]
    return answer(shown, 201)


def complete(call: Call) -> Response:
    """``PUT .../staging/pmpu/{uploadId}``: the parts become an object, which is linked."""
    body = call.json(
        "CompletePresignMultipartUpload", physical_address=(str,), parts=(list,), user_metadata=dict, content_type=str
    )
    repository = _supported(call)
    for number, part in enumerate(body["parts"]):
        types = {"part_number": (int,), "etag": (str,)}
        check_fields(part, "CompletePresignMultipartUpload", types, f"/parts/{number}")
    address = _checked_address(call, repository, body)
    if not body["parts"]:
        raise ApiError(400, "parts are required")
    _verify(call, repository, address)
    parts = [(part["part_number"], part["etag"]) for part in body["parts"]]
    completed = call.sandbox.presigner.complete(address, call.path["uploadId"], parts)
    request = Staged(
        call.required("path"),
        address,
        completed.e_tag,
        completed.size_bytes,
        int(completed.last_modified.timestamp()),
        body.get("content_type") or "",
        text_map(body, "user_metadata"),
    )
    entry = objects.link(call.sandbox, repository, call.path["branch"], request).entry
    return answer({**shown_object(repository, request.path, entry), "physical_address": entry.address})


def abort(call: Call) -> Response:
    """``DELETE .../staging/pmpu/{uploadId}``."""
    body, repository = call.json("AbortPresignMultipartUpload", physical_address=(str,)), _supported(call)
    address = _checked_address(call, repository, body)
    _verify(call, repository, address)
    call.sandbox.presigner.abort(address, call.path["uploadId"])
    return no_content()


def upload_part(call: Call) -> Response:
    """``PUT .../staging/pmpu/{uploadId}/parts/{partNumber}``: a URL for one part."""
    body, repository = call.json("UploadPartFrom", physical_address=(str,)), _supported(call)
    address = _checked_address(call, repository, body)
    _verify(call, repository, address)
    number = _number(call.path["partNumber"], "partNumber")
    return answer({"presigned_url": call.sandbox.presigner.part_url(address, call.path["uploadId"], number)})


def copy_part(call: Call) -> Response:
    """``PUT .../staging/pmpu/{uploadId}/parts/{partNumber}/copy``: a part from another object, copied by the store."""
    body = call.json("UploadPartCopyFrom", physical_address=(str,), copy_source=(dict,))
    repository, source = _supported(call), body["copy_source"]
    types: dict[str, type | tuple[type, ...]] = {"repository": (str,), "ref": (str,), "path": (str,), "range": str}
    check_fields(source, "UploadPartCopyFrom", types, "/copy_source")
    origin = call.sandbox.refs.repository(source["repository"])
    address = _checked_address(call, repository, body)
    _verify(call, repository, address)
    entry = objects.find(call.sandbox, origin, source["ref"], source["path"]).entry
    store, key = call.sandbox.namespaces.place(origin.storage_namespace, entry)
    e_tag = call.sandbox.presigner.copy_part(
        address,
        call.path["uploadId"],
        _number(call.path["partNumber"], "partNumber"),
        store.location.folder_url + key,
        source.get("range") or "",
    )
    return Response(status_code=204, headers={"ETag": e_tag})


def _supported(call: Call) -> Repository:
    repository = call.repository()
    if not call.sandbox.presigner.is_supported:
        raise ApiError(501, "presign multipart upload API is not supported")
    return repository


def _checked_address(call: Call, repository: Repository, body: dict[str, Any]) -> str:
    """Return the whole URL that the client got from ``create``."""
    if not call.required("path"):
        raise ApiError(400, "path is required")
    address: str = body["physical_address"]
    if not address:
        raise ApiError(400, "physical_address is required")
    if relative_if_data(repository.storage_namespace, address)[1] is not AddressType.RELATIVE:
        raise ApiError(400, "physical address must be relative to the storage namespace")
    return address


def _verify(call: Call, repository: Repository, address: str) -> None:
    """Raise ``ApiError`` 400 unless the address was issued for this path and is not linked yet."""
    relative, _ = relative_if_data(repository.storage_namespace, address)
    objects.check_link(call.sandbox, repository, call.path["branch"], call.required("path"), relative)


def _number(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ApiError(400, f'parameter "{name}" in query has an error: value {text}: an invalid integer') from None


_UPLOADS = "/repositories/{repository}/branches/{branch}/staging/pmpu"
_ONE = _UPLOADS + "/{uploadId}"

ROUTES: RouteTable = [
    ("POST", _UPLOADS, create),
    ("PUT", _ONE, complete),
    ("DELETE", _ONE, abort),
    ("PUT", _ONE + "/parts/{partNumber}", upload_part),
    ("PUT", _ONE + "/parts/{partNumber}/copy", copy_part),
]
