"""A Dagster instance on disk. A conftest imports the fixture if its tests use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    """A Dagster instance on disk."""
    (tmp_path / "dagster").mkdir()
    with DagsterInstance.local_temp(str(tmp_path / "dagster")) as opened:
        yield opened
