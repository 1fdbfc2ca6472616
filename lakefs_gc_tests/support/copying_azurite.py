"""A stand-in before Azurite for copies that take their time: Azurite ends each at once, and with success.

The headers and codes are those of Microsoft Learn, "Copy Blob", "Abort Copy Blob" and "Get Blob Properties". A copy
that was aborted leaves a blob of no length with all its properties, the MD5 of the source among them.
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

from lakefs_gc.sandbox.azurite import ACCOUNT, Azurite
from lakefs_gc_tests.support.store_proxy import StoreAnswer, StoreProxy, azure_error


class CopyingAzurite(StoreProxy):
    """A proxy; ``states`` are the states of the next copy, as its requests see them. The last one stays."""

    def __init__(self, azurite: Azurite) -> None:
        super().__init__(azurite.endpoint.removesuffix(f"/{ACCOUNT}"))
        self.states: list[str] = []
        self.copies: dict[str, str] = {}
        """The id of the unfinished copy, by the path of its target."""
        self.loses_answer = False
        """Whether the answer to the next copy is lost."""
        self.aborted: list[str] = []

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> StoreAnswer:
        """See ``StoreProxy``."""
        where, query = urlsplit(path).path, parse_qs(urlsplit(path).query)
        sent = {name.lower(): value for name, value in headers.items()}
        if query.get("comp") == ["copy"]:
            if where not in self.copies or self.states[0] != "pending":
                return azure_error(409, "NoPendingCopyOperation")
            self.states = ["aborted"]
            self.aborted.append(where)
            return StoreAnswer(204)
        if method == "PUT" and "x-ms-copy-source" in sent:
            if where in self.copies and self.states[0] == "pending":
                return azure_error(409, "BlobAlreadyExists" if "if-none-match" in sent else "PendingCopyOperation")
            answer = super().forward(method, path, headers, body)
            if answer.status == 202 and self.states:
                self.copies[where] = "copy-1"
                answer = self._shown(where, answer)
            lost, self.loses_answer = self.loses_answer, False
            return StoreAnswer(0) if lost else answer
        answer = super().forward(method, path, headers, body)
        if method in ("PUT", "DELETE") and answer.status < 300 and query.get("comp") != ["block"]:
            self.copies.pop(where, None)  # another blob, or none
        if method in ("GET", "HEAD") and where in self.copies and answer.status == 200:
            answer = self._shown(where, answer)
        return answer

    def _shown(self, where: str, answer: StoreAnswer) -> StoreAnswer:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        kept = {name: value for name, value in answer.headers.items() if not name.lower().startswith("x-ms-copy-")}
        headers = {**kept, "x-ms-copy-id": self.copies[where], "x-ms-copy-status": state}
        if state == "success":
            return replace(answer, headers=headers)
        if "Content-Length" in kept:
            headers["Content-Length"] = "0"
        return StoreAnswer(answer.status, b"", headers)
