"""URLs as they may be shown."""

from __future__ import annotations

import re

_USER_INFO = re.compile(r"(?<=://)[^/?#\s]*@")


def has_credentials(url: str) -> bool:
    """Whether there is something before an ``@`` in front of the host, as in ``https://user:password@host``."""
    return _USER_INFO.search(url) is not None


def shown(text: str) -> str:
    """``text`` with what is before the ``@`` of each URL in it masked."""
    return _USER_INFO.sub("***@", text)
