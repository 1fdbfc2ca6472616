"""A process that goes on runs a job with no client of an earlier run."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import NoReturn

import pytest
from dagster import DagsterInstance

from lakefs_gc.config import BackupSettings
from lakefs_gc.errors import MarkError
from lakefs_gc.storage.endpoints import begin_clients, whose_clients
from lakefs_gc_tests.support.code_location import RUN, CodeLocation, failure_of
from lakefs_gc_tests.support.lake import Lake


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("name", ["sweep", "backup"])
def test_the_mark_is_read_with_a_client_of_its_own(
    name: str, lake: Lake, instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "backups").mkdir()
    backup = BackupSettings(url=(tmp_path / "backups").as_uri())
    location = CodeLocation.of(lake.settings.model_copy(update={"backup": backup}), instance)
    begin_clients(RUN)
    of_mark, seen = whose_clients(), []

    def note(*_: object) -> NoReturn:
        seen.append(whose_clients())
        raise MarkError("has seen enough")

    monkeypatch.setattr(import_module(f"lakefs_gc.pipeline.assets.{name}"), "mark_of_run", note)
    assert "has seen enough" in failure_of(location.run(f"gc_{name}", RUN), name)["description"]
    assert len(seen) == 1
    assert of_mark not in seen
