"""Folders of deleted repositories: which are reported, and what could not be read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakefs_gc.config import Settings
from lakefs_gc.engine.forecast import deleted_repositories
from lakefs_gc.engine.forecast.deleted_repositories import Findings, find_unused_namespaces
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.errors import AccessDeniedError
from lakefs_gc.lakefs.models import Repository
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store


def repository(name: str, folder: Path) -> Repository:
    return Repository(name, folder.as_uri(), "", "main", False, datetime(2026, 1, 1, tzinfo=UTC))


def put(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"12345")


def find(folder: Path, workspace: Workspace | None = None) -> Findings:
    used = [repository("lake", folder / "lake"), repository("deep", folder / "team" / "deep")]
    return find_unused_namespaces(used, Settings(), open_store, workspace)


def test_folders_beside_namespaces(tmp_path: Path) -> None:
    put(tmp_path / "lake/_lakefs/a", tmp_path / "team/deep/dummy", tmp_path / "team/other/dummy")
    put(tmp_path / "old/_lakefs/b", tmp_path / "old/data/x/y", tmp_path / "lake-2/dummy", tmp_path / "photos/p.jpg")
    put(tmp_path / "team/dummy")  # a folder around a namespace is in use
    found = find(tmp_path)
    assert found.not_read == {}
    assert {space.url.removeprefix(tmp_path.as_uri()): space.objects for space in found.namespaces} == {
        "/lake-2/": 1,
        "/old/": 2,
        "/team/other/": 1,
    }
    [old] = [space for space in found.namespaces if space.url.endswith("/old/")]
    assert (old.size_bytes, old.newest is not None) == (10, True)
    assert "beside the namespace of a repository, and has _lakefs/" in old.found_by


def test_what_cannot_be_read_is_named_and_not_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "lake/_lakefs/a", tmp_path / "old/_lakefs/b", tmp_path / "older/_lakefs/b")

    def refusing(location: StoreLocation) -> ObjectStore:
        if location.url.endswith("/old/") or location.url.endswith("/team/"):
            raise AccessDeniedError(f"access to {location.url} is denied")
        return open_store(location)

    used = [repository("lake", tmp_path / "lake"), repository("deep", tmp_path / "team" / "deep")]
    found = find_unused_namespaces(used, Settings(), refusing, None)
    assert [space.url for space in found.namespaces] == [f"{tmp_path.as_uri()}/older/"]
    assert {url.removeprefix(tmp_path.as_uri()) for url in found.not_read} == {"/old/", "/team/"}
    local = Repository("local", "local://local", "", "main", False, datetime(2026, 1, 1, tzinfo=UTC))
    assert "local://local" in find_unused_namespaces([local], Settings(), open_store, None).not_read
    monkeypatch.setattr(deleted_repositories, "MAX_FOLDERS", 1)
    assert "more than 1" in find(tmp_path).not_read[f"{tmp_path.as_uri()}/"]
