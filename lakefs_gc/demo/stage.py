"""The servers of the demo, and the settings to reach them."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lakefs_gc.config import CONFIG_VARIABLE, BackupSettings, SafetyParameters, ServerCredentials, Settings
from lakefs_gc.demo import ui
from lakefs_gc.demo.story import REPOSITORY, Storyteller
from lakefs_gc.engine.records.stored_marks import Marked, open_mark
from lakefs_gc.engine.spark.session import start_spark
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.sandbox.azurite import Azurite
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.fake_gcs import FakeGCS
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

LANDING = "landing/prices.csv"
UNTIL_OLD_ENOUGH_SECONDS = 3
"""Longer than the minimum age, because some stores record whole seconds."""
_BUCKET, _BACKUPS = "lakefs-gc-demo", "lakefs-gc-demo-backups"
# A real server's grace period is a day. The demo can use a second, because no client uploads meanwhile.
_GRACE_SECONDS = 1
_MIN_AGE_HOURS = 2 / 3600
# Small data needs few tasks and little memory.
_SMALL = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "4", "spark.driver.memory": "1g"}
# For few rows, compiling takes longer than running: the demo takes 45 s of processor time instead of 67 s.
_NOT_COMPILED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


class Stage:
    """The servers of the demo in ``folder``, and the settings to reach them.

    ``store`` is ``local``, ``s3``, ``azure`` or ``gcs``.
    """

    def __init__(self, folder: Path, stack: ExitStack, store: str, *, compiled: bool) -> None:
        self.folder = folder
        location, urls, backups, environment = self._store(folder, stack, store)
        sandbox = stack.enter_context(
            SandboxServer(folder / "sandbox", location, options=SandboxOptions(grace_period_seconds=_GRACE_SECONDS))
        )
        self.credentials = ServerCredentials(
            endpoint_url=sandbox.endpoint_url,
            access_key_id=sandbox.access_key_id,
            secret_access_key=sandbox.secret_access_key,
        )
        self.namespace, self.landing_url = f"{urls}{REPOSITORY}", f"{urls}{LANDING}"
        home = folder / "dagster"
        home.mkdir()
        self.settings = Settings(
            repositories=(REPOSITORY,),
            mounts={urls: location.folder_url} if store == "local" else {},
            work_url=f"file://{home}/work",
            # Only the demo commits, and it waits for its commits.
            safety=SafetyParameters(min_age_hours=_MIN_AGE_HOURS, longest_commit_minutes=0),
            backup=BackupSettings(url=backups),
            spark=_SMALL if compiled else _SMALL | _NOT_COMPILED,
        )
        self.environment = {
            **environment,
            "DAGSTER_HOME": str(home),
            CONFIG_VARIABLE: str(ui.write_settings(home, self.settings)),
            "LAKECTL_SERVER_ENDPOINT_URL": self.credentials.endpoint_url,
            "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": self.credentials.access_key_id,
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": self.credentials.secret_access_key,
        }
        stack.enter_context(_environment(self.environment))
        self.lake = open_store(location)
        self.server = LakeFSClient(self.credentials)
        self.storyteller = Storyteller(self.credentials, folder / "upload")

    @staticmethod
    def _store(folder: Path, stack: ExitStack, kind: str) -> tuple[StoreLocation, str, str, Mapping[str, str]]:
        """Return the location of the objects, the prefix of namespaces, the backups, and the variables they need."""
        if kind == "s3":
            weed = stack.enter_context(SeaweedFS(folder / "s3"))
            for bucket in (_BUCKET, _BACKUPS):
                weed.client().create_bucket(Bucket=bucket)
            stack.enter_context(_environment(weed.environment))
            return StoreLocation(f"s3://{_BUCKET}/"), f"s3://{_BUCKET}/", f"s3://{_BACKUPS}/", weed.environment
        if kind == "azure":
            azurite = stack.enter_context(Azurite(folder / "azurite"))
            stack.enter_context(_environment(azurite.environment))
            for container in (_BUCKET, _BACKUPS):
                azurite.create_container(container)
            url, backups_url = f"{azurite.url(_BUCKET)}/", f"{azurite.url(_BACKUPS)}/"
            return StoreLocation(url), url, backups_url, azurite.environment
        if kind == "gcs":
            emulator = stack.enter_context(FakeGCS(folder / "gcs"))
            stack.enter_context(_environment(emulator.environment))
            for bucket in (_BUCKET, _BACKUPS):
                emulator.create_bucket(bucket)
            return StoreLocation(f"gs://{_BUCKET}/"), f"gs://{_BUCKET}/", f"gs://{_BACKUPS}/", emulator.environment
        objects, backups = folder / "objects", folder / "backups"
        objects.mkdir()
        backups.mkdir()
        return StoreLocation(f"file://{objects}/"), "local://", f"file://{backups}/", {}

    def open(self, mark_id: str) -> Marked:
        """Open a mark of the demo's repository."""
        return open_mark(REPOSITORY, mark_id, self.server, self.settings)

    @contextmanager
    def spark_starting(self) -> Iterator[None]:
        """Start Spark while the block runs, and wait for it. What Java prints is shown only if the start fails."""
        with ThreadPoolExecutor(1, "spark") as executor, tempfile.TemporaryFile() as remarks:
            with _standard_error_to(remarks.fileno()):
                start = executor.submit(start_spark, dict(self.settings.spark))
                try:
                    yield
                finally:
                    wait([start])
            if start.exception():
                remarks.seek(0)
                sys.stderr.write(remarks.read().decode(errors="replace"))
            start.result()


@contextmanager
def _standard_error_to(descriptor: int) -> Iterator[None]:
    before = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for this process and its child processes, and restore the former values at the end."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
