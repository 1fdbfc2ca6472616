"""The routes of imports."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from lakefs_gc.sandbox.problems import ApiError
from lakefs_gc.sandbox.routes.call import Call, RouteTable, answer, no_content, text_map
from lakefs_gc.sandbox.versions.commits import CommitParameters
from lakefs_gc.sandbox.versions.imports import DEFAULT_MESSAGE, Source, start_import

_TYPES = {"common_prefix": True, "object": False}


def start(call: Call) -> Response:
    """``POST /repositories/{repository}/branches/{branch}/import``."""
    body = call.json("ImportCreation", paths=(list,), commit=(dict,), force=bool)
    repository, commit = call.repository(), body["commit"]
    sources = [_source(path) for path in body["paths"]]
    parameters = CommitParameters(
        commit.get("message") or DEFAULT_MESSAGE,
        text_map(commit, "metadata"),
        force=bool(body.get("force")),
    )
    import_id = start_import(call.sandbox, repository, call.path["branch"], sources, parameters)
    return answer({"id": import_id}, 202)


def status(call: Call) -> Response:
    """``GET /repositories/{repository}/branches/{branch}/import``."""
    import_id = call.required("id")
    return answer(call.sandbox.tasks.status(call.repository().name, import_id))


def cancel(call: Call) -> Response:
    """``DELETE /repositories/{repository}/branches/{branch}/import``."""
    import_id = call.required("id")
    call.sandbox.tasks.cancel(call.repository().name, import_id)
    return no_content()


def _source(path: Any) -> Source:
    if not isinstance(path, dict) or not {"path", "destination", "type"} <= path.keys():
        raise ApiError(400, 'request body has an error: Error at "/paths/0": value is incomplete')
    if path["type"] not in _TYPES:
        raise ApiError(400, f"invalid import type: {path['type']}: validation error")
    return Source(str(path["path"]), str(path["destination"]), is_prefix=_TYPES[path["type"]])


_IMPORT = "/repositories/{repository}/branches/{branch}/import"

ROUTES: RouteTable = [
    ("POST", _IMPORT, start),
    ("GET", _IMPORT, status),
    ("DELETE", _IMPORT, cancel),
]
