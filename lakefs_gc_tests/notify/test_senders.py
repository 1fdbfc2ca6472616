"""Events reach a web server and a mail server, and no error shows where the webhook is."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from lakefs_gc.config import NotifySettings, Settings
from lakefs_gc.errors import ConfigurationError, NotificationError
from lakefs_gc.notify import Event, EventKind
from lakefs_gc.notify.senders import build_notify, message_of
from lakefs_gc.pipeline.code_location import build_definitions
from lakefs_gc.report.build import mark_page
from lakefs_gc.report.text import as_text
from lakefs_gc_tests.support.sample_page import FACTS, SAMPLE

EVENT = Event(
    EventKind.mark_waits,
    "lake",
    "lake/1",
    datetime(2026, 1, 31, tzinfo=UTC),
    "Mark m1 of lake waits for its approval",
    remedy="Review it",
    mark_id="m1",
    facts={"candidates": 55},
)


class Webhook(BaseHTTPRequestHandler):
    """Receives JSON."""

    received: ClassVar[list[object]] = []
    status: ClassVar[int] = 204

    def do_POST(self) -> None:
        self.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class MailServer(socketserver.StreamRequestHandler):
    """Receives one e-mail, as much of SMTP as that takes."""

    received: ClassVar[list[str]] = []

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n")
        for line in self.rfile:
            command = line[:4].upper().strip()
            if command == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = iter(self.rfile.readline, b".\r\n")
                self.received.append(b"".join(lines).decode().replace("\r\n", "\n"))
            self.wfile.write(b"221 bye\r\n" if command == b"QUIT" else b"250 fine\r\n")


@pytest.fixture
def webhook() -> Iterator[str]:
    Webhook.received, Webhook.status = [], 204
    with HTTPServer(("127.0.0.1", 0), Webhook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/services/hidden-token"
        server.shutdown()


@pytest.fixture
def mail_port() -> Iterator[int]:
    MailServer.received = []
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), MailServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def by_mail(port: int, **more: str) -> NotifySettings:
    return NotifySettings(
        email_to=("ada@example.com", "bob@example.com"),
        email_from="gc@example.com",
        smtp_host="127.0.0.1",
        smtp_port=port,
        smtp_security="none",
        **more,
    )


def test_an_event_reaches_the_webhook_and_the_mail_server(webhook: str, mail_port: int) -> None:
    notify = build_notify(by_mail(mail_port, webhook_variable="HOOK"), {"HOOK": webhook})
    assert notify is not None
    notify(EVENT)
    assert Webhook.received == [EVENT.to_json()]
    [mail] = MailServer.received
    assert "Subject: [lakefs-gc] lake: mark waits for approval\n" in mail
    assert "To: ada@example.com, bob@example.com\n" in mail
    assert "\n\nMark m1 of lake waits for its approval\n\nReview it\n\nrun: lake/1\nmark: m1\n" in mail
    assert "candidates: 55" in mail


def test_a_receiver_that_fails_does_not_stop_the_other_and_its_url_stays_hidden(webhook: str, mail_port: int) -> None:
    Webhook.status = 500
    settings = by_mail(mail_port, webhook_variable="HOOK")
    for url, kind, message in (
        (webhook, NotificationError, "The webhook answered 500"),
        ("http://127.0.0.1:9/hidden-token", NotificationError, "The webhook cannot be reached: URLError"),
        ("http://127.0.0.1:x/hidden-token", NotificationError, "The webhook cannot be reached"),
        ("file:///hidden-token", ConfigurationError, "does not begin with https://"),
        ("", ConfigurationError, "The environment variable HOOK is not set"),
    ):
        notify = build_notify(settings, {"HOOK": url})
        assert notify is not None
        with pytest.raises(kind, match=message) as error:
            notify(EVENT)
        assert "hidden-token" not in repr(error.value) + str(error.value.__cause__)
    assert len(MailServer.received) == 5


def test_a_mail_server_that_does_not_answer(mail_port: int) -> None:
    notify = build_notify(by_mail(9))
    assert notify is not None
    with pytest.raises(NotificationError, match=r"The mail server 127\.0\.0\.1:9 did not accept"):
        notify(EVENT)


def test_the_code_location_has_the_sensor_if_somebody_is_to_be_notified() -> None:
    assert build_notify(NotifySettings()) is None
    names = [sensor.name for sensor in build_definitions(Settings()).sensors or ()]
    assert "notify" not in names
    settings = Settings(notify=NotifySettings(webhook_variable="HOOK"))
    assert "notify" in [sensor.name for sensor in build_definitions(settings).sensors or ()]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"email_to": ("a@b.c",)}, "email_to needs email_from and smtp_host"),
        ({"smtp_user": "gc", "smtp_security": "none"}, "smtp_user needs an encrypted connection"),
    ],
)
def test_settings_that_cannot_work_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NotifySettings.model_validate(values)


def test_a_mail_about_a_mark_shows_its_page_as_text() -> None:
    page = as_text(mark_page(SAMPLE, FACTS))
    settings = NotifySettings(email_to=("a@b.org",), email_from="c@d.org", smtp_host="m")
    sent = message_from_bytes(message_of(settings, replace(EVENT, page=page)).as_bytes(), policy=policy.default)
    text = sent.get_content()
    assert text.endswith(page + "\n")
    for part in (
        "Bytes by age",
        "Compared with mark m0",
        "exports/",
        "main: 14 days",
        "the backup location was not read",
        "Review it",
    ):
        assert part in text
    assert "candidates: 55" not in text, "the page has the numbers"
    assert replace(EVENT, page=page).to_json()["page"] == page


def test_a_mail_shows_lists_as_lines() -> None:
    facts = {
        "objects": 2,
        "next": {"text": "Ready for approval", "commands": ["lakefs-gc approve lake"]},
        "failed_checks": [],
        "funnel": [{"name": "listed", "objects": 5}, {"name": "marked", "objects": 2}],
    }
    text = message_of(
        NotifySettings(email_to=("a@b.org",), email_from="c@d.org", smtp_host="m"), replace(EVENT, facts=facts)
    )
    assert text.get_content().endswith(
        "objects: 2\nnext:\n  text: Ready for approval\n  commands:\n    - lakefs-gc approve lake\n"
        "failed_checks: none\nfunnel:\n  - name: listed, objects: 5\n  - name: marked, objects: 2\n"
    )
