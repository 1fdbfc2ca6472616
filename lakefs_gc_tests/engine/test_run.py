"""What is fixed when a run begins: repository, namespace, clocks, cutoff; and what makes inputs fit (rules 1, 2, 5)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lakefs_sdk
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.config import BackupSettings, SafetyParameters, Settings
from lakefs_gc.engine.input_order import check_inputs
from lakefs_gc.engine.run import (
    GCRun,
    RunContext,
    begin_run,
    continue_run,
    effective_min_age_seconds,
    new_run_key,
    refuse_overlaps,
    repository_of,
)
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.engine.workspace.workspace import Clock, Workspace, utc_now
from lakefs_gc.errors import (
    ClockSkewError,
    ConfigurationError,
    CorruptFileError,
    InputOrderError,
    NamespaceError,
    ReadOnlyRepositoryError,
    RepositoryNotFoundError,
    SafetyError,
)
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lakefs_proxy import Answered, Asked, LakeFSProxy

DAY_SECONDS = 86_400


class NoSpark:
    """Beginning a run and continuing one start no Java."""

    @property
    def session(self) -> SparkSession:
        raise AssertionError("Spark was started")

    @property
    def cores(self) -> int:
        raise AssertionError("Spark was started")

    is_small = False

    def scale(self, small: bool) -> None:
        """Scale nothing: a session that is not started is not scaled."""


def context(
    lake: Lake, server: LakeFSClient, *, safety: SafetyParameters | None = None, clock: Clock = utc_now
) -> RunContext:
    return RunContext(
        compute=NoSpark(),
        connect=lambda: server,
        settings=lake.settings.model_copy(update={"safety": safety or SafetyParameters()}),
        workspace=Workspace(lake.settings.work_url),
        clock=clock,
        open_store=open_store,
    )


def begin(
    lake: Lake,
    name: str = "lake",
    *,
    safety: SafetyParameters | None = None,
    clock: Clock = utc_now,
    url: str = "",
) -> GCRun:
    credentials = lake.credentials.model_copy(update={"endpoint_url": url or lake.credentials.endpoint_url})
    return begin_run(context(lake, LakeFSClient(credentials), safety=safety, clock=clock), f"{name}/1")


def test_a_run_has_the_facts_of_its_repository(lake: Lake, repository: LakeRepository) -> None:
    run = begin(lake)
    assert (run.repository, run.namespace, run.store) == ("lake", "local://lake/", repository.location)
    assert run.grace_period_seconds == DAY_SECONDS
    assert run.server_version
    assert abs(run.started_at - utc_now()) < timedelta(seconds=30)


def test_contexts_with_other_safety_parameters_have_one_client(lake: Lake) -> None:
    """It remembers which repositories the server has listed."""
    given = replace(context(lake, LakeFSClient(lake.credentials)), connect=lambda: LakeFSClient(lake.credentials))
    changed = given.with_safety(SafetyParameters(max_commits=2))
    assert changed.safety.max_commits == 2
    assert changed.server is given.server


def test_facts_survive_as_json(lake: Lake, repository: LakeRepository) -> None:
    run = begin(lake)
    manifest = DatasetManifest("store_listing", run.run_key, "m", utc_now(), utc_now(), 0, {"run": run.to_facts()}, {})
    assert GCRun.of(DatasetManifest.from_json(manifest.sealed().to_json(), "manifest.json")) == run


def test_a_later_cutoff_than_the_minimum_age_allows_is_refused(lake: Lake, repository: LakeRepository) -> None:
    """A mark is made with the cutoff that the manifest of its listing has."""
    run = begin(lake)
    made = DatasetManifest("store_listing", run.run_key, "m", utc_now(), utc_now(), 0, {"run": run.to_facts()}, {})
    later = replace(run, cutoff=run.cutoff + timedelta(seconds=1))
    with pytest.raises(CorruptFileError, match=r"its cutoff .* is later than its minimum age allows"):
        GCRun.of(replace(made, facts={"run": later.to_facts()}))


@pytest.mark.parametrize(
    ("grace_hours", "safety", "age_hours"),
    [
        (24, SafetyParameters(), 24),
        (24, SafetyParameters(min_age_hours=72), 72),
        (48, SafetyParameters(), 48),  # a default below the grace period is raised to it
        (24, SafetyParameters(min_age_hours=24), 24),
        (24, SafetyParameters(min_age_hours=2, allow_min_age_below_grace=True), 2),
    ],
)
def test_the_cutoff_lies_the_greater_of_minimum_age_and_grace_period_back(
    tmp_path: Path, grace_hours: int, safety: SafetyParameters, age_hours: int
) -> None:
    options = SandboxOptions(grace_period_seconds=grace_hours * 3600)
    with Lake(tmp_path, options=options) as lake:
        lake.repository()
        run = begin(lake, safety=safety)
    assert run.started_at - run.cutoff == timedelta(hours=age_hours)


def test_a_minimum_age_below_the_grace_period_is_refused() -> None:
    with pytest.raises(SafetyError, match="minimum age of 23 h 54 min is below the server's grace period of 24 h"):
        effective_min_age_seconds(SafetyParameters(min_age_hours=23.9), DAY_SECONDS)


def shifted(seconds: float) -> Clock:
    return lambda: utc_now() + timedelta(seconds=seconds)


@pytest.mark.parametrize("seconds", [-310, 310])
def test_clocks_too_far_apart_are_refused(lake: Lake, repository: LakeRepository, seconds: float) -> None:
    with pytest.raises(ClockSkewError, match=r"31[01] s apart, more than 300 s"):
        begin(lake, clock=shifted(seconds))


@pytest.mark.parametrize("seconds", [-270, 270])
def test_the_cutoff_is_on_the_stores_clock(lake: Lake, repository: LakeRepository, seconds: float) -> None:
    run = begin(lake, clock=shifted(seconds))
    assert abs(run.started_at - utc_now()) < timedelta(seconds=30)


@pytest.mark.parametrize(("seconds", "is_refused"), [(-310, True), (310, True), (-270, False), (270, False)])
def test_a_stage_on_a_machine_whose_clock_is_off_is_refused(
    lake: Lake, repository: LakeRepository, seconds: float, is_refused: bool
) -> None:
    """Stages may run on several machines, and their order is decided by their clocks."""
    run = begin(lake)
    listing = DatasetManifest("store_listing", run.run_key, "m", utc_now(), utc_now(), 0, {"run": run.to_facts()}, {})
    here = context(lake, LakeFSClient(lake.credentials), clock=shifted(seconds))
    if is_refused:
        with pytest.raises(ClockSkewError, match=r"31[01] s apart, more than 300 s"):
            continue_run(here, listing)
    else:
        assert continue_run(here, listing) == run


OTHERS = [
    ("local://lake", True),
    ("local://lake/", True),
    ("local://lake/inner", True),
    ("local://lake/inner/", True),
    ("local://lake-2", False),
    ("local://lak", False),
]


@pytest.mark.parametrize(("namespace", "overlaps"), OTHERS)
def test_overlapping_namespaces_are_refused(
    lake: Lake, repository: LakeRepository, proxy: LakeFSProxy, namespace: str, overlaps: bool
) -> None:
    lake.repository("other")
    proxy.instead("/repositories", lambda asked, answer: answer.with_json(results=moved(answer.json, namespace)))
    if not overlaps:
        assert begin(lake, url=proxy.url).namespace == "local://lake/"
        return
    with pytest.raises(NamespaceError, match="overlap"):
        begin(lake, url=proxy.url)


def moved(page: dict[str, list[dict[str, str]]], namespace: str) -> list[dict[str, str]]:
    """The page's repositories, with the one named ``other`` somewhere else."""
    return [r | {"storage_namespace": namespace} if r["id"] == "other" else r for r in page["results"]]


