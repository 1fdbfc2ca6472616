"""Which run a forecast is computed from, and what runs say about deleted repositories."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakefs_gc.config import Settings
from lakefs_gc.engine.forecast.deleted_repositories import find_unused_namespaces
from lakefs_gc.engine.forecast.stored_runs import INPUTS, run_to_forecast, stored_forecast
from lakefs_gc.engine.run import GCRun, ServerIdentity
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.formats.report import MARKS_FOLDER
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

NOW = datetime.now(UTC)


class Place:
    """A namespace and a workspace with the manifests of one run."""

    def __init__(self, folder: Path) -> None:
        self.namespace = folder / "lake"
        self.namespace.mkdir()
        self.work = folder / "work"
        self.workspace = Workspace(self.work.as_uri())
        self.url = f"{self.namespace.as_uri()}/"

    def run(self, name: str = "1", age: timedelta = timedelta(hours=1), stages: tuple[str, ...] = INPUTS) -> str:
        key, began = f"lake/{name}", NOW - age
        server = ServerIdentity("http://lakefs", "2026-01-01T00:00:00+00:00")
        run = GCRun(key, "lake", self.url, StoreLocation(self.url), began, began, 0, 0.0, "1", server)
        for stage in stages:
            facts = {"run": run.to_facts()} if stage == "store_listing" else {}
            manifest = DatasetManifest(stage, key, "id", began, began, 0, facts, {}, {})
            file = self.work / key / stage / "manifest.json"
            file.parent.mkdir(parents=True)
            file.write_bytes(manifest.sealed().to_json())
            os.utime(file, (began.timestamp(),) * 2)
        return key

    def record(self, file: str, age: timedelta) -> None:
        path = self.namespace / MARKS_FOLDER / "mark" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, ((NOW - age).timestamp(),) * 2)

    def chosen(self, namespace: str = "") -> str:
        return run_to_forecast(self.workspace, "lake", open_store(StoreLocation(self.url)), namespace or self.url)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_newest_run_is_used(place: Place) -> None:
    assert place.chosen() == "", "no run exists"
    place.run("old", timedelta(days=2))
    assert place.chosen() == "lake/old"
    place.run("new")
    assert place.chosen() == "lake/new"
    assert place.chosen("s3://moved/lake/") == "", "the repository has another namespace now"
    assert stored_forecast(place.workspace, "lake/new") is None


def test_a_run_without_its_data_or_out_of_date_is_not_used(place: Place) -> None:
    place.run("1", timedelta(days=8))
    assert place.chosen() == ""
    place.run("2", stages=INPUTS[:-1])
    assert place.chosen() == "", "the newest run has not ended"


@pytest.mark.parametrize("file", ["lakefs-gc/ledger/1-intent.parquet", "lakefs-gc/restores/1.parquet"])
def test_a_sweep_or_a_restore_after_the_listing_makes_it_useless(place: Place, file: str) -> None:
    place.run(age=timedelta(hours=5))
    place.record(file, timedelta(hours=6))
    place.record("deleted/part.parquet", timedelta(hours=1))
    assert place.chosen() == "lake/1"
    place.record(file, timedelta(hours=4))
    assert place.chosen() == ""


def test_a_run_leads_to_the_namespace_of_a_deleted_repository(place: Place) -> None:
    place.run()
    (place.namespace / "object").write_bytes(b"12345")
    found = find_unused_namespaces([], Settings(), open_store, place.workspace)
    assert [(space.url, space.size_bytes) for space in found.namespaces] == [(place.url, 5)]
    assert "run lake/1 collected repository lake" in found.namespaces[0].found_by
    assert found.not_read == {}
