"""Sends events to a webhook and by e-mail, as the settings say."""

from __future__ import annotations

import json
import os
import smtplib
import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from email.message import EmailMessage
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError

from lakefs_gc.config import SMTP_PASSWORD_VARIABLE, NotifySettings
from lakefs_gc.errors import ConfigurationError, NotificationError
from lakefs_gc.notify.event import Event, Notify

_TIMEOUT_SECONDS = 10  # a tick of Dagster's sensors ends after 60


def build_notify(settings: NotifySettings, environment: Mapping[str, str] = os.environ) -> Notify | None:
    """Return a function that sends an event to all that ``settings`` name, or None if they name none.

    It raises ``NotificationError`` if one of them was not reached, after it tried all, and ``ConfigurationError`` for a
    missing environment variable. No message contains the URL of the webhook, which may contain a secret.
    """
    senders: list[Notify] = []
    if settings.webhook_variable:
        senders.append(lambda event: _post(_variable(settings.webhook_variable, environment), event))
    if settings.email_to:
        senders.append(lambda event: _mail(settings, environment, event))
    if not senders:
        return None

    def notify(event: Event) -> None:
        errors = []
        for send in senders:
            try:
                send(event)
            except (NotificationError, ConfigurationError) as error:
                errors.append(error)
        if errors:
            raise errors[0]

    return notify


def _post(url: str, event: Event) -> None:
    if not url.startswith(("https://", "http://")):
        raise ConfigurationError(
            "The URL of the webhook does not begin with https:// or http://", remedy="Correct the environment variable"
        )
    body = json.dumps(event.to_json(), default=str).encode()
    try:
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS):
            return
    except HTTPError as error:
        raise NotificationError(f"The webhook answered {error.code}") from None
    except (OSError, ValueError, HTTPException) as error:
        raise NotificationError(f"The webhook cannot be reached: {type(error).__name__}") from None


def message_of(settings: NotifySettings, event: Event) -> EmailMessage:
    """Return the e-mail for an event."""
    mail = EmailMessage()
    mail["Subject"] = f"[lakefs-gc] {event.repository}: {event.kind.value.replace('_', ' ')}"
    mail["From"], mail["To"] = settings.email_from, ", ".join(settings.email_to)
    facts = event.page or "\n".join(line for name, value in event.facts.items() for line in _lines(name, value))
    about = f"run: {event.run_key}\nmark: {event.mark_id}\nat: {event.at.isoformat(timespec='seconds')}"
    mail.set_content("\n\n".join(filter(None, (event.message, event.remedy, about, facts))) + "\n")
    return mail


def _lines(name: str, value: Any) -> Iterator[str]:
    """Yield a fact as lines of text: a list or a mapping with a line for each of its items."""
    if not isinstance(value, list | Mapping):
        yield f"{name}: {value}"
        return
    yield f"{name}:" if value else f"{name}: none"
    for item in value.items() if isinstance(value, Mapping) else value:
        if isinstance(item, tuple):
            yield from (f"  {line}" for line in _lines(*item))
        elif isinstance(item, Mapping):
            yield f"  - {', '.join(f'{key}: {of_key}' for key, of_key in item.items() if of_key != '')}"
        else:
            yield f"  - {item}"


def _mail(settings: NotifySettings, environment: Mapping[str, str], event: Event) -> None:
    context = ssl.create_default_context()
    where = (settings.smtp_host, settings.smtp_port)
    try:
        with (
            smtplib.SMTP_SSL(*where, timeout=_TIMEOUT_SECONDS, context=context)
            if settings.smtp_security == "tls"
            else smtplib.SMTP(*where, timeout=_TIMEOUT_SECONDS)
        ) as server:
            if settings.smtp_security == "starttls":
                server.starttls(context=context)
            if settings.smtp_user:
                server.login(settings.smtp_user, _variable(SMTP_PASSWORD_VARIABLE, environment))
            server.send_message(message_of(settings, event))
    except (OSError, smtplib.SMTPException) as error:
        raise NotificationError(
            f"The mail server {settings.smtp_host}:{settings.smtp_port} did not accept an e-mail: {error}"
        ) from None


def _variable(name: str, environment: Mapping[str, str]) -> str:
    value = environment.get(name, "")
    if not value:
        raise ConfigurationError(
            f"The environment variable {name} is not set, but [notify] needs it",
            remedy="Set it for Dagster's daemon and code server",
        )
    return value
