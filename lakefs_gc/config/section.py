"""The base class of every table of the settings, which refuses unknown settings and secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator

from lakefs_gc.storage.urls import has_credentials

# The names that Spark itself redacts, and the usual abbreviations of passwords. Not matched: names that give the
# location or the kind of a secret, the working directory, and Kubernetes' own names.
_SECRET_NAME = re.compile(
    r"(?i)(?!.*(file|path|provider|binding|class|type|bit_?length|enabled)$)(?!(.*[.])?(old)?pwd$(?-i:(?<=PWD)))"
    r"(?!spark[.]kubernetes[.](?!.*oauthtoken))"
    r".*(secret|passw|passphrase|token|access[.]?key|account[._-]?key|api[._-]?key|private[._-]?key"
    r"|pwd$|pgpass$|(?<![a-z])pass$|(?-i:[a-z]Pass$))"
)
_PARAMETER = re.compile(
    r"""(?P<dash>--?D?)?(?P<name>[A-Za-z_][\w.-]*)(?:\s*=\s*|["']\s*:\s*|(?(dash)\s+(?!-)|(?!)))"""
    r"""(?=["']?(?P<value>[^\s"',;&]+))"""
)
"""``-Dname=value``, ``?name=value``, ``"name": "value"`` or ``--name value``, anywhere in a value."""
_SECRET_VALUE = re.compile(
    r"(?i)[?&;](?:sig|signature|x-(?:amz|goog)-signature)="
    r"|\bbearer\s+[\w.~+/-]{8}|\bjdbc:oracle:\w+:[^/@\s]+/[^@\s]+@|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|(?-i:\bgh[a-z]_\w{36}|\beyJ[\w-]+[.]eyJ[\w-]+[.])"
)
"""The signature of a URL, an access token, a password before the host in an Oracle URL, or a private key."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PASSWORD = re.compile(_URL.pattern + r"[^/?#\s]*:[^/?#\s]*@")
_HARMLESS = frozenset({"", "true", "false"})


def looks_like_secret(name: str, value: str) -> bool:
    """Return whether a property must not be shown, judged by its name and by its value."""
    return (
        _is_secret(name, value)
        or any(_is_secret(parameter["name"], parameter["value"]) for parameter in _PARAMETER.finditer(value))
        or bool(_SECRET_VALUE.search(value))
    )


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.match(name)) and value.lower() not in _HARMLESS


class Section(BaseModel):
    """A table of the settings. Raise ``ValueError`` if a URL contains credentials."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _no_secrets_in_urls(cls, given: Any) -> Any:
        """Refuse secrets before other errors show the URL."""
        _refuse(_is_url_with_secret, given if isinstance(given, dict) else {})
        return given

    @model_validator(mode="after")
    def _no_credentials_in_urls(self) -> Self:
        """Refuse credentials, because settings are shown in Dagster and URLs are logged."""
        _refuse(has_credentials, {name: getattr(self, name) for name in type(self).model_fields})
        return self


def _refuse(has_secret: Callable[[str], bool], settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        texts = [*value, *value.values()] if isinstance(value, dict) else [value]
        if any(isinstance(text, str) and has_secret(text) for text in texts):
            raise ValueError(
                f"{name}: the URL contains credentials. Remove them, and use the vendor's standard credential chain"
            )


def _is_url_with_secret(text: str) -> bool:
    return bool(_PASSWORD.match(text)) or (bool(_URL.match(text)) and looks_like_secret("", text))


def checked_url(url: str, *schemes: str) -> str:
    """Return ``url`` if it is empty, or begins with one of the schemes and has more after it."""
    if url and not any(url.startswith(scheme) and url != scheme for scheme in schemes):
        raise ValueError(f"{url!r} does not begin with {' or '.join(schemes)}")
    return url
