"""Fixtures for all tests: an S3 server and namespaces in it, Spark, and a lakeFS server's address."""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from azure.storage.blob import BlobServiceClient
from pyspark.sql import SparkSession
from sqlalchemy import Engine, event

from lakefs_gc.config import load_server_credentials
from lakefs_gc.engine.spark.scale import SMALL, is_small
from lakefs_gc.engine.spark.session import scale_session, start_spark
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.sandbox.azurite import ACCOUNT, Azurite, azurite_program
from lakefs_gc.sandbox.fake_gcs import FakeGCS, fake_gcs_program
from lakefs_gc.sandbox.seaweedfs import SeaweedFS, weed_program
from lakefs_gc.storage.endpoints import begin_clients
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc_tests.install_emulators import AZURITE, FAKE_GCS, skip_without

# pytest shows the values of an assertion that fails in a test module; so it does in what test modules share.
pytest.register_assert_rewrite("lakefs_gc_tests.support")

from lakefs_gc_tests.support.collector import Collector  # noqa: E402
from lakefs_gc_tests.support.impatient_daemon import pause_seconds  # noqa: E402
from lakefs_gc_tests.support.processes_of_tests import processes_here  # noqa: E402
from lakefs_gc_tests.support.scaled_spark import OF_EXECUTORS  # noqa: E402

_BUCKET = "lakefs-gc-tests"

# No test is timed, and on a busy machine the first example of one may take longer than Hypothesis likes.
hypothesis.settings.register_profile("lakefs-gc", deadline=None)
hypothesis.settings.load_profile("lakefs-gc")


@event.listens_for(Engine, "connect")
def _leave_the_disk_to_the_kernel(connection: object, _: object) -> None:
    """Dagster's events wait for the disk 2,600 times in a mark and its sweep; no test cuts the power."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


def pytest_xdist_auto_num_workers() -> int:
    """The number for ``-n auto``."""
    return processes_here()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first: begun last, one would run on when there is nothing left for the other processes.

    What is ``of_ci`` says nothing that others do not say, of what is unsafe, or says it again for each emulator. It
    would take much of everybody's time. With arguments, only these cases of a test are.
    """
    not_here = pytest.mark.skip(reason="for CI, to save time: set CI=1 to run it")
    for item in items:
        marker = item.get_closest_marker("of_ci")
        cases = tuple(f"[{case}]" for case in marker.args) if marker else ()
        if marker and not os.environ.get("CI") and (not cases or item.name.endswith(cases)):
            item.add_marker(not_here)

    def seconds(item: pytest.Item) -> float:
        marker = item.get_closest_marker("long")
        return marker.args[0] if marker else 0

    items.sort(key=seconds, reverse=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before all fixtures of a test, those of its module too."""
    Collector.runs_are_small = item.get_closest_marker("executors") is None


@pytest.fixture(scope="session", autouse=True)
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory of all tests: the settings and the Dagster instance of a checkout are a developer's own."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        # For the processes that tests start, Spark's workers among them.
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        for name in ("DAGSTER_HOME", "LAKEFS_GC_CONFIG"):
            patch.delenv(name, raising=False)
        yield folder


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """A real S3 server with the bucket ``lakefs-gc-tests``, for the whole test session."""
    try:
        weed_program()
    except ConfigurationError as error:
        pytest.skip(error.message)
    with SeaweedFS(tmp_path_factory.mktemp("seaweedfs")) as server:
        server.client().create_bucket(Bucket=_BUCKET)
        yield server


@pytest.fixture
def s3_namespace(s3_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> StoreLocation:
    """A fresh storage namespace in S3; the environment has the endpoint and the credentials."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return StoreLocation(f"s3://{_BUCKET}/{uuid.uuid4().hex}/repository")


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Azurite with the container ``lakefs-gc-tests``, for the whole test session."""
    try:
        azurite_program()
    except ConfigurationError as error:
        skip_without(error, AZURITE)
    with Azurite(tmp_path_factory.mktemp("azurite")) as server:
        service = BlobServiceClient(server.endpoint, {"account_name": ACCOUNT, "account_key": server.key})
        service.create_container(_BUCKET)
        yield server


@pytest.fixture
def azure_namespace(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> StoreLocation:
    """A fresh storage namespace in Azurite; the environment has the endpoint and the credentials."""
    for name in ("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in azurite.environment.items():
        monkeypatch.setenv(name, value)
    return StoreLocation(f"{azurite.url(_BUCKET)}/{uuid.uuid4().hex}/repository")


@pytest.fixture(scope="session")
def fake_gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeGCS]:
    """fake-gcs-server with the bucket ``lakefs-gc-tests``, for the whole test session."""
    try:
        fake_gcs_program()
    except ConfigurationError as error:
        skip_without(error, FAKE_GCS)
    with FakeGCS(tmp_path_factory.mktemp("fake-gcs")) as server:
        server.create_bucket(_BUCKET)
        yield server


@pytest.fixture
def gcs_namespace(fake_gcs: FakeGCS, monkeypatch: pytest.MonkeyPatch) -> StoreLocation:
    """A fresh storage namespace in fake-gcs-server; the environment has the endpoint."""
    for name, value in fake_gcs.environment.items():
        monkeypatch.setenv(name, value)
    return StoreLocation(f"gs://{_BUCKET}/{uuid.uuid4().hex}/repository")


@pytest.fixture(scope="session")
def spark_config(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Configuration of the one Spark session of the test session.

    Spark's Python workers have the environment that its JVM was started with, so the S3 server's address and
    credentials are set before that, where there is one.
    """
    try:
        weed_program()
    except ConfigurationError:
        environment: dict[str, str] = {}
    else:
        environment = request.getfixturevalue("s3_server").environment
    before = dict(os.environ)
    os.environ.update(environment)
    yield dict(OF_EXECUTORS)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def small_spark_config(spark_config: dict[str, str]) -> dict[str, str]:
    """Configuration of the same session for runs that may be small."""
    return {name: value for name, value in spark_config.items() if name != SMALL}


@pytest.fixture(scope="session")
def spark(spark_config: dict[str, str]) -> Iterator[SparkSession]:
    """The Spark session, for tests that call the engine."""
    session = start_spark(spark_config)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _as_in_a_new_worker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small run does here what it would do in Spark's workers, which are new and impatient (``impatient_daemon``)."""
    begin_clients("")  # the server of an earlier test may have had the same address
    if "spark" in request.fixturenames:
        monkeypatch.setattr(RetryPolicy, "pause_seconds", pause_seconds)


@pytest.fixture(autouse=True)
def _scale_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """Scale the session of all tests back after a test with a small run."""
    yield
    session = SparkSession.getActiveSession()
    if session is not None and is_small(session):
        scale_session(session, request.getfixturevalue("spark_config"), small=False)


@pytest.fixture
def connect_to_lakefs(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], LakeFSClient]:
    """Point this process at a lakeFS server; gives a client of it."""

    def connect(url: str, access_key_id: str = "test-key", secret_access_key: str = "test-secret") -> LakeFSClient:
        monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", url)
        monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", access_key_id)
        monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", secret_access_key)
        return LakeFSClient(load_server_credentials())

    return connect
