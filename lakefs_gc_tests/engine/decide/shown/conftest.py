"""Fixtures of the tests of what branches show."""

from __future__ import annotations

import pytest

from lakefs_gc.engine.decide.shown import lookups


@pytest.fixture
def few_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pages are tried for more paths than may be looked up one by one."""
    monkeypatch.setattr(lookups, "_PATHS_PER_LOOKUP", 1)
