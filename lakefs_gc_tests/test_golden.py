"""The collector against recordings of a real server: the same objects are marked as a brute-force oracle says."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.config import Settings
from lakefs_gc.engine.decide.matching.unmatched import unmatched, unreferenced_objects
from lakefs_gc.engine.decide.shown import hidden_twins
from lakefs_gc.engine.decide.shown.lookups import TwinSearch
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_parts import read_part
from lakefs_gc.engine.records.stored_marks import open_mark
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compute import StartedSpark
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.workspace.workspace import Workspace, utc_now
from lakefs_gc.errors import ReadOnlyRepositoryError
from lakefs_gc.formats.address_readings import other_readings
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.pipeline.session import GCSession
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.golden import LARGE, scenario, scenarios
from lakefs_gc_tests.golden.replay import ReplayServer
from lakefs_gc_tests.golden.restore import restore_to_folder, restore_to_s3

REPOSITORIES = [*scenarios(), *LARGE]
_BUCKET = "golden"
_ALSO_ON_S3 = ("slices-and-copies", "esti-unified")
_BIG_ON_S3 = "LAKEFS_GC_TESTS_BIG_ON_S3"


@dataclass(frozen=True)
class Recording:
    """A recording, its store restored, and settings that reach it."""

    folder: Path
    store: StoreLocation
    expected: dict[str, Any]
    settings: Settings


@pytest.fixture(
    params=[*((name, "local") for name in REPOSITORIES), *((name, "s3") for name in (*_ALSO_ON_S3, *LARGE))],
    ids="-".join,
)
def recording(request: pytest.FixtureRequest, tmp_path: Path) -> Recording:
    name, store_kind = request.param
    folder = scenario(name, tmp_path / "recording")
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    namespace = expected["storage_namespace"].rstrip("/") + "/"
    work_url = (tmp_path / "work").as_uri()
    if store_kind == "local":
        restore_to_folder(folder, tmp_path / "store")
        store = StoreLocation((tmp_path / "store").as_uri())
        mounts = {namespace: store.folder_url}
        return Recording(folder, store, expected, Settings(mounts=mounts, work_url=work_url))
    if name in LARGE and not os.environ.get(_BIG_ON_S3):
        pytest.skip(f"uploading {name} object by object takes minutes; set {_BIG_ON_S3} to run it")
    server: SeaweedFS = request.getfixturevalue("s3_server")
    request.getfixturevalue("s3_namespace")  # sets the environment
    _restore_once(server, folder, namespace.removeprefix(f"s3://{_BUCKET}/"))
    return Recording(folder, StoreLocation(namespace), expected, Settings(work_url=work_url))


def _restore_once(server: SeaweedFS, folder: Path, prefix: str) -> None:
    client = server.client()
    if _BUCKET not in {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
        client.create_bucket(Bucket=_BUCKET)
    restore_to_s3(folder, client, _BUCKET, prefix)
    # S3 stamps the objects with the time of their upload: one of this second is not yet older than the cutoff.
    time.sleep(1.1)


def marked_addresses(store: ObjectStore, mark: Mark) -> set[str]:
    return {address for part in mark.parts for address in read_part(store, part)["address"].to_pylist()}


def _no_contents(_ranges: DataFrame, _contents: DataFrame, search: TwinSearch) -> DataFrame:
    return local_rows(search.context.spark, [], "size long, md5 string not null")


@pytest.mark.of_ci("big-ranges-local", "slices-and-copies-s3", "esti-unified-s3", "ugc-size-local")
def test_marks_what_the_oracle_says(
    recording: Recording,
    connect_to_lakefs: Callable[[str], LakeFSClient],
    spark_config: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replay, expected = ReplayServer(recording.folder, recording.store), recording.expected
    settings = recording.settings.model_copy(update={"spark": spark_config})
    if recording.folder.name in LARGE:
        # Its objects have no contents, so their MD5s would prove no ETag, and all of them would be kept unverified.
        monkeypatch.setattr(hidden_twins, "unproven_contents", _no_contents)
    with replay.serving() as url, GCSession.open(settings) as session:
        server = connect_to_lakefs(url)
        run_key = f"{expected['repository']}/golden"
        if expected.get("read_only"):
            with pytest.raises(ReadOnlyRepositoryError):
                session.mark(run_key, min_age_hours=0, unsafe_min_age=True)
            return
        facts = session.mark(run_key, min_age_hours=0, unsafe_min_age=True)
        found = open_mark(expected["repository"], facts["mark_id"], server, settings)
    assert replay.unanswered == []
    marked = marked_addresses(found.store, found.mark)
    delete = _addresses(expected["delete"])
    undecided = _addresses(expected["either"])
    # A hazard is what lakeFS's own client deletes although a branch shows it.
    hazards = set(expected["hazards"])
    # The oracle compares what is stored; lakeFS reads a full address as a URL, and shows an object of another name.
    staged = set(expected["uncommitted_addresses"])
    meant = {reading for address in staged for reading in other_readings(address)}
    assert marked - undecided == delete - undecided - hazards - meant
    counts, made = expected["counts"], found.mark
    place = Workspace(settings.work_url)
    committed = place.manifest(run_key, "committed")
    folder = Path(place.folder(run_key, "committed").removeprefix("file://")) / "data"
    addresses = {a for part in committed.files for a in pq.read_table(folder / part)["address"].to_pylist()}
    assert len(addresses) == counts["committed_addresses"] + len(expected["kept_only_by_orphan_ranges"])
    assert made.counts["committed"] == committed.facts["entries"] >= committed.rows >= len(addresses)
    assert made.counts["uncommitted"] == counts["uncommitted_addresses"] + len(meant - staged)
    assert made.counts["store_listing"] == counts["delete"] + counts["keep_candidates"] + counts["either"]
    assert made.candidates == len(marked)
    assert sum(reason["objects"] for reason in made.reasons.values()) == made.candidates


@pytest.mark.parametrize("name", scenarios())
def test_an_older_cutoff_keeps_what_is_newer(
    name: str,
    tmp_path: Path,
    connect_to_lakefs: Callable[[str], LakeFSClient],
    spark: SparkSession,
    spark_config: dict[str, str],
) -> None:
    """Some recordings say what a greater minimum age leaves, cut between groups of uploads."""
    folder = scenario(name, tmp_path / "recording")
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    if not expected.get("cutoffs"):
        pytest.skip("the recording has no cutoffs")
    restore_to_folder(folder, tmp_path / "store")
    mounts = {expected["storage_namespace"].rstrip("/") + "/": (tmp_path / "store").as_uri() + "/"}
    settings = Settings(mounts=mounts, work_url=(tmp_path / "work").as_uri(), spark=spark_config)
    run_key = f"{expected['repository']}/golden"
    with (
        ReplayServer(folder, StoreLocation((tmp_path / "store").as_uri())).serving() as url,
        GCSession.open(settings) as session,
    ):
        server = connect_to_lakefs(url)
        session.mark(run_key, min_age_hours=0, unsafe_min_age=True)
        place = Workspace(settings.work_url)
        stages = ("uncommitted", "active_ranges", "committed", "foreign_references")
        inputs = {stage: place.read(spark, run_key, stage, schemas.BY_STAGE[stage]) for stage in stages}
        listing = place.read(spark, run_key, "store_listing", schemas.STORE_LISTING)
        context = RunContext(StartedSpark(spark, 1), lambda: server, settings, place, utc_now, open_store)
        for cut in expected["cutoffs"]:
            run = replace(GCRun.of(listing.manifest), cutoff=datetime.fromisoformat(cut["cutoff"]))
            output = unmatched(context, run, listing=listing, **inputs)
            found = {row["address"] for row in unreferenced_objects(output.dataframe).collect()}
            assert found == set(cut["delete"]), cut["label"]


def _addresses(entries: list[Any]) -> set[str]:
    return {entry if isinstance(entry, str) else entry["address"] for entry in entries}
