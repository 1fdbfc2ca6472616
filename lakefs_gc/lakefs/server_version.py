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

_METADATA_FILES = (1, 25, 0)

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?![\d.])")
_SANDBOX = "lakefs-gc-sandbox-"


def is_new_enough(version: str) -> bool | None:
    """Return whether a server's version is at least ``LEAST_VERSION``; None if it is not a version of lakeFS.

    True for the embedded server, which has every call.
    """
    return _is_at_least(version, LEAST_VERSION)


def has_metadata_files(version: str) -> bool | None:
    """Return whether a server has the call that reads a file below ``_lakefs/``; None as ``is_new_enough``."""
    return _is_at_least(version, _METADATA_FILES)


def _is_at_least(version: str, least: tuple[int, int, int]) -> bool | None:
    if version.startswith(_SANDBOX):
        return True
    match = _VERSION.match(version)
    return None if match is None else tuple(map(int, match.groups())) >= least
