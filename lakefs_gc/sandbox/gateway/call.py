"""A request to the gateway, as its handlers use it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import unquote

from starlette.responses import Response

from lakefs_gc.formats.entry import Entry
from lakefs_gc.sandbox.context import Sandbox
from lakefs_gc.sandbox.data import objects
from lakefs_gc.sandbox.data.objects import Conditions
from lakefs_gc.sandbox.gateway.problems import invalid_argument, no_such_key
from lakefs_gc.sandbox.gateway.uploads import Uploads
from lakefs_gc.sandbox.problems import ApiError
from lakefs_gc.sandbox.versions.refs import Repository

STORED_METADATA = "X-Amz-Meta-"
"""The prefix of metadata from this header in lakeFS; metadata of the API has no prefix and is not shown here."""
COPY_SOURCE = "x-amz-copy-source"
_METADATA_HEADER = "x-amz-meta-"


@dataclass(frozen=True)
class CopySource:
    """The source object of a copy."""

    repository: Repository
    ref: str
    path: str


@dataclass(frozen=True)
class GatewayCall:
    """One request. ``key`` is the decoded path after the bucket, and empty for the bucket itself."""

    sandbox: Sandbox
    uploads: Uploads
    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    content: BinaryIO

    def repository(self) -> Repository:
        """Return the repository of the bucket. Raise ``NotFound``."""
        return self.sandbox.refs.repository(self.bucket)

    @property
    def ref_and_path(self) -> tuple[str, str]:
        """Return the ref and the path of the key."""
        return split_key(self.key)

    @property
    def whole_key(self) -> str:
        """Return bucket and key."""
        return f"{self.bucket}/{self.key}"

    @property
    def metadata(self) -> dict[str, str]:
        """Return the user's metadata, as it is stored."""
        return {
            STORED_METADATA + name.removeprefix(_METADATA_HEADER): value
            for name, value in self.headers.items()
            if name.startswith(_METADATA_HEADER)
        }

    @property
    def content_type(self) -> str:
        """Return the content type of the sent object."""
        return self.headers.get("content-type") or objects.DEFAULT_CONTENT_TYPE

    @property
    def conditions(self) -> Conditions:
        """Return the conditions of an upload."""
        return Conditions(self.headers.get("if-match", ""), self.headers.get("if-none-match", ""))

    def copy_source(self) -> CopySource:
        """Return the source that the header names. Raise ``NotFound``."""
        source = unquote(self.headers[COPY_SOURCE].partition("?")[0]).removeprefix("/")
        bucket, _, key = source.partition("/")
        return CopySource(self.sandbox.refs.repository(bucket), *split_key(key))

    def number(self, name: str, default: int, maximum: int) -> int:
        """Return a number in the query, at most ``maximum``. Raise ``S3Error`` 400."""
        text = self.query.get(name) or str(default)
        if re.fullmatch(r"[0-9]{1,9}", text) is None:
            raise invalid_argument(f"Argument {name} must be a number of at most {maximum}")
        return min(int(text), maximum)


Handler = Callable[[GatewayCall], Response]


def split_key(key: str) -> tuple[str, str]:
    """Return the ref and the path of a key."""
    ref, _, path = key.partition("/")
    return ref, path


def find_entry(sandbox: Sandbox, repository: Repository, ref: str, path: str) -> Entry:
    """Return the entry at a path of a ref. Raise ``S3Error`` 404."""
    try:
        return objects.find(sandbox, repository, ref, path).entry
    except ApiError as error:
        if error.status in (400, 404):  # an invalid path or ref is a missing key
            raise no_such_key() from None
        raise
