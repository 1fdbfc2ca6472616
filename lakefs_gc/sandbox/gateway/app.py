"""The gateway as an ASGI application, in front of the API on the same port.

As in lakeFS, both use one listener, and a request with an AWS signature goes to the gateway.
"""

from __future__ import annotations

import logging
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.sandbox.context import Sandbox
from lakefs_gc.sandbox.gateway.body import spooled_body
from lakefs_gc.sandbox.gateway.call import GatewayCall
from lakefs_gc.sandbox.gateway.documents import error_document
from lakefs_gc.sandbox.gateway.handlers import handle
from lakefs_gc.sandbox.gateway.problems import S3Error, s3_error
from lakefs_gc.sandbox.gateway.signature import SignedRequest, is_signed, verify
from lakefs_gc.sandbox.gateway.uploads import Uploads
from lakefs_gc.sandbox.problems import ApiError

logger = logging.getLogger(__name__)

_UPLOADS_FOLDER = "uploads"


class Gateway:
    """Answers S3 requests, and passes all other requests to the API."""

    def __init__(self, sandbox: Sandbox, api: ASGIApp) -> None:
        self._sandbox = sandbox
        self._api = api
        self._uploads = Uploads(sandbox.folder / _UPLOADS_FOLDER, sandbox.clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._api(scope, receive, send)
            return
        request = Request(scope, receive)
        if not is_signed(request.headers, request.query_params):
            await self._api(scope, receive, send)
            return
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        raw_path = request.scope["raw_path"].decode("ascii").partition("?")[0]
        try:
            return await self._handled(request, raw_path)
        except S3Error as error:
            refusal = error
        except ApiError as error:
            refusal = s3_error(error)
        except LakeFSGCError as error:
            logger.exception("request failed method=%s path=%s", request.method, request.url.path)
            refusal = S3Error(500, "InternalError", error.message)
        except Exception as error:
            logger.exception("request failed method=%s path=%s", request.method, request.url.path)
            refusal = S3Error(500, "InternalError", f"internal error: {type(error).__name__}")
        return error_document(refusal, raw_path, with_body=request.method != "HEAD")

    async def _handled(self, request: Request, raw_path: str) -> Response:
        sandbox, headers = self._sandbox, {name.lower(): value for name, value in request.headers.items()}
        signed = SignedRequest(request.method, raw_path, request.query_params.multi_items(), headers)
        verified = verify(signed, sandbox.credentials, sandbox.clock)
        bucket, _, key = unquote(raw_path).removeprefix("/").partition("/")
        # The checksums in the headers of a multipart completion are those of the whole object, not of the body.
        is_completion = request.method == "POST" and "uploadId" in request.query_params
        checksum_headers = {} if is_completion else headers
        async with spooled_body(request.stream(), verified, checksum_headers) as content:
            call = GatewayCall(
                sandbox, self._uploads, request.method, bucket, key, request.query_params, headers, content
            )
            return await run_in_threadpool(handle, call)
