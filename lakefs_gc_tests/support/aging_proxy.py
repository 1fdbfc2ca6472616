"""Proxies before emulators that make objects older in the answers of the store: no emulator can do that.

An age belongs to a version of an object (its ETag or generation), so an object that is written again is new.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from html import unescape
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from azure.core.pipeline import PipelineContext, PipelineRequest
from azure.core.pipeline.transport import HttpRequest
from azure.storage.blob import BlobServiceClient

from lakefs_gc.sandbox.azurite import ACCOUNT, Azurite
from lakefs_gc.sandbox.fake_gcs import FakeGCS
from lakefs_gc.storage.azure.store import AzureStore
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.gcs.store import GCSStore
from lakefs_gc_tests.support.gcs_stand_in import Reply, batch, error, ids_in, requests_in
from lakefs_gc_tests.support.store_proxy import StoreAnswer, StoreProxy

_BLOB = re.compile(rb"<Blob><Name>([^<]*)</Name>.*?</Blob>", re.DOTALL)
_TIME = re.compile(rb"(<Last-Modified>)([^<]*)(</Last-Modified>)")
_ETAG = re.compile(rb"<Etag>([^<]*)</Etag>")
_CONDITION = "If-Unmodified-Since"


@dataclass(frozen=True)
class _Age:
    version: str
    """The ETag or the generation."""
    last_modified: datetime


class AgingProxy(StoreProxy):
    """A proxy that shows objects as older as they are, after ``make_old``."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self._ages: dict[str, _Age] = {}
        """By the name of the object, with the bucket or container."""

    def make_old(self, store: ObjectStore, key: str, hours: float) -> None:
        """Show the object as if it was written so long ago. Raise ``KeyError`` if it does not exist."""
        info = store.stat_many([key])[key]
        last_modified = (datetime.now(UTC) - timedelta(hours=hours)).replace(microsecond=0)
        self._ages[self.name_of(store, key)] = _Age(info.e_tag, last_modified)

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> StoreAnswer:
        """See ``StoreProxy``. Requests are not recorded: there are many."""
        return self.forward(method, path, headers, body)

    @abstractmethod
    def name_of(self, store: ObjectStore, key: str) -> str:
        """Return the name of an object, with the bucket or container."""

    def age_of(self, name: str, version: str) -> datetime | None:
        """Return the time to show for a version of an object; None if it is the store's own."""
        age = self._ages.get(name)
        return age.last_modified if age and age.version == version else None


class AgingAzurite(AgingProxy):
    """See ``AgingProxy``. A delete on the condition of a time is sent on the condition of the ETag instead."""

    def __init__(self, azurite: Azurite) -> None:
        super().__init__(azurite.endpoint.removesuffix(f"/{ACCOUNT}"))
        credential = {"account_name": ACCOUNT, "account_key": azurite.key}
        self._policy: Any = BlobServiceClient(azurite.endpoint, credential)._credential_policy

    def name_of(self, store: ObjectStore, key: str) -> str:
        assert isinstance(store, AzureStore)
        return f"{store.folder.container}/{store.root}{key}"

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> StoreAnswer:
        """See ``StoreProxy``."""
        parts = urlsplit(path)
        name, query = _blob_name(path), parse_qs(parts.query)
        if query.get("comp") == ["batch"]:
            body = re.sub(rb"(?ms)^DELETE (\S+) HTTP/1.1\r\n(.*?)\r\n\r\n", self._part, body)
            headers = self._signed(method, path, {**headers, "Content-Length": str(len(body))})
        elif _CONDITION in headers:
            headers = self._with_condition(method, path, headers)
        answer = super().forward(method, path, headers, body)
        if method == "PUT" and answer.status < 300:
            self._ages.pop(name, None)  # for conditions: another version is new already
        if query.get("comp") == ["list"]:
            container = name
            listed = _BLOB.sub(lambda blob: self._listed(container, blob), answer.body)
            return StoreAnswer(answer.status, listed, answer.headers)
        shown = {header.lower(): value for header, value in answer.headers.items()}
        aged = self.age_of(name, shown.get("etag", "").strip('"'))
        if method in ("GET", "HEAD") and aged:
            shown["last-modified"] = format_datetime(aged, usegmt=True)
            return StoreAnswer(answer.status, answer.body, shown)
        return answer

    def _listed(self, container: str, blob: re.Match[bytes]) -> bytes:
        name = f"{container}/{unescape(blob[1].decode())}"
        version = _ETAG.search(blob[0])
        aged = self.age_of(name, unescape(version[1].decode()).strip('"')) if version else None
        if aged is None:
            return blob[0]
        return _TIME.sub(rb"\g<1>" + format_datetime(aged, usegmt=True).encode() + rb"\g<3>", blob[0])

    def _part(self, part: re.Match[bytes]) -> bytes:
        path = part[1].decode()
        headers = dict(line.split(": ", 1) for line in part[2].decode().split("\r\n"))
        if _CONDITION not in headers:
            return part[0]
        lines = (f"{name}: {value}" for name, value in self._with_condition("DELETE", path, headers).items())
        return "\r\n".join([f"DELETE {path} HTTP/1.1", *lines, "", ""]).encode()

    def _with_condition(self, method: str, path: str, headers: dict[str, str]) -> dict[str, str]:
        """Return the headers with a condition that has the same result for an object that is made old.

        If the condition is an earlier time, the real time does not fulfil it either.
        """
        age = self._ages.get(_blob_name(path))
        if age is None or age.last_modified > parsedate_to_datetime(headers[_CONDITION]):
            return headers
        kept = {name: value for name, value in headers.items() if name != _CONDITION}
        return self._signed(method, path, {**kept, "If-Match": f'"{age.version}"'})

    def _signed(self, method: str, path: str, headers: dict[str, str]) -> dict[str, str]:
        request = HttpRequest(method, path, headers=headers)
        self._policy.on_request(PipelineRequest(request, PipelineContext(None)))
        return dict(request.headers)


