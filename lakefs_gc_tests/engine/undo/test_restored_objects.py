"""What a restore compares for each object before it writes it, and what it does if a store is down or others write."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest

from lakefs_gc.engine.records.backups.manifest import BackupPaths
from lakefs_gc.engine.spark.witness import write_witness
from lakefs_gc.engine.spark.workers import WorkerError
from lakefs_gc.engine.undo.copy_object import Planned, copy_one
from lakefs_gc.engine.undo.restore import _Copy, _restore_objects, _restore_one
from lakefs_gc.errors import BackupError, StoreUnavailableError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc.storage.s3.store import S3Store
from lakefs_gc_tests.support.copy_limits import IN_PARTS, MIB
from lakefs_gc_tests.support.faulty_s3 import error
from lakefs_gc_tests.support.faulty_store import LevelledS3


def folder(path: Path, name: str) -> LocalStore:
    (path / name).mkdir()
    return LocalStore(StoreLocation((path / name).as_uri()))


def test_a_place_that_is_down_ends_the_restore(
    levelled_s3: LevelledS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million objects are not asked for one by one, each until the retries end."""
    monkeypatch.setattr(RetryPolicy, "pause_seconds", lambda policy, failures: 0.0)
    levelled_s3.faults.append(lambda request: error(503, "ServiceUnavailable"))
    places = StoreLocation("s3://bucket/backups"), write_witness(folder(tmp_path, "namespace"), "passes/")
    copies = [{"address": f"data/s/{name}", "size": 3, "checksum": ""} for name in ("one", "two")]
    with pytest.raises(WorkerError) as failed:
        list(_restore_objects(*places, "objects/")(iter([pa.RecordBatch.from_pylist(copies)])))
    assert isinstance(failed.value.__cause__, StoreUnavailableError)
    levelled_s3.faults.clear()
    (outcomes,) = _restore_objects(*places, "objects/")(iter([pa.RecordBatch.from_pylist(copies)]))
    assert outcomes["outcome"].to_pylist() == ["lost", "lost"]


@pytest.mark.parametrize(
    ("of_place", "of_namespace", "proof"),
    [
        ("folder", "folder", "sha256 by reading"),
        ("folder", "s3", "md5 by reading"),
        ("s3", "folder", "sha256 by reading"),
        ("s3", "s3", "md5 by stores"),
        ("s3 in parts", "s3 in parts", "md5 by reading"),
    ],
)
def test_what_was_recorded_is_compared_before_anything_is_written(
    of_place: str, of_namespace: str, proof: str, s3_namespace: StoreLocation, tmp_path: Path
) -> None:
    """By whatever the place and the namespace state now: an upload in parts is no longer known by its MD5."""

    def opened(kind: str, name: str) -> ObjectStore:
        if kind == "folder":
            return folder(tmp_path, name)
        return S3Store(StoreLocation(f"{s3_namespace.url}/{name}"), copy_limits=IN_PARTS if "parts" in kind else None)

    source, namespace = opened(of_place, "place"), opened(of_namespace, "namespace")
    content, changed = bytes(9 * MIB), bytes(9 * MIB - 1) + b"X"
    namespace.put("data/s/big", content)
    paths = BackupPaths("lake", "m1")
    record, _ = copy_one(namespace, source, paths, Planned("data/s/big", len(content), None))
    assert record is not None
    assert record.proof == proof
    copy = _Copy("data/s/big", len(content), record.checksum)

    def back() -> str:
        return _restore_one(source, namespace, paths.objects, copy)[0]

    namespace.delete_many(["data/s/big"])
    source.put(paths.objects + "data/s/big", changed)
    assert back() == "failed"
    assert namespace.content_facts("data/s/big") is None
    source.put(paths.objects + "data/s/big", content)
    assert [back(), back()] == ["restored", "already_there"]
    assert namespace.read("data/s/big") == content
    namespace.put("data/s/big", changed)
    assert back() == "conflict"
    source.put(paths.objects + "data/s/big", changed)
    assert back() == "failed", "the same as the copy, and not what was backed up"


@pytest.mark.parametrize("checksum", ["crc64nvme:AAAA", ""])
def test_a_copy_that_nobody_can_compare_is_not_written(checksum: str, tmp_path: Path) -> None:
    source, namespace = folder(tmp_path, "place"), folder(tmp_path, "namespace")
    source.put("objects/data/s/a", b"abc")
    outcome, problem = _restore_one(source, namespace, "objects/", _Copy("data/s/a", 3, checksum))
    assert outcome == "failed"
    assert isinstance(problem, BackupError)
    assert "cannot be verified" in problem.message
    assert list(namespace.list()) == []


def test_the_same_object_written_meanwhile_is_no_conflict(tmp_path: Path) -> None:
    """By another restore, or by our own copy whose answer was lost."""

    class Raced(LocalStore):
        def copy_to(self, key: str, destination: ObjectStore, destination_key: str, *, if_absent: bool = False) -> bool:
            destination.put(destination_key, meanwhile)
            return super().copy_to(key, destination, destination_key, if_absent=if_absent)

    source, namespace = Raced(folder(tmp_path, "place").location), folder(tmp_path, "namespace")
    source.put("objects/data/s/a", b"abc")
    copy = _Copy("data/s/a", 3, f"md5:{hashlib.md5(b'abc').hexdigest()}")
    for meanwhile, outcome in ((b"abc", "already_there"), (b"abd", "conflict")):
        assert _restore_one(source, namespace, "objects/", copy)[0] == outcome
        assert namespace.read("data/s/a") == meanwhile
        namespace.delete_many(["data/s/a"])
