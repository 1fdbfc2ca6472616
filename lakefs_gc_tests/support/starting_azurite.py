"""A stand-in before Azurite for the one thing of listings that it ignores: to start at a name (``startFrom``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import unescape
from urllib.parse import parse_qs, quote, urlsplit

from lakefs_gc.sandbox.azurite import ACCOUNT, Azurite
from lakefs_gc_tests.support.aging_proxy import AgingAzurite
from lakefs_gc_tests.support.store_proxy import StoreAnswer

_ENTRY = re.compile(rb"<(Blob|BlobPrefix)><Name>([^<]*)</Name>.*?</\1>", re.DOTALL)
_MARKER = re.compile(rb"<NextMarker>([^<]+)</NextMarker>")


class StartingAzurite(AgingAzurite):
    """Shows the names from ``startFrom`` on, as Microsoft documents it: that name is the first, if it exists."""

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> StoreAnswer:
        """See ``StoreProxy``. An empty page that is not the last is never shown."""
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        answer = super().forward(method, path, headers, body)
        start = query.get("startFrom", "")
        while query.get("comp") == "list" and start and answer.status == 200:
            answer = replace(answer, body=_ENTRY.sub(lambda entry: _shown(entry, start), answer.body))
            marker = _MARKER.search(answer.body)
            if marker is None or _ENTRY.search(answer.body):
                return answer
            query["marker"] = unescape(marker[1].decode())
            next_path = f"{parts.path}?{'&'.join(f'{name}={quote(value)}' for name, value in query.items())}"
            answer = super().forward(method, next_path, self._signed(method, next_path, headers), body)
        return answer


def _shown(entry: re.Match[bytes], start: str) -> bytes:
    name = unescape(entry[2].decode())
    is_shown = name >= start or (entry[1] == b"BlobPrefix" and start.startswith(name))
    return entry[0] if is_shown else b""


@contextmanager
def starting_azurite(azurite: Azurite) -> Iterator[dict[str, str]]:
    """Yield the variables that lead to the stand-in."""
    with StartingAzurite(azurite) as proxy:
        yield {**azurite.environment, "AZURE_STORAGE_SERVICE_ENDPOINT": f"{proxy.endpoint}/{ACCOUNT}"}
