"""Fixtures of a lake on local files. A conftest imports the ones that its tests use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.repository_with_garbage import with_garbage


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A sandbox server on local files."""
    with Lake(tmp_path / "lake") as lake:
        yield lake


@pytest.fixture(name="lake")
def lake_of_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """A sandbox server on local files, with its address and credentials in the environment."""
    with Lake(tmp_path / "lake") as lake:
        name_server(lake, monkeypatch)
        yield lake


def name_server(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables that ``lakectl`` and lakefs-gc read."""
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", lake.credentials.endpoint_url)
    monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", lake.credentials.access_key_id)
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", lake.credentials.secret_access_key)


@pytest.fixture(name="repository")
def repository_with_garbage(lake: Lake) -> LakeRepository:
    """A repository with three live objects and two garbage objects."""
    return with_garbage(lake.repository())
