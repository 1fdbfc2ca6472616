"""The recipes for Slack and Teams, run as the page has them: the real packages, and a server in the services' place."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from lakefs_gc.notify import Event, EventKind, Notify
from lakefs_gc_tests.docs.generate import DOCS

AT = datetime(2026, 3, 9, tzinfo=UTC)
WAITS = Event(EventKind.mark_waits, "sales", "sales/1", AT, "Mark m1 lists 2 objects", "Review it: `show sales`")
FAILED = Event(EventKind.run_failed, "", "", AT, "gc_mark failed: <urlopen error & more>")


class Service(BaseHTTPRequestHandler):
    """Keeps the messages that it got, and gives one answer to all."""

    got: list[tuple[str, Any]]
    answer: tuple[int, str]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.got.append((self.path, json.loads(body)))
        status, text = self.answer
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def service() -> Iterator[tuple[type[Service], str]]:
    handler = type("OneService", (Service,), {"got": [], "answer": (200, '{"ok": true}')})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield handler, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def recipe(package: str) -> Notify:
    """Return the function of the recipe that imports ``package``."""
    page = (DOCS / "guides" / "embedding.md").read_text("utf-8")
    [code] = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if f"from {package} import" in code]
    names: dict[str, Any] = {"Event": Event}
    exec(code, names)
    notify: Callable[[Event], None] = names["notify"]
    return notify


def test_slack_gets_a_readable_message(service: tuple[type[Service], str], monkeypatch: pytest.MonkeyPatch) -> None:
    resources = pytest.importorskip("dagster_slack.resources", reason="dagster-slack is not installed")
    handler, url = service
    monkeypatch.setenv("SLACK_TOKEN", "token")
    monkeypatch.setattr(resources, "WebClient", partial(resources.WebClient, base_url=url))
    notify = recipe("dagster_slack")
    notify(WAITS)
    notify(FAILED)
    assert handler.got == [
        ("/chat.postMessage", {"channel": "#data-platform", "text": text})
        for text in (
            "*sales*: Mark m1 lists 2 objects\nReview it: `show sales`",
            "*lakefs-gc*: gc_mark failed: &lt;urlopen error &amp; more&gt;",
        )
    ]
    handler.answer = (200, '{"ok": false, "error": "channel_not_found"}')
    with pytest.raises(Exception, match="channel_not_found"):
        notify(WAITS)


def test_teams_gets_a_card_of_its_workflows(
    service: tuple[type[Service], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dagster_msteams", reason="dagster-msteams is not installed")
    handler, url = service
    handler.answer = (202, "")
    monkeypatch.setenv("TEAMS_WEBHOOK_URL", f"{url}hook")
    notify = recipe("dagster_msteams")
    notify(WAITS)
    notify(FAILED)
    cards = []
    for path, message in handler.got:
        assert path == "/hook"
        [attachment] = message["attachments"]
        assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
        assert attachment["content"]["type"] == "AdaptiveCard"
        cards.append([block["text"] for block in attachment["content"]["body"]])
    assert cards == [
        ["sales: Mark m1 lists 2 objects", "Review it: `show sales`"],
        ["lakefs-gc: gc_mark failed: <urlopen error & more>"],
    ]
    handler.answer = (429, "slow down")
    with pytest.raises(Exception, match="slow down"):
        notify(WAITS)
