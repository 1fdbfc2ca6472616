"""What every table of the settings has in common: nothing unknown, and no secret, in it."""

from __future__ import annotations

import re
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from lakefs_gc.storage.urls import has_credentials

# As Spark itself redacts them, but for names of files with secrets, and of Kubernetes' own.
_SECRET_NAME = re.compile(
    r"(?i)(?!.*file$)(?!spark[.]kubernetes[.](?!.*oauthtoken)).*(secret|passw|token|access[.]?key|account[.]key)"
)
_SECRET_PARAMETER = re.compile(r"(?i)[;?&](token|password|secret)=")


def looks_like_secret(name: str, value: str) -> bool:
    """Whether a property is one that is not to be shown."""
    return bool(_SECRET_NAME.match(name) or _SECRET_PARAMETER.search(value))


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