def test_a_repository_inside_another_ones_namespace_is_refused(lake: Lake) -> None:
    lake.repository("outer", "local://outer")
    lake.repository("inner", "local://outer/data/inner")
    for name in ("outer", "inner"):
        with pytest.raises(NamespaceError, match=r"local://outer/data/inner.*overlap|overlap.*"):
            begin(lake, name)


@pytest.mark.parametrize("leads_to", ["lake", "lake/inner", "."])
def test_folders_that_a_link_makes_one_are_refused(lake: Lake, repository: LakeRepository, leads_to: str) -> None:
    """Their URLs differ; an object that one does not reference may be the other's."""
    target = repository.folder.parent / leads_to
    target.mkdir(exist_ok=True)
    lake.repository("other")
    folder = lake.repository("linked").folder
    shutil.rmtree(folder)
    folder.symlink_to(target)
    for name in ("lake", "linked"):
        with pytest.raises(NamespaceError, match=r"namespaces of .* overlap"):
            begin(lake, name)
    folder.unlink()
    folder.mkdir()
    assert begin(lake).namespace == "local://lake/"


def test_mounts_tell_which_folders_are_one(lake: Lake, repository: LakeRepository) -> None:
    lake.repository("other")
    folders = {"local://": lake.location.folder_url}
    server = LakeFSClient(lake.credentials)
    others = server.other_repositories("lake")
    refuse_overlaps(server.repository("lake"), others, Settings(mounts=folders))
    both = folders | {"local://other/": repository.location.folder_url}
    with pytest.raises(NamespaceError, match="overlap"):
        refuse_overlaps(server.repository("lake"), others, Settings(mounts=both))


