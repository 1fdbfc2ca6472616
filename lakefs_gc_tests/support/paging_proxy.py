"""Proxies before emulators that list as the real stores do: small pages, which start at any name.

Azurite ignores ``startFrom``. fake-gcs-server returns all folders of a level with its first page.
"""

from __future__ import annotations

import json
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from lakefs_gc.sandbox.azurite import ACCOUNT
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.aging_proxy import AgingAzurite, AgingGCS, AgingProxy
from lakefs_gc_tests.support.emulators import EMULATORS, lead
from lakefs_gc_tests.support.impatient_daemon import IN_ORDER_VARIABLE
from lakefs_gc_tests.support.store_proxy import StoreAnswer

PAGE = 20
"""The most entries of a page."""
_SECONDS = 0.05
"""Of a page. Pages of one listing come one after the other, so pages that overlap are of several."""


class PagingProxy(AgingProxy):
    """A proxy that counts listings.

    ``starts`` has the names at which listings of a level began. ``most_at_once`` is how many pages were asked for at
    the same time. ``log`` is for both.
    """

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.starts: set[str] = set()
        self.most_at_once = 0
        self._at_once = 0
        self._counting = threading.Lock()

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> StoreAnswer:
        """See ``StoreProxy``."""
        query = dict(parse_qsl(urlsplit(path).query, keep_blank_values=True))
        if not self.lists(method, path, query):
            return super().answer(method, path, headers, body)
        with self._counting:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            start = query.get(self.start, "")
            if start and int(query.get(self.size, PAGE)) >= PAGE:  # otherwise it looks for a place to cut
                self.starts.add(start)
        try:
            time.sleep(_SECONDS)
            return self.page(path, {**query, self.size: str(min(PAGE, int(query.get(self.size, PAGE))))}, headers)
        finally:
            with self._counting:
                self._at_once -= 1

    start: str
    """The parameter with the name to start at."""
    size: str
    """The parameter with the most entries of a page."""

    @abstractmethod
    def lists(self, method: str, path: str, query: dict[str, str]) -> bool:
        """Return whether a request is for a page of a listing."""

    @abstractmethod
    def page(self, path: str, query: dict[str, str], headers: dict[str, str]) -> StoreAnswer:
        """Return the page."""


class PagingAzurite(PagingProxy, AgingAzurite):
    """See ``PagingProxy``. A marker of Azurite is the last name of the page before, so it can start a listing."""

    start, size = "startFrom", "maxresults"

    def lists(self, method: str, path: str, query: dict[str, str]) -> bool:
        """See ``PagingProxy``."""
        return query.get("comp") == "list"

    def page(self, path: str, query: dict[str, str], headers: dict[str, str]) -> StoreAnswer:
        """See ``PagingProxy``."""
        first = query.pop(self.start, "")
        if first and not query.get("marker"):
            # No name of a test is between this one and ``first``.
            query["marker"] = f"{first[:-1]}{chr(ord(first[-1]) - 1)}~"
        asked = f"{urlsplit(path).path}?{urlencode(query)}"
        return self.forward("GET", asked, self._signed("GET", asked, headers), b"")


class PagingGCS(PagingProxy, AgingGCS):
    """See ``PagingProxy``. Pages have objects and folders in the order of their names."""

    start, size = "startOffset", "maxResults"

    def lists(self, method: str, path: str, query: dict[str, str]) -> bool:
        """See ``PagingProxy``."""
        return method == "GET" and urlsplit(path).path.endswith("/o")

    def page(self, path: str, query: dict[str, str], headers: dict[str, str]) -> StoreAnswer:
        """See ``PagingProxy``."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        asked = f"{urlsplit(path).path}?{urlencode({'prefix': prefix, 'maxResults': 1_000_000})}"
        answer = self.forward("GET", asked, headers, b"")
        if answer.status != 200:
            return answer
        document = json.loads(answer.body)
        first, end, after = query.get(self.start, ""), query.get("endOffset", ""), query.get("pageToken", "")
        entries: dict[str, object] = {}
        for item in document.pop("items", []):
            name = str(item["name"])
            if name < first or (end and name >= end):
                continue
            below, found, _ = name.removeprefix(prefix).partition(delimiter) if delimiter else (name, "", "")
            entries[f"{prefix}{below}{delimiter}" if found else name] = None if found else item
        names = sorted(name for name in entries if name > after)
        page = names[: int(query[self.size])]
        document |= {
            "items": [entries[name] for name in page if entries[name]],
            "prefixes": [name for name in page if not entries[name]],
        }
        document.pop("nextPageToken", None)
        if len(names) > len(page):
            document["nextPageToken"] = page[-1]
        return StoreAnswer(200, json.dumps(document).encode(), answer.headers)


@contextmanager
def paged_namespace(kind: str, request: pytest.FixtureRequest) -> Iterator[tuple[PagingProxy, StoreLocation]]:
    """Yield a proxy before the emulator of a kind, and a fresh namespace there, for this process and new workers.

    The test is skipped if the emulator is not installed.
    """
    location: StoreLocation = request.getfixturevalue(f"{kind}_namespace")
    emulator = request.getfixturevalue(EMULATORS[kind])
    proxy: PagingProxy = PagingAzurite(emulator) if kind == "azure" else PagingGCS(emulator)
    with proxy:
        if kind == "azure":
            environment = {**emulator.environment, "AZURE_STORAGE_SERVICE_ENDPOINT": f"{proxy.endpoint}/{ACCOUNT}"}
        else:
            environment = {"STORAGE_EMULATOR_HOST": proxy.endpoint, IN_ORDER_VARIABLE: "1"}
            monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
            monkeypatch.setattr("lakefs_gc.storage.gcs.store.emulator_endpoint", lambda: "")
        lead(request, environment)
        yield proxy, location
