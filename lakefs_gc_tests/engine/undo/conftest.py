"""A backup location in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.backing_up import Backups


@pytest.fixture
def place(tmp_path: Path) -> Backups:
    """An empty backup location."""
    (tmp_path / "backups").mkdir()
    return Backups(StoreLocation((tmp_path / "backups").as_uri()))
