"""The oldest version of lakeFS that has the calls of a run.

The calls were compared with the API definition (``api/swagger.yml``) of each release since 0.80. lakeFS 0.111.0 is the
first with all of them: it added ``GET /config`` and the rules at ``settings/gc_rules``. A mark and its sweep ran on
0.111.0, 1.0.0 and 1.84.0, each built from its source.

A run works without three later additions: prepare_commits in the background (1.72; the synchronous call replaces it),
hidden branches (1.44; older servers list every branch) and read-only repositories (1.5).
"""

from __future__ import annotations

import re

LEAST_VERSION = (0, 111, 0)
LEAST_VERSION_TEXT = "0.111"

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?![\d.])")
_SANDBOX = "lakefs-gc-sandbox-"


def is_new_enough(version: str) -> bool | None:
    """Return whether a server's version is at least ``LEAST_VERSION``; None if it is not a version of lakeFS.

    True for the embedded server, which has every call.
    """
    if version.startswith(_SANDBOX):
        return True
    match = _VERSION.match(version)
    return None if match is None else tuple(map(int, match.groups())) >= LEAST_VERSION