def test_a_mount_from_one_bucket_to_another_makes_namespaces_overlap(lake: Lake, proxy: LakeFSProxy) -> None:
    lake.repository("own")
    lake.repository("other")
    places = {"own": "s3://bucket/lakes/own/", "other": "s3://alias/lakes/own/data/team/"}

    def move(asked: Asked, answer: Answered) -> Answered:
        return answer.with_json(results=[r | {"storage_namespace": places[r["id"]]} for r in answer.json["results"]])

    proxy.instead("/repositories", move)
    server = LakeFSClient(lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
    own = next(repository for repository in server.repositories() if repository.name == "own")
    others = server.other_repositories("own")
    refuse_overlaps(own, others, Settings())
    with pytest.raises(NamespaceError, match="overlap"):
        refuse_overlaps(own, others, Settings(mounts={"s3://alias/": "s3://bucket/"}))


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("objects", True),
        ("objects/lake", True),
        ("objects/lake/backups", True),
        ("link/backups", True),
        ("objects/lake-backups", False),
        ("", False),
    ],
)
def test_a_repository_in_or_around_the_backup_location_is_refused(
    lake: Lake, repository: LakeRepository, url: str, is_refused: bool
) -> None:
    """No reference shows the copies of a backup."""
    (lake.folder / "link").symlink_to(repository.folder)
    given = context(lake, LakeFSClient(lake.credentials))
    backup = BackupSettings(url=f"{lake.folder.as_uri()}/{url}" if url else "")
    changed = replace(given, settings=given.settings.model_copy(update={"backup": backup}))
    if is_refused:
        with pytest.raises(NamespaceError, match=r"local://lake/?\) and the backup location .* overlap"):
            begin_run(changed, "lake/1")
    else:
        assert begin_run(changed, "lake/1").namespace == "local://lake/"


def test_repositories_that_cannot_be_collected(lake: Lake) -> None:
    with pytest.raises(RepositoryNotFoundError):
        begin(lake, "nowhere")
    read_only = lakefs_sdk.RepositoryCreation(name="frozen", storage_namespace="local://frozen", read_only=True)
    lake.client.repositories_api.create_repository(read_only)
    with pytest.raises(ReadOnlyRepositoryError):
        begin(lake, "frozen")


def test_urls_of_the_server_stay_in_the_namespace(lake: Lake, repository: LakeRepository) -> None:
    run = begin(lake)
    assert run.key_of("local://lake/_lakefs/retention/x") == "_lakefs/retention/x"
    for url in ("local://lake-2/_lakefs/x", "local://lake", "s3://lake/_lakefs/x", "_lakefs/x"):
        with pytest.raises(NamespaceError, match="not in the namespace"):
            run.key_of(url)


def test_a_server_with_a_local_store_names_the_folder(lake: Lake, repository: LakeRepository) -> None:
    run = begin(lake)
    folder = str(repository.folder).rstrip("/")
    assert run.key_of(f"local://{folder}/_lakefs/retention/x") == "_lakefs/retention/x"
    with pytest.raises(NamespaceError):
        run.key_of(f"local://{folder}-2/x")


def test_run_keys() -> None:
    key = new_run_key("my-repo", datetime(2026, 1, 31, 3, 4, 5, 6, UTC))
    assert key == "my-repo/2026-01-31T03-04-05-000006"
    assert repository_of(key) == "my-repo"
    for bad in ("my-repo", "my-repo/", "/x", "My-Repo/x", "my-repo/../x", "my-repo/a/b", "my-repo/x\n"):
        with pytest.raises(ConfigurationError, match="is not a run key"):
            repository_of(bad)


T0 = datetime(2026, 7, 1, tzinfo=UTC)


def manifest(stage: str, began: int, ended: int, run_key: str = "lake/1") -> DatasetManifest:
    """Began and ended so many seconds after ``T0``."""
    at = [T0 + timedelta(seconds=seconds) for seconds in (began, ended)]
    return DatasetManifest(stage, run_key, "id", at[0], at[1], 0, {}, {})


def test_inputs_in_order_are_taken() -> None:
    check_inputs("lake/1", manifest("store_listing", 0, 10), manifest("uncommitted", 10, 12), manifest("x", 12, 13))


Change = Callable[[DatasetManifest], DatasetManifest]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: replace(m, began_at=T0 + timedelta(seconds=9)), r"uncommitted of lake/1 began .* before"),
        (lambda m: replace(m, run_key="lake/2"), "uncommitted is of run lake/2, not of lake/1"),
        (lambda m: replace(m, ended_at=T0 + timedelta(seconds=30)), r"committed of lake/1 began .* before uncommitted"),
    ],
)
def test_inputs_out_of_order_or_of_another_run_are_refused(change: Change, message: str) -> None:
    second = change(manifest("uncommitted", 10, 12))
    with pytest.raises(InputOrderError, match=message):
        check_inputs("lake/1", manifest("store_listing", 0, 10), second, manifest("committed", 20, 21))
