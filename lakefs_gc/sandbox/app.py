"""The sandbox as an ASGI application: read requests, check credentials, convert errors to answers."""

from __future__ import annotations

import logging
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import BinaryIO, cast

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakefs_gc.errors import LakeFSGCError, NamespaceError
from lakefs_gc.sandbox.context import Sandbox
from lakefs_gc.sandbox.problems import ApiError
from lakefs_gc.sandbox.routes import (
    branches,
    commits,
    garbage,
    imports,
    metadata,
    objects,
    presigned,
    repositories,
    server,
)
from lakefs_gc.sandbox.routes.call import API_PREFIX, Call, Handler, RouteTable, refusal

logger = logging.getLogger(__name__)

_GROUPS: list[RouteTable] = [
    repositories.ROUTES,
    branches.ROUTES,
    commits.ROUTES,
    objects.ROUTES,
    presigned.ROUTES,
    imports.ROUTES,
    garbage.ROUTES,
    metadata.ROUTES,
    server.ROUTES,
]
_FORM = "multipart/form-data"
_SPOOL_BYTES = 1 << 20
_UPLOAD = ("POST", objects.UPLOAD_PATH)


def create_app(sandbox: Sandbox) -> Starlette:
    """Return the application. Its caller closes the sandbox afterwards."""
    routes = [
        _route(sandbox, method, path, handler, needs_credentials=True)
        for group in _GROUPS
        for method, path, handler in group
    ]
    routes += [
        _route(sandbox, method, path, handler, needs_credentials=False) for method, path, handler in server.OPEN_ROUTES
    ]
    handlers = {HTTPException: _no_such_endpoint, Exception: _failed}
    return Starlette(routes=routes, exception_handlers=handlers)


def _route(sandbox: Sandbox, method: str, path: str, handler: Handler, *, needs_credentials: bool) -> Route:
    async def endpoint(request: Request) -> Response:
        try:
            if needs_credentials:
                sandbox.authenticator.check(request.headers.get("authorization", ""))
            async with _call(sandbox, request, is_upload=(method, path) == _UPLOAD) as call:
                return await run_in_threadpool(handler, call)
        except ApiError as error:
            return refusal(error)
        except NamespaceError as error:
            return refusal(ApiError(400, f"{error.message}: invalid address"))
        except LakeFSGCError as error:
            logger.exception("request failed method=%s path=%s", method, request.url.path)
            return refusal(ApiError(500, error.message))

    return Route(API_PREFIX + path, endpoint, methods=[method])


@asynccontextmanager
async def _call(sandbox: Sandbox, request: Request, *, is_upload: bool) -> AsyncIterator[Call]:
    content_type = request.headers.get("content-type", "")
    queries = defaultdict(list)
    for name, value in request.query_params.multi_items():
        queries[name].append(value)

    def call_with(body: bytes = b"", content: BinaryIO | None = None, content_type: str = content_type) -> Call:
        return Call(
            sandbox,
            request.path_params,
            request.query_params,
            request.headers,
            body,
            content,
            content_type,
            queries,
        )

    if not is_upload:
        yield call_with(body=await request.body())
    elif content_type.startswith(_FORM):
        async with request.form() as form:
            part = form.get("content")
            if isinstance(part, UploadFile):
                yield call_with(content=part.file, content_type=part.content_type or "")
            elif isinstance(part, str):
                with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spool:
                    spool.write(part.encode())
                    spool.seek(0)
                    yield call_with(content=cast(BinaryIO, spool), content_type="")
            else:
                yield call_with(content_type="")
    else:
        with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spool:
            async for piece in request.stream():
                spool.write(piece)
            spool.seek(0)
            yield call_with(content=cast(BinaryIO, spool))


async def _failed(request: Request, error: Exception) -> Response:
    return refusal(ApiError(500, f"internal error: {type(error).__name__}"))


async def _no_such_endpoint(request: Request, error: Exception) -> Response:
    return refusal(ApiError(404, "invalid API endpoint"))
