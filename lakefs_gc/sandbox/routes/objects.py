"""The routes of objects: read, write, list; stage and link objects that clients upload directly."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from starlette.responses import Response, StreamingResponse

from lakefs_gc.formats.entry import AddressType, Entry
from lakefs_gc.sandbox.data import objects
from lakefs_gc.sandbox.data.namespaces import shown_address
from lakefs_gc.sandbox.data.objects import Conditions, Staged, Upload, check_path
from lakefs_gc.sandbox.data.presigning import LIFETIME_SECONDS
from lakefs_gc.sandbox.data.streams import byte_range, pieces
from lakefs_gc.sandbox.problems import ApiError
from lakefs_gc.sandbox.routes.call import Call, RouteTable, answer, no_content, paginated, text_map
from lakefs_gc.sandbox.state.records import Record, list_level
from lakefs_gc.sandbox.versions.refs import Repository

_METADATA_HEADER = "x-lakefs-meta-"
_INTERNAL_METADATA_HEADER = "x-lakefs-internal-"
_INTERNAL_METADATA_PREFIX = "::lakefs::"


def shown_object(repository: Repository, path: str, entry: Entry, *, with_metadata: bool = True) -> dict[str, Any]:
    """Return an entry as the API shows it."""
    shown = {
        "checksum": entry.e_tag,
        "content_type": entry.content_type,
        "mtime": entry.last_modified_ns // 1_000_000_000,
        "path": path,
        "path_type": "object",
        "physical_address": _address(repository, entry),
        "size_bytes": entry.size_bytes,
    }
    return {**shown, "metadata": entry.metadata} if with_metadata else shown


def _address(repository: Repository, entry: Entry) -> str:
    return shown_address(repository.storage_namespace, entry.address, entry.address_type)


# -- reading


def list_objects(call: Call) -> Response:
    """``GET /repositories/{repository}/refs/{ref}/objects/ls``."""
    presign = _wants_presigned(call)
    repository, page, ref = call.repository(), call.page(), call.path["ref"]
    listed, has_more = list_level(
        lambda start: objects.walk(call.sandbox, repository, ref, start),
        lambda record: record.key,
        prefix=page.prefix.encode(),
        delimiter=call.query.get("delimiter", "").encode(),
        after=page.after.encode(),
        amount=page.amount,
    )
    with_metadata = call.flag("user_metadata", default=True)
    results = []
    for item in listed:
        if isinstance(item, bytes):
            results.append(_shown_prefix(item))
            continue
        shown = shown_object(repository, item.path, item.entry, with_metadata=with_metadata)
        results.append(shown | _presigned(call, repository, item.entry) if presign else shown)
    return answer(paginated(results, has_more, "path"))


def _shown_prefix(prefix: bytes) -> dict[str, Any]:
    return {
        "checksum": "",
        "mtime": 0,
        "path": prefix.decode(),
        "path_type": "common_prefix",
        "physical_address": "",
    }


def stat_object(call: Call) -> Response:
    """``GET /repositories/{repository}/refs/{ref}/objects/stat``: does not read the store."""
    presign = _wants_presigned(call)
    repository = call.repository()
    record = _find(call, repository)
    shown = shown_object(repository, record.path, record.entry)
    if not call.flag("user_metadata", default=True):
        shown["metadata"] = {}
    return answer(shown | _presigned(call, repository, record.entry) if presign else shown)


def get_object(call: Call) -> Response:
    """``GET /repositories/{repository}/refs/{ref}/objects``: the bytes or a redirect; 410 if they are deleted."""
    presign = _wants_presigned(call)
    repository = call.repository()
    entry = _find(call, repository).entry
    headers = _headers(entry)
    if call.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304)
    if presign:
        url = call.sandbox.presigner.read_url(repository.storage_namespace, entry)
        return Response(None, 302, {"Location": url})
    part = byte_range(call.headers.get("range"), entry.size_bytes)
    stream = objects.open_bytes(call.sandbox, repository, entry)
    first, last = part if part else (0, entry.size_bytes - 1)
    size = last - first + 1
    headers |= {"Content-Length": str(size), "Cache-Control": "private, no-store", "Expires": "0"}
    if part:
        headers["Content-Range"] = f"bytes {first}-{last}/{entry.size_bytes}"
    body = pieces(stream, first, size)
    return StreamingResponse(body, 206 if part else 200, headers)


def head_object(call: Call) -> Response:
    """``HEAD /repositories/{repository}/refs/{ref}/objects``: does not read the store."""
    try:
        entry = _find(call, call.repository()).entry
        part = byte_range(call.headers.get("range"), entry.size_bytes)
    except ApiError as error:
        return Response(status_code=error.status)
    first, last = part if part else (0, entry.size_bytes - 1)
    headers = _headers(entry) | {"Accept-Ranges": "bytes", "Content-Length": str(last - first + 1)}
    headers |= {"Cache-Control": "no-store, must-revalidate", "Expires": "0"}
    if part:
        headers["Content-Range"] = f"bytes {first}-{last}/{entry.size_bytes}"
    return Response(None, 206 if part else 200, headers)


def _find(call: Call, repository: Repository) -> Record:
    return objects.find(call.sandbox, repository, call.path["ref"], call.required("path"))


def _headers(entry: Entry) -> dict[str, str]:
    modified = datetime.fromtimestamp(entry.last_modified_ns // 1_000_000_000, UTC)
    return {
        "ETag": f'"{entry.e_tag}"',
        "Last-Modified": format_datetime(modified, usegmt=True),
        "Content-Type": entry.content_type,  # as a media type, Starlette would add a character set
    }


def _wants_presigned(call: Call) -> bool:
    if not call.flag("presign"):
        return False
    call.sandbox.presigner.check_supported()
    return True


def _presigned(call: Call, repository: Repository, entry: Entry) -> dict[str, Any]:
    url = call.sandbox.presigner.read_url(repository.storage_namespace, entry)
    return {"physical_address": url, "physical_address_expiry": call.sandbox.now_seconds() + LIFETIME_SECONDS}


# -- writing


def upload_object(call: Call) -> Response:
    """``POST /repositories/{repository}/branches/{branch}/objects``: the body, or the form field ``content``."""
    repository, path = call.repository(), call.required("path")
    if call.content is None:
        raise ApiError(500, "multipart upload missing key 'content': http: no such file")
    request = Upload(
        path,
        call.content_type or objects.DEFAULT_CONTENT_TYPE,
        _metadata(call),
        _conditions(call),
        force=call.flag("force"),
    )
    record = objects.upload(call.sandbox, repository, call.path["branch"], request, call.content)
    return answer(shown_object(repository, path, record.entry), 201)


def copy_object(call: Call) -> Response:
    """``POST /repositories/{repository}/branches/{branch}/objects/copy``."""
    body = call.json("ObjectCopyCreation", src_path=(str,), src_ref=str, force=bool, shallow=bool)
    repository, path = call.repository(), call.required("dest_path")
    if body.get("shallow"):
        raise ApiError(501, "Not Implemented")
    record = objects.copy(
        call.sandbox,
        repository,
        call.path["branch"],
        path,
        body.get("src_ref") or "",
        body["src_path"],
        force=bool(body.get("force")),
    )
    return answer(shown_object(repository, path, record.entry), 201)


def delete_object(call: Call) -> Response:
    """``DELETE /repositories/{repository}/branches/{branch}/objects``."""
    repository, path = call.repository(), call.required("path")
    check_path(path)
    objects.delete(call.sandbox, repository, call.path["branch"], [path], force=call.flag("force"))
    return no_content()


def delete_objects(call: Call) -> Response:
    """``POST /repositories/{repository}/branches/{branch}/objects/delete``."""
    paths = call.json("PathList", paths=(list,))["paths"]
    if len(paths) > objects.MAX_DELETE_PATHS:
        limit = f"max paths is set to {objects.MAX_DELETE_PATHS}"
        raise ApiError(400, f"request size exceeded, {limit}")
    errors: list[dict[str, Any]] = []
    try:
        named = [path for path in paths if path]
        objects.delete(call.sandbox, call.repository(), call.path["branch"], named, force=call.flag("force"))
    except ApiError as error:
        # As in lakeFS, a missing path or branch counts as deleted. Other errors are reported for each path.
        if error.status != 404:
            errors = [{"message": error.message, "path": path, "status_code": error.status} for path in paths]
    return answer({"errors": errors})


def stage_object(call: Call) -> Response:
    """``PUT /repositories/{repository}/branches/{branch}/objects``: stages an existing object."""
    body = call.json(
        "ObjectStageCreation",
        physical_address=(str,),
        checksum=(str,),
        size_bytes=(int,),
        mtime=int,
        metadata=dict,
        content_type=str,
        force=bool,
    )
    repository = call.repository()
    request = Staged(
        call.required("path"),
        body["physical_address"],
        body["checksum"],
        body["size_bytes"],
        body.get("mtime"),
        body.get("content_type") or "",
        text_map(body, "metadata"),
        force=bool(body.get("force")),
    )
    record = objects.stage(call.sandbox, repository, call.path["branch"], request)
    shown = shown_object(repository, request.path, record.entry, with_metadata=False)
    # Shown decoded, as the client wrote it, even if it is stored relative to the namespace.
    address = shown_address(repository.storage_namespace, request.physical_address, AddressType.FULL)
    return answer({**shown, "physical_address": address}, 201)


def get_physical_address(call: Call) -> Response:
    """``GET /repositories/{repository}/branches/{branch}/staging/backing``."""
    repository, presign = call.repository(), _wants_presigned(call)
    signed = objects.new_link(call.sandbox, repository, call.path["branch"], call.required("path"))
    address = repository.folder + signed
    if call.sandbox.options.issues_folder_addresses:
        address = call.sandbox.namespaces.by_folder(address)
    if not presign:
        return answer({"physical_address": address, "presigned_url": None})
    expiry = call.sandbox.now_seconds() + LIFETIME_SECONDS
    url = call.sandbox.presigner.write_url(address)
    return answer({"physical_address": address, "presigned_url": url, "presigned_url_expiry": expiry})


def link_physical_address(call: Call) -> Response:
    """``PUT /repositories/{repository}/branches/{branch}/staging/backing``."""
    body = call.json(
        "StagingMetadata",
        staging=(dict,),
        checksum=(str,),
        size_bytes=(int,),
        user_metadata=dict,
        content_type=str,
        mtime=int,
        force=bool,
    )
    repository = call.repository()
    address = body["staging"].get("physical_address") or ""
    request = Staged(
        call.required("path"),
        address,
        body["checksum"],
        body["size_bytes"],
        body.get("mtime"),
        body.get("content_type") or "",
        text_map(body, "user_metadata"),
        _conditions(call),
        force=bool(body.get("force")),
    )
    record = objects.link(call.sandbox, repository, call.path["branch"], request)
    return answer({**shown_object(repository, request.path, record.entry), "physical_address": address})


def update_metadata(call: Call) -> Response:
    """``PUT /repositories/{repository}/branches/{branch}/objects/stat/user_metadata``."""
    body, path = call.json("UpdateObjectUserMetadata", set=(dict,)), call.required("path")
    metadata = text_map(body, "set")
    objects.update_metadata(call.sandbox, call.checked_repository(), call.path["branch"], path, metadata)
    return no_content()


def _conditions(call: Call) -> Conditions:
    return Conditions(call.headers.get("if-match", ""), call.headers.get("if-none-match", ""))


def _metadata(call: Call) -> dict[str, str]:
    metadata = {}
    for name, value in call.headers.items():
        lower = name.lower()
        if lower.startswith(_METADATA_HEADER):
            metadata[lower.removeprefix(_METADATA_HEADER)] = value
        elif lower.startswith(_INTERNAL_METADATA_HEADER):
            metadata[_INTERNAL_METADATA_PREFIX + lower.removeprefix(_INTERNAL_METADATA_HEADER)] = value
    return metadata


_REF = "/repositories/{repository}/refs/{ref}"
_BRANCH = "/repositories/{repository}/branches/{branch}"
UPLOAD_PATH = _BRANCH + "/objects"

ROUTES: RouteTable = [
    ("GET", _REF + "/objects/ls", list_objects),
    ("GET", _REF + "/objects/stat", stat_object),
    ("HEAD", _REF + "/objects", head_object),
    ("GET", _REF + "/objects", get_object),
    ("POST", UPLOAD_PATH, upload_object),
    ("PUT", UPLOAD_PATH, stage_object),
    ("DELETE", UPLOAD_PATH, delete_object),
    ("POST", UPLOAD_PATH + "/copy", copy_object),
    ("POST", UPLOAD_PATH + "/delete", delete_objects),
    ("PUT", UPLOAD_PATH + "/stat/user_metadata", update_metadata),
    ("GET", _BRANCH + "/staging/backing", get_physical_address),
    ("PUT", _BRANCH + "/staging/backing", link_physical_address),
]
