"""A stand-in for settings of an Azure account that Azurite does not have: it changes Azurite's answers.

The headers, elements and codes are those of Microsoft Learn, "Get Account Information", "Get Container Properties",
"List Blobs" and "Azure Blob Storage error codes".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from azure.storage.blob import BlobServiceClient, RetentionPolicy

from lakefs_gc.sandbox.azurite import ACCOUNT, Azurite
from lakefs_gc_tests.support.store_proxy import StoreAnswer, StoreProxy, StoreRequest, azure_error

_PART = re.compile(rb"Content-ID: (\d+)\r\n\r\nDELETE (\S+) HTTP/1.1\r\n(.*?)\r\n\r\n", re.DOTALL)
_EARLIER = (
    "<Blob><Name>{}</Name><VersionId>2026-01-01T12:00:00.0000000Z</VersionId><Properties><Last-Modified>"
    "Thu, 01 Jan 2026 12:00:00 GMT</Last-Modified><Content-Length>4</Content-Length></Properties></Blob>"
)
_NAME = re.compile(rb"<Blob><Name>[^<]*</Name>")


class AzureAccount(StoreProxy):
    """A proxy before Azurite; its fields are the settings of the account."""

    def __init__(self, azurite: Azurite) -> None:
        super().__init__(azurite.endpoint.removesuffix(f"/{ACCOUNT}"))
        self.container_headers: dict[str, str] = {}
        """Headers of the properties of each container: immutability and legal holds."""
        self.account_headers: dict[str, str] = {}
        self.keeps_versions = False
        self.earlier: list[str] = []
        """Names of which there is an earlier version, each time that one is in this list."""
        self.shows_types = False
        """Whether pages have the property that only accounts with a hierarchical namespace have."""
        self.held: dict[str, str] = {}
        """The ends of names of blobs that cannot be deleted, and the code by which the account says so."""
        self.changes.append(self._change)
        self.faults.append(self._hold)

    def _change(self, request: StoreRequest, answer: StoreAnswer) -> StoreAnswer:
        method, *asked = request.operation
        if "properties" in asked and "account" in asked:
            return replace(answer, headers={**answer.headers, **self.account_headers})
        if method == "HEAD" and "container" in asked:
            kept = {name: value for name, value in answer.headers.items() if name not in self.container_headers}
            return replace(answer, headers={**kept, **self.container_headers})
        if "list" not in asked or answer.status != 200:
            return answer
        body = answer.body
        if self.keeps_versions:
            version = b"<VersionId>2026-06-01T12:00:00.0000000Z</VersionId><IsCurrentVersion>true</IsCurrentVersion>"
            body = _NAME.sub(lambda name: name[0] + version, body)
        if self.earlier and any("versions" in each for each in asked[3:]):
            body = re.sub(rb"<Blobs ?/>", b"<Blobs></Blobs>", body)
            blobs = "".join(_EARLIER.format(name) for name in self.earlier if name.startswith(asked[1]))
            body = body.replace(b"</Blobs>", f"{blobs}</Blobs>".encode())
        if self.shows_types:
            body = body.replace(b"<BlobType>", b"<ResourceType>file</ResourceType><BlobType>")
        return replace(answer, body=body)

    def _hold(self, request: StoreRequest) -> StoreAnswer | None:
        method, path, *asked = request.operation
        if method == "DELETE" and (code := self._code(path)):
            return azure_error(409, code)
        if method != "POST" or "batch" not in asked or not self.held:
            return None
        parts = []
        for number, name, headers in _PART.findall(request.body):
            code = self._code(name.decode())
            if code:
                one = azure_error(409, code)
            else:  # each part of a batch is signed
                lines = dict(line.split(": ", 1) for line in headers.decode().split("\r\n"))
                one = self.forward("DELETE", name.decode(), lines, b"")
            shown = "".join(f"{name}: {value}\r\n" for name, value in one.headers.items())
            parts.append(
                f"--answer\r\nContent-Type: application/http\r\nContent-ID: {number.decode()}\r\n\r\n"
                f"HTTP/1.1 {one.status} text\r\n{shown}\r\n{one.body.decode()}\r\n"
            )
        body = "".join([*parts, "--answer--\r\n"]).encode()
        return StoreAnswer(202, body, {"Content-Type": "multipart/mixed; boundary=answer"})

    def _code(self, path: str) -> str:
        name = unquote(path.partition("?")[0])
        return next((code for end, code in self.held.items() if name.endswith(end)), "")


@contextmanager
def azure_account(azurite: Azurite) -> Iterator[tuple[AzureAccount, dict[str, str]]]:
    """Yield the stand-in, and the variables that lead to it."""
    with AzureAccount(azurite) as account:
        yield account, {**azurite.environment, "AZURE_STORAGE_SERVICE_ENDPOINT": f"{account.endpoint}/{ACCOUNT}"}


@contextmanager
def soft_delete(azurite: Azurite, days: int) -> Iterator[None]:
    """Switch soft delete on, in Azurite itself."""
    credential = {"account_name": ACCOUNT, "account_key": azurite.key}
    with BlobServiceClient(azurite.endpoint, credential) as service:
        client: Any = service
        client.set_service_properties(delete_retention_policy=RetentionPolicy(enabled=True, days=days))
        try:
            yield
        finally:
            client.set_service_properties(delete_retention_policy=RetentionPolicy(enabled=False))
