"""The routes of ranges and metaranges: their locations and contents."""

from __future__ import annotations

from starlette.responses import Response

from lakefs_gc.errors import ObjectNotFoundError
from lakefs_gc.sandbox.problems import NotFound, gone
from lakefs_gc.sandbox.routes.call import Call, RouteTable, answer
from lakefs_gc.sandbox.versions.ranges import METADATA_FOLDER


def get_location(call: Call) -> Response:
    """``GET .../metadata/meta_range/{id}`` and ``.../range/{id}``: the location, whether it exists or not."""
    call.repository()
    location = METADATA_FOLDER + call.path["id"]
    return answer({"location": location}, headers={"Location": location})


def get_metadata_object(call: Call) -> Response:
    """``GET .../metadata/object/{type}/{id}``: the bytes of any file below ``_lakefs/``, whatever the type."""
    if call.path["type"] not in ("meta_range", "range"):
        raise NotFound
    repository = call.repository()
    if call.flag("presign"):
        address = repository.folder + METADATA_FOLDER + call.path["id"]
        return Response(None, 302, {"Location": call.sandbox.presigner.read_address_url(address)})
    store = call.sandbox.namespaces.store(repository.folder)
    try:
        data = store.read(METADATA_FOLDER + call.path["id"])
    except ObjectNotFoundError:
        raise gone() from None
    return Response(data, media_type="application/octet-stream")


_METADATA = "/repositories/{repository}/metadata"

ROUTES: RouteTable = [
    ("GET", _METADATA + "/meta_range/{id}", get_location),
    ("GET", _METADATA + "/range/{id}", get_location),
    ("GET", _METADATA + "/object/{type}/{id:path}", get_metadata_object),
]
