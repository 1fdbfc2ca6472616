"""A repository with a known history, made once: no test of an answer changes it. And empty places for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import BackupSettings, Settings
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.known_history import KnownHistory
from lakefs_gc_tests.support.lake import Lake, LakeRepository


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[KnownHistory]:
    folder = tmp_path_factory.mktemp("history")
    (folder / "backups").mkdir()
    with Lake(folder / "lake") as lake:
        yield KnownHistory.of(lake, spark, Backups(StoreLocation((folder / "backups").as_uri())))


@pytest.fixture(scope="session")
def answer_settings(history: KnownHistory) -> Settings:
    """Settings that name the workspace and the backup location of the history."""
    backups = history.repository.lake.folder.parent / "backups"
    return history.repository.lake.settings.model_copy(update={"backup": BackupSettings(url=backups.as_uri())})


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LakeRepository]:
    with Lake(tmp_path / "lake") as lake:
        yield lake.repository()