class AgingGCS(AgingProxy):
    """See ``AgingProxy``. It checks the condition of a delete, which fake-gcs-server ignores."""

    def __init__(self, fake_gcs: FakeGCS) -> None:
        super().__init__(fake_gcs.endpoint)

    def name_of(self, store: ObjectStore, key: str) -> str:
        assert isinstance(store, GCSStore)
        return f"{store.folder.bucket}/{store.root}{key}"

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> StoreAnswer:
        """See ``StoreProxy``. Each request of a batch is sent by itself."""
        parts = urlsplit(path)
        if parts.path.startswith("/batch/"):
            answers = [self.forward(one, where, {}, b"") for one, where in requests_in(body)]
            replies = [Reply(answer.status, answer.body) for answer in answers]
            together = batch(*zip(ids_in(body), replies, strict=True))
            return StoreAnswer(together.status, together.content, together.headers)
        query = parse_qs(parts.query)
        if method == "DELETE" and "ifGenerationMatch" in query:
            now = super().forward("GET", parts.path, {}, b"")
            if now.status == 200 and json.loads(now.body)["generation"] != query["ifGenerationMatch"][0]:
                changed = error(412, "conditionNotMet", "At least one of the pre-conditions did not hold.")
                return StoreAnswer(changed.status, changed.content, changed.headers)
        answer = super().forward(method, path, headers, body)
        is_content = "media" in query.get("alt", [])  # which may be JSON, too
        if (
            method != "GET"
            or answer.status != 200
            or is_content
            or "json" not in answer.headers.get("Content-Type", "")
        ):
            return answer
        document = json.loads(answer.body)
        for resource in document.get("items", [document]):
            aged = self.age_of(f"{resource.get('bucket')}/{resource.get('name')}", str(resource.get("generation")))
            if aged:
                resource.update(dict.fromkeys(("timeCreated", "updated"), aged.isoformat().replace("+00:00", "Z")))
        return StoreAnswer(answer.status, json.dumps(document).encode(), answer.headers)


def _blob_name(path: str) -> str:
    """Return the container and the name of a blob, or the container alone."""
    return unquote(urlsplit(path).path.removeprefix(f"/{ACCOUNT}/"))


@contextmanager
def aging_azurite(azurite: Azurite) -> Iterator[tuple[AgingProxy, dict[str, str]]]:
    """Yield a proxy before Azurite, and the variables that lead to it."""
    with AgingAzurite(azurite) as proxy:
        yield proxy, {**azurite.environment, "AZURE_STORAGE_SERVICE_ENDPOINT": f"{proxy.endpoint}/{ACCOUNT}"}


@contextmanager
def aging_gcs(fake_gcs: FakeGCS) -> Iterator[tuple[AgingProxy, dict[str, str]]]:
    """Yield a proxy before fake-gcs-server, and the variable that leads to it."""
    with AgingGCS(fake_gcs) as proxy:
        yield proxy, {"STORAGE_EMULATOR_HOST": proxy.endpoint}
