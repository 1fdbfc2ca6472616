"""The archive for executors runs from any folder, and compiles nothing there."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pyspark
import pytest

from lakefs_gc.cli import archive as package
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.ranges import read_range
from lakefs_gc_tests.support import dumps

_WORKER = """
import importlib, json, pkgutil, sys
import lakefs_gc.engine
for module in pkgutil.walk_packages(lakefs_gc.engine.__path__, "lakefs_gc.engine."):
    importlib.import_module(module.name)
from lakefs_gc.formats.sstable import kernel
from lakefs_gc.formats.ranges import read_range
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.s3.listing import read_quickly
from lakefs_gc.storage.s3.page import scan_objects
for url in json.loads(sys.argv[2]):
    open_store(StoreLocation(url))  # the one of S3 finds its part of botocore's data
rows = read_range(open(sys.argv[1], "rb").read(), sys.argv[1])
page = (
    b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>ns/data/a</Key>"
    b"<LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>7</Size></Contents></ListBucketResult>"
)
listed = read_quickly(page, "ns/").objects.column("address").to_pylist()
all_stats = kernel.decode_entries.stats, scan_objects.stats
files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
print(json.dumps({
    "addresses": rows.column("address").to_pylist(),
    "listed": listed,
    "misses": [sum(stats.cache_misses.values()) for stats in all_stats],
    "hits": [sum(stats.cache_hits.values()) for stats in all_stats],
    "files": [file for file in files if file],
    "python": sys.executable,
}))
"""


_STORES = {
    "boto3": "s3://bucket/prefix/",
    "azure-storage-blob": "https://account.blob.core.windows.net/container/",
    "google-auth": "gs://bucket/path/",
}


@pytest.fixture(scope="module")
def unpacked(packed: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("executor") / "a folder" / "lakefs-gc"
    folder.mkdir(parents=True)
    # As Spark does it.
    subprocess.run(["tar", "-xzf", packed["archive"], "-C", str(folder)], check=True)
    return folder


def _packed_stores(packed: dict[str, Any]) -> list[str]:
    names = {name.partition("==")[0] for name in packed["distributions"]}
    return [url for name, url in _STORES.items() if name in names]


@pytest.mark.of_ci
@pytest.mark.parametrize("writable", [True, False], ids=["writable", "read-only"])
def test_the_archive_runs_without_any_other_package(
    packed: dict[str, Any], unpacked: Path, tmp_path: Path, writable: bool
) -> None:
    pyspark_folder = Path(pyspark.__file__).parent / "python" / "lib"
    sparks_own = os.pathsep.join(str(file) for file in sorted(pyspark_folder.glob("*.zip")))
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": sparks_own}
    if not writable:  # what the place of the code cannot be to root: another one comes before it
        environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")
    file = tmp_path / "range"
    file.write_bytes(dumps.table_bytes(dumps.tables("ranges")[0]))
    command = ["./lakefs-gc/python/bin/python3", "-c", _WORKER, str(file), json.dumps(_packed_stores(packed))]
    ended = subprocess.run(
        command, cwd=unpacked.parent, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    output = json.loads(ended.stdout)
    assert output["addresses"] == read_range(file.read_bytes(), "f").column("address").to_pylist()
    assert output["listed"] == ["data/a"]
    assert (output["misses"], output["hits"]) == ([0, 0], [1, 1]), "nothing is compiled"
    elsewhere = [name for name in output["files"] if not name.startswith((str(unpacked), str(pyspark_folder)))]
    assert not elsewhere
    assert output["python"].startswith(str(unpacked))
    driver_only = ("/dagster/", "/typer/", "/rich/", "/starlette/")
    assert not [name for name in output["files"] if any(part in name for part in driver_only)]


def test_the_archive_has_bytecode_for_every_module(packed: dict[str, Any]) -> None:
    with tarfile.open(packed["archive"]) as archive:
        names = set(archive.getnames())
        launcher = archive.getmember("python/bin/python3")
    assert launcher.mode & 0o111
    tag = sys.implementation.cache_tag
    modules = [Path(name) for name in names if name.startswith("site-packages/") and name.endswith(".py")]
    without = [file for file in modules if f"{file.parent}/__pycache__/{file.stem}.{tag}.pyc" not in names]
    assert modules
    assert {file.name for file in without} <= {"_py2.py"}, "is for another Python"
    assert not [name for name in names if name.endswith(("direct_url.json", "RECORD"))], "paths of this machine"


def test_package_prints_the_settings_for_spark(packed: dict[str, Any]) -> None:
    assert packed["spark"] == {
        "spark.archives": f"file://{packed['archive']}#lakefs-gc",
        "spark.pyspark.python": "./lakefs-gc/python/bin/python3",
    }
    assert package.spark_settings("s3://b/k.tar.gz")["spark.archives"] == "s3://b/k.tar.gz#lakefs-gc"
    names = {name.partition("==")[0] for name in packed["distributions"]}
    assert names >= {"boto3", "numba", "pyarrow", "lakefs-sdk"}
    assert not names & {"dagster", "pyspark", "py4j", "typer", "rich", "lakefs-gc"}


def test_the_archive_has_the_stores_that_are_installed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = set(_STORES) - {"boto3"}
    declared = distribution("lakefs-gc").requires or []
    known = {name for name in stores if any(line.startswith(name) for line in declared)}
    assert known <= {packed_distribution.name for packed_distribution in package.runtime_distributions()}

    def without_stores(name: str) -> Distribution:
        if name in stores:
            raise PackageNotFoundError(name)
        return distribution(name)

    monkeypatch.setattr(package, "distribution", without_stores)
    names = {packed_distribution.name for packed_distribution in package.runtime_distributions()}
    assert "boto3" in names
    assert not names & stores


def test_the_archive_can_include_the_driver() -> None:
    names = {packed_distribution.name for packed_distribution in package.runtime_distributions(with_driver=True)}
    assert names >= {"dagster", "dagster-pyspark", "typer", "boto3"}
    assert not names & {"pyspark", "py4j"}


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    file = tmp_path / "file"
    made = []
    for mtime in (1, 2_000_000_000):
        file.write_bytes(b"content")
        os.utime(file, (mtime, mtime))
        stream = io.BytesIO()
        entries: dict[str, package.Content] = {"b": file, "a": b"a", "python/bin/python3": b"#!"}
        if mtime > 1:
            entries = dict(reversed(entries.items()))
        package.write_archive(stream, entries)
        made.append(stream.getvalue())
    assert made[0] == made[1]
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(made[0]))) as archive:
        assert [(m.name, m.mode) for m in archive] == [("a", 0o644), ("b", 0o644), ("python/bin/python3", 0o755)]


def test_bytecode_follows_its_source(tmp_path: Path) -> None:
    """Files in ``__pycache__`` that do not belong to this source are not packed."""
    file = tmp_path / "module.py"
    file.write_text("VALUE = 1\n")
    command = [sys.executable, "-c", "import module"]
    subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""})
    assert b"VALUE" in (known := package._bytecode("module.py", file))
    file.write_text("OTHER = 123\n")
    changed = package._bytecode("module.py", file)
    assert b"OTHER" in changed
    assert b"VALUE" not in changed
    assert known[:4] == changed[:4]
    assert known[4] == changed[4] == 1, "does not look at the time of the source"
    file.write_text("no Python {{ at all }}\n")
    assert package._bytecode("module.py", file) == b""


def test_an_unknown_suffix_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="Spark cannot unpack"):
        package.make_package(tmp_path / "archive.tar")
    assert not list(tmp_path.iterdir())


def test_two_that_write_one_archive_do_not_write_into_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, written = tmp_path / "archive.tar.gz", package.write_archive
    monkeypatch.setattr(package, "_packages", lambda _: iter([("module.py", b"content")]))
    monkeypatch.setattr(package, "_interpreter", lambda: iter(()))
    others: list[package.Package] = []

    def write_beside_another(stream: Any, entries: Any) -> None:
        if not others:
            stream.write(b"a part, and meanwhile another process writes all of it")
            others.append(package.Package(output, 0, "", (), {}))
            others[0] = package.make_package(output)
            assert hashlib.sha256(output.read_bytes()).hexdigest() == others[0].sha256
            stream.seek(0)
            stream.truncate()
        written(stream, entries)

    monkeypatch.setattr(package, "write_archive", write_beside_another)
    made = package.make_package(output)
    assert (made.sha256, made.size_bytes) == (others[0].sha256, others[0].size_bytes)
    assert [file.name for file in tmp_path.iterdir()] == [output.name]


class Fake(Distribution):
    """A distribution with the given metadata."""

    def __init__(self, **files: str) -> None:
        self.files_by_name = {name.replace("direct_url", "direct_url.json"): text for name, text in files.items()}

    def read_text(self, filename: str) -> str | None:
        return self.files_by_name.get(filename)

    def locate_file(self, path: Any) -> Any:
        return Path("/nowhere") / path


def test_a_package_that_is_not_installed_as_files_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = "Metadata-Version: 2.1\nName: fake\nVersion: 1\n"
    editable = Fake(METADATA=metadata, RECORD="fake.py,,\n", direct_url='{"dir_info": {"editable": true}}')
    for packed_distribution in (editable, Fake(METADATA=metadata)):
        with pytest.raises(ConfigurationError, match="the files of fake are not recorded"):
            list(package._files(packed_distribution))
    needing = Fake(METADATA=f"{metadata}Requires-Dist: not-there-at-all\nRequires-Dist: x; extra == 'y'\n")
    monkeypatch.setattr(package, "distribution", lambda name: needing if name == "lakefs-gc" else distribution(name))
    with pytest.raises(ConfigurationError, match="not-there-at-all is not installed"):
        package.runtime_distributions()
