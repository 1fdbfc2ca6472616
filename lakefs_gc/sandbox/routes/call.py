"""A request to the API, as its handlers use it, and their answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from starlette.responses import Response

from lakefs_gc.sandbox.context import Sandbox
from lakefs_gc.sandbox.problems import ApiError, invalid, missing
from lakefs_gc.sandbox.versions.refs import Repository, is_repository_name

API_PREFIX = "/api/v1"
MAX_PER_PAGE = 1000
DEFAULT_PER_PAGE = 100

_TRUE = {"true", "1", "t"}
_FALSE = {"false", "0", "f"}
_KINDS = {str: "string", int: "integer", bool: "boolean", list: "array", dict: "object"}


@dataclass(frozen=True)
class Page:
    """The requested page of a list."""

    prefix: str
    after: str
    amount: int


@dataclass(frozen=True)
class Call:
    """One request. ``body`` is the complete body, except for an upload, which is a stream in ``content``."""

    sandbox: Sandbox
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    content: BinaryIO | None = None
    content_type: str = ""
    queries: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def repository(self) -> Repository:
        """Return the repository in the path. Raise ``NotFound``."""
        return self.sandbox.refs.repository(self.path["repository"])

    def checked_repository(self) -> Repository:
        """Return the repository in the path, for calls that reject an invalid name. Raise ``ApiError`` 400."""
        if not is_repository_name(self.path["repository"]):
            raise invalid("repository", "repository id: ")
        return self.repository()

    def required(self, name: str) -> str:
        """Return a required query parameter. Raise ``ApiError`` 400."""
        if name not in self.query:
            raise ApiError(400, f'parameter "{name}" in query has an error: value is required but missing')
        return self.query[name]

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean query parameter. Raise ``ApiError`` 400."""
        value = self.query.get(name, "").lower()
        if value in _TRUE:
            return True
        if value in _FALSE:
            return False
        if not value:
            return default
        raise ApiError(400, f'parameter "{name}" in query has an error: value {value}: an invalid boolean')

    def page(self) -> Page:
        """Return the requested page of a list. Raise ``ApiError`` 400."""
        text = self.query.get("amount", "")
        try:
            amount = int(text) if text else DEFAULT_PER_PAGE
        except ValueError:
            message = f'parameter "amount" in query has an error: value {text}: an invalid integer'
            raise ApiError(400, message) from None
        amount = min(amount, MAX_PER_PAGE) if amount > 0 else DEFAULT_PER_PAGE
        return Page(self.query.get("prefix", ""), self.query.get("after", ""), amount)

    def json(self, schema: str, **types: type | tuple[type, ...]) -> dict[str, Any]:
        """Return the body, an object of the API's ``schema``, whose fields have the ``types``.

        A type in a tuple is the type of a required field. Raise ``ApiError`` 400.
        """
        try:
            body = json.loads(self.body) if self.body else None
        except ValueError as error:
            message = f"request body has an error: failed to decode request body: {error}"
            raise ApiError(400, message) from None
        if body is None:
            raise ApiError(400, "request body has an error: value is required but missing")
        check_fields(body, schema, types)
        checked: dict[str, Any] = body
        return checked


def check_fields(body: Any, schema: str, types: Mapping[str, type | tuple[type, ...]], place: str = "") -> None:
    """Raise ``ApiError`` 400 unless ``body`` (at ``place`` in the request's body) has fields of these types.

    A type in a tuple is the type of a required field.
    """
    if not isinstance(body, dict):
        raise _schema_error(schema, place, "value must be an object")
    for name, kind in types.items():
        is_required = isinstance(kind, tuple)
        expected = kind[0] if isinstance(kind, tuple) else kind
        if name not in body:
            if is_required:
                raise _schema_error(schema, f"{place}/{name}", f'property "{name}" is missing')
            continue
        value = body[name]
        if value is None and not is_required:
            continue
        is_bool = isinstance(value, bool) and expected is not bool
        if is_bool or not isinstance(value, expected):
            article = "an" if _KINDS[expected][0] in "aio" else "a"
            raise _schema_error(schema, f"{place}/{name}", f"value must be {article} {_KINDS[expected]}")


Handler = Callable[[Call], Response]
RouteTable = Sequence[tuple[str, str, Handler]]
"""Method, path below ``API_PREFIX``, handler."""


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON answer."""
    content = json.dumps(body, separators=(",", ":"), ensure_ascii=False, sort_keys=True) + "\n"
    return Response(content, status, headers, media_type="application/json")


def no_content() -> Response:
    """Return an empty answer (204)."""
    return Response(status_code=204)


def refusal(error: ApiError) -> Response:
    """Return the answer of an ``ApiError``."""
    return answer({"message": error.message}, error.status)


def text_map(body: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return an optional field that maps texts to texts."""
    value = body.get(name) or {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise ApiError(400, f'request body has an error: Error at "/{name}": value must be a string')
    return dict(value)


def required_text(value: str, argument: str) -> str:
    """Return a value that must not be empty. Raise ``ApiError`` 400."""
    if not value:
        raise missing(argument)
    return value


def paginated(results: Sequence[Any], has_more: bool, key: str) -> dict[str, Any]:
    """Return a page of a list: ``key`` names the field of a result that the next page begins after."""
    return {
        "pagination": {
            "has_more": has_more,
            "max_per_page": MAX_PER_PAGE,
            "next_offset": results[-1][key] if has_more and results else "",
            "results": len(results),
        },
        "results": list(results),
    }


def page_of(items: Sequence[Mapping[str, Any]], page: Page, key: str = "id") -> dict[str, Any]:
    """Return the requested page of a complete list that is sorted by ``key``."""
    fitting = [item for item in items if item[key].startswith(page.prefix) and item[key] > page.after]
    return paginated(fitting[: page.amount], len(fitting) > page.amount, key)


def _schema_error(schema: str, place: str, reason: str) -> ApiError:
    where = f"doesn't match schema #/components/schemas/{schema}"
    return ApiError(400, f'request body has an error: {where}: Error at "{place}": {reason}')
