"""What of old runs is removed from the workspace, and what it costs to know."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.errors import InputOrderError
from lakefs_gc_tests.support.faulty_store import LevelledS3

DAY_SECONDS = 24 * 3600
LISTED = ("store_listing", "uncommitted", "foreign_files", "look_1_committed", "sweep_marked", "sweep")
BY_CLIENT = ("sweep_marked", "sweep_left", "sweep_plan", "look_1_committed", "look_12_foreign_files", "sweep")


def manifest(run_key: str, stage: str) -> bytes:
    now = datetime(2026, 7, 1, tzinfo=UTC)
    return (
        DatasetManifest(stage, run_key, "id", now, now, 1, {"run_id": "m"}, {}, {"part-0.parquet": 4})
        .sealed()
        .to_json()
    )


class Folder:
    """A workspace whose files are as old as a test wants."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = Workspace(f"file://{root}")

    def file(self, key: str, age_days: float, data: bytes = b"PAR1") -> str:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        written_at = time.time() - age_days * DAY_SECONDS
        os.utime(path, (written_at, written_at))
        return key

    def stage(self, run_key: str, stage: str, age_days: float) -> None:
        self.file(f"{run_key}/{stage}/data/part-0.parquet", age_days)
        self.file(f"{run_key}/{stage}/manifest.json", age_days, manifest(run_key, stage))

    def run(self, run_key: str, age_days: float, stages: tuple[str, ...] = LISTED) -> None:
        for stage in stages:
            self.stage(run_key, stage, age_days)

    def files(self, below: str = "") -> set[str]:
        return {str(file.relative_to(self.root)) for file in (self.root / below).rglob("*") if file.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "work")


def test_runs_that_never_had_a_listing_do_not_stay(folder: Folder) -> None:
    """Runs that were killed while they listed, and sweeps of marks that lakeFS's own client made."""
    killed = folder.file("lake/killed/store_listing/data/part-0123.parquet", 8)
    folder.file("lake/killed/store_listing/data/_temporary/0/part-1", 9)
    folder.run("lake/g2tkd1cn7s5c72sdhr30", 8, BY_CLIENT)
    folder.stage("lake/2026-07-01-restore", "restore_shown", 8)
    folder.run("lake/fresh", 1)
    assert folder.workspace.prune("lake", 1) == 2 + len(BY_CLIENT) * 2 - 1 + 2
    assert killed not in folder.files()
    assert not (folder.root / "lake/killed").exists()
    assert folder.files() - folder.files("lake/fresh") == {"lake/g2tkd1cn7s5c72sdhr30/sweep/manifest.json"}
    assert len(folder.files("lake/fresh")) == len(LISTED) * 2
    assert folder.workspace.prune("lake", 1) == 0


def test_a_run_that_may_be_under_way_stays(folder: Folder) -> None:
    folder.file("lake/lists/store_listing/data/part-0.parquet", 20)
    folder.file("lake/lists/store_listing/data/part-1.parquet", 0)
    folder.run("lake/g2tkd1cn7s5c72sdhr30", 6, BY_CLIENT)
    folder.file("lake/this/store_listing/data/part-0.parquet", 20)
    folder.run("lake/that", 20)
    before = folder.files()
    assert folder.workspace.prune("lake", 1, current="lake/this") == 0
    assert folder.workspace.prune("lake", 1, current="lake/that") > 0, "the other run is no longer the current one"
    assert before - folder.files() == {"lake/this/store_listing/data/part-0.parquet"}


def test_nothing_else_is_removed(folder: Folder) -> None:
    """The workspace is shared with other repositories, the range cache, and files of people."""
    for key in (
        "_range_cache/v1/packs/0123",
        "_range_cache/store_listing/data/part-0.parquet",
        "notes.txt",
        "lake/notes.txt",
        "lake/sales/orders/data/part-0.parquet",  # tables of somebody's, where a namespace is here, too
        "lake/tables/candidates/data/part-0.parquet",
        "lake/tables/candidates/metadata/v1.metadata.json",
        "lake/data/g2tkd1cn7s5c72sdhr30/store_listing",
        "lake/data/sweep/data",
        "lake/_lakefs/store_listing/data/part-0.parquet",
        "lake/old/report.txt",
        "lake/old/candidates/report.txt",
        "lake-2/killed/store_listing/data/part-0.parquet",
        "lak/killed/store_listing/data/part-0.parquet",
        "x/lake/killed/store_listing/data/part-0.parquet",
    ):
        folder.file(key, 100)
    others = folder.files()
    folder.run("lake/old", 90)
    folder.run("lake/new", 0)
    folder.file("lake/killed/store_listing/data/part-0.parquet", 50)
    assert folder.workspace.prune("lake", 1) == len(LISTED) + 3 + 1
    assert others <= folder.files()
    assert not (folder.root / "lake/killed").exists()


def test_of_an_old_run_what_finds_its_mark_stays(folder: Folder) -> None:
    for age_days in (3, 2, 1):
        folder.run(f"lake/{age_days}-days", age_days)
    assert folder.workspace.prune("lake", 2) == len(LISTED) + 3, (
        "data files, and manifests of stages that are not assets"
    )
    stay = {"store_listing", "uncommitted", "sweep"}
    assert folder.files("lake/3-days") == {f"lake/3-days/{stage}/manifest.json" for stage in stay}
    assert folder.workspace.manifest("lake/3-days", "uncommitted").facts == {"run_id": "m"}
    with pytest.raises(InputOrderError, match="does not exist"):
        folder.workspace.manifest("lake/3-days", "look_1_committed")
    assert list(folder.workspace.listed_runs("lake")) == ["lake/1-days", "lake/2-days", "lake/3-days"]


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", manifest("lake/old", "store_listing") + b" "])
def test_a_damaged_manifest_stops_no_run(folder: Folder, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    for run_key, age_days in (("lake/older", 4), ("lake/damaged", 3), ("lake/newest", 2)):
        folder.run(run_key, age_days)
    folder.file("lake/damaged/store_listing/manifest.json", 3, data)
    assert list(folder.workspace.listed_runs("lake")) == ["lake/newest", "lake/older"]
    assert "skipping run lake/damaged" in caplog.text
    assert folder.workspace.prune("lake", 1) == 2 * (len(LISTED) + 3), "it is as old as it was"
    folder.file("lake/newest/store_listing/manifest.json", 2, data)
    assert next(folder.workspace.listed_runs("lake")) == "lake/older"


def test_what_a_run_costs_does_not_grow_with_the_runs_before_it(levelled_s3: LevelledS3) -> None:
    workspace = Workspace("s3://bucket/work")
    for number in range(200):
        for stage in ("store_listing", "uncommitted"):
            key, run_key = f"work/lake/r{number:03d}/{stage}", f"lake/r{number:03d}"
            levelled_s3.objects |= {f"{key}/manifest.json": manifest(run_key, stage), f"{key}/data/part-0": b"PAR1"}

    def requests() -> dict[str, int]:
        made = [request.operation for request in levelled_s3.requests]
        levelled_s3.requests.clear()
        return {name: made.count(name) for name in made}

    assert workspace.prune("lake", 10) == 190 * 2
    assert requests() == {"ListObjectsV2": 1, "DeleteObjects": 1}
    assert workspace.prune("lake", 10) == 0
    assert requests() == {"ListObjectsV2": 1}
    assert next(workspace.listed_runs("lake")) == "lake/r199"
    assert requests() == {"ListObjectsV2": 1, "GetObject": 1}
