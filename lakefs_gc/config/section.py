"""What every table of the settings has in common: nothing unknown, and no secret, in it."""

from __future__ import annotations

import re
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from lakefs_gc.storage.urls import has_credentials

# As Spark itself redacts them, and as passwords are abbreviated.  Not: what says where a secret lies, or of what kind
# it is, the working directory, and names of Kubernetes' own.
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
"""``-Dname=value``, ``?name=value``, ``"name": "value"`` or ``--name value``, wherever it stands."""
_SECRET_VALUE = re.compile(
    r"(?i)[?&;]sig=|\bbearer\s+[\w.~+/-]{8}|\bjdbc:oracle:\w+:[^/@\s]+/[^@\s]+@|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|(?-i:\bgh[a-z]_\w{36}|\beyJ[\w-]+[.]eyJ[\w-]+[.])"
)
"""A signature of Azure, an access token, a password before the host of Oracle, a private key."""
_HARMLESS = frozenset({"", "true", "false"})


def looks_like_secret(name: str, value: str) -> bool:
    """Whether a property is one that is not to be shown: by its name, or by what its value has in it."""
    return (
        _is_secret(name, value)
        or any(_is_secret(found["name"], found["value"]) for found in _PARAMETER.finditer(value))
        or bool(_SECRET_VALUE.search(value))
    )


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.match(name)) and value.lower() not in _HARMLESS


class Section(BaseModel):
    """A table of the settings.  Raises ``ValueError`` for a URL with credentials in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="after")
    def _no_credentials_in_urls(self) -> Self:
        """Settings are shown in Dagster, and URLs are logged."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            texts = [*value, *value.values()] if isinstance(value, dict) else [value]
            if any(isinstance(text, str) and has_credentials(text) for text in texts):
                raise ValueError(f"{name}: a URL has credentials in it; use its vendor's standard chain")
        return self


def checked_url(url: str, *schemes: str) -> str:
    """Empty, or one of these and more."""
    if url and not any(url.startswith(scheme) and url != scheme for scheme in schemes):
        raise ValueError(f"{url!r} does not begin with {' or '.join(schemes)}")
    return url
