"""URLs without credentials, as they may be shown and logged."""

from __future__ import annotations

import re

_USER_INFO = re.compile(r"(?<=://)[^/?#\s]*@")


def has_credentials(url: str) -> bool:
    """Return whether a URL has user information before its host, as in ``https://user:password@host``."""
    return _USER_INFO.search(url) is not None


def shown(text: str) -> str:
    """Return ``text`` with the user information of each URL in it masked."""
    return _USER_INFO.sub("***@", text)
