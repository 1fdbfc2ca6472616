"""Who is notified of events, and how. Passwords and the URL of a webhook are never settings."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from lakefs_gc.config.section import Section

SMTP_PASSWORD_VARIABLE = "LAKEFS_GC_SMTP_PASSWORD"
"""The environment variable with the password of ``NotifySettings.smtp_user``."""


class NotifySettings(Section):
    """Who is notified when a mark waits for approval, a check or a run failed, or a mark was swept."""

    webhook_variable: str = Field(
        default="",
        description="Name of the environment variable with the URL that receives each event as JSON, e.g. "
        "LAKEFS_GC_WEBHOOK. Such URLs often contain a secret, so the URL itself is not a setting. Empty: no webhook.",
    )
    email_to: tuple[str, ...] = Field(
        default=(), description="Addresses that receive each event by e-mail. Empty: no e-mail."
    )
    email_from: str = Field(default="", description="Address of the sender. Required with email_to.")
    smtp_host: str = Field(default="", description="Host of the mail server. Required with email_to.")
    smtp_port: int = Field(default=587, ge=1, le=65535, description="Port of the mail server.")
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        default="starttls",
        description="How the connection to the mail server is encrypted. none: not at all, for a server on this "
        "machine.",
    )
    smtp_user: str = Field(
        default="",
        description=f"User of the mail server. The password is in the environment variable {SMTP_PASSWORD_VARIABLE}. "
        "Empty: no login.",
    )

    @model_validator(mode="after")
    def _email_is_complete(self) -> Self:
        if self.email_to and not (self.email_from and self.smtp_host):
            raise ValueError("email_to needs email_from and smtp_host")
        if self.smtp_user and self.smtp_security == "none":
            raise ValueError('smtp_user needs an encrypted connection: set smtp_security to "starttls" or "tls"')
        return self
