"""An address in an external file does not lead outside the namespace, in a folder and on S3."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import lakefs_sdk
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.records.backups.location import read_backup
from lakefs_gc.engine.records.backups.manifest import Backup, BackupPaths
from lakefs_gc.engine.records.mark import Mark, MarkPart
from lakefs_gc.engine.records.stored_marks import read_mark
from lakefs_gc.engine.undo.backup_contents import RECORD
from lakefs_gc.engine.undo.restore import restore
from lakefs_gc.engine.undo.restore_source import RestoreSource
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import LakeFSGCError, MarkError, NamespaceError, StorageError
from lakefs_gc.formats.candidate_addresses import CANDIDATE_ADDRESS_REGEX, is_candidate_address
from lakefs_gc.formats.report import Summary, deleted_parquet, report_paths
from lakefs_gc.storage.base import DeletionOutcome
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake, LakeRepository, keys_below

VICTIM = "data/slice/victim"
NEVER = (
    f"../lake2/{VICTIM}",
    f"data/../../lake2/{VICTIM}",
    f"data/slice/../../../lake2/{VICTIM}",
    "data/..",
    "data/./slice/victim",
    f"./{VICTIM}",
    "..",
    ".",
    "",
    f"/{VICTIM}",
    f"//{VICTIM}",
    f"data//{VICTIM}",
    "data/slice/",
    "/etc/hostname",
    "_lakefs/dummy",
    "_lakefs/retention/gc/rules/config.json",
    "dummy",
    f"s3://lakefs-gc-tests/lake2/{VICTIM}",
    f"local://lake2/{VICTIM}",
    "file:///etc/hostname",
    "https://example.com/data/x",
    f"2/{VICTIM}",  # "s3://b/lake" + this, if the slash is missing
)
"""Addresses that are never collected."""
LITERAL = (
    f"data/%2e%2e/%2e%2e/lake2/{VICTIM}",
    f"data/..%2f..%2flake2/{VICTIM}",
    "data\\..\\..\\lake2\\data\\slice\\victim",
    "..\\lake2\\data\\slice\\victim",
    f"data/%252e%252e/%252e%252e/lake2/{VICTIM}",
    "data/slice/victim?versionId=null",
    "data/slice/victim#x",
    "data/slice/victim\n",
    " data\t",
    f"data/\uff0e\uff0e/\uff0e\uff0e/lake2/{VICTIM}",
    "data/s/%00",
    "~",
    "*",
    "data/*",
)
"""Unusual but valid names of objects, which decoding would change."""
IMPOSSIBLE = ("data/slice/victim\0", f"data/\0/../../lake2/{VICTIM}")
"""A file cannot have such a name. S3 can have the first."""


class Neighbourhood:
    """The repository ``lake`` with objects around it: the same objects in ``lake2``, and above both."""

    def __init__(self, lake: Lake) -> None:
        self.repository: LakeRepository = lake.repository("lake")
        self.around = open_store(lake.location)
        for key in (f"lake2/{VICTIM}", "lake2/dummy", "victim", f"{VICTIM}", f"lake/{VICTIM}", f"lake%2F{VICTIM}"):
            self.around.put(key, b"a victim")

    def outside(self) -> set[str]:
        """Return all keys outside the repository."""
        return {key for key in self._keys() if not key.startswith("lake/")}

    def inside(self) -> set[str]:
        """Return the keys of the repository's objects."""
        return {key for key in self._keys() if key.startswith("lake/") and not key.startswith("lake/_lakefs/")}

    def _keys(self) -> set[str]:
        return {key for batch in self.around.list() for key in batch.column("address").to_pylist()}


@pytest.fixture(params=["file", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    location = None
    if request.param == "s3":
        location = StoreLocation(request.getfixturevalue("s3_namespace").url + f"/{uuid4().hex}")
    with Lake(tmp_path / "sandbox", location) as lake:
        yield lake


@pytest.fixture
def around(lake: Lake) -> Neighbourhood:
    return Neighbourhood(lake)


def mark_of_another_tool(repository: LakeRepository, addresses: list[str], mark_id: str) -> Mark:
    paths, now = report_paths(mark_id), utc_now() + timedelta(minutes=1)
    content = deleted_parquet(pa.record_batch({"address": pa.array(addresses, pa.string())}))
    repository.store.put(f"{paths.deleted}part-0.snappy.parquet", content)
    summary = Summary(mark_id, True, "", now, now, len(addresses))
    repository.store.put(str(paths.summary), summary.to_json())
    return _read(repository, mark_id)


def _read(repository: LakeRepository, mark_id: str) -> Mark:
    return read_mark(repository.store, repository.name, repository.namespace, mark_id)


def test_only_addresses_of_objects_may_be_deleted(spark: SparkSession) -> None:
    """The same holds in Python and in Spark's own engine, which decides for each object."""
    assert [address for address in NEVER if is_candidate_address(address)] == []
    assert [address for address in (*LITERAL, *IMPOSSIBLE[:1]) if not is_candidate_address(address)] == []
    frame = spark.createDataFrame([(a,) for a in (*NEVER, *LITERAL)], "address string")
    kept = {row["address"] for row in frame.where(F.col("address").rlike(CANDIDATE_ADDRESS_REGEX)).collect()}
    assert kept == set(LITERAL)


def test_a_mark_of_another_tool_deletes_nothing_outside_the_namespace(
    spark: SparkSession, around: Neighbourhood
) -> None:
    repository, outside = around.repository, around.outside()
    collector = Collector(spark, repository)
    inside = around.inside()
    mark = mark_of_another_tool(repository, [VICTIM, *NEVER], "hostile")
    with pytest.raises(MarkError, match=f"{len(NEVER):,} addresses that are never collected"):
        collector.sweep(mark, live=[])
    assert (around.outside(), around.inside()) == (outside, inside)

    # SeaweedFS answers 400 to a backslash, which fails the sweep. It has no such object.
    odd = [address for address in LITERAL if repository.lake.is_local or "\\" not in address]
    mark = mark_of_another_tool(repository, [VICTIM, *odd], "odd")
    collector.sweep(mark, live=[], named_at_root="~")
    assert collector.swept.pop(VICTIM) == "deleted"
    assert set(collector.swept.values()) <= {"already_gone", "failed"}
    assert around.outside() == outside
    assert around.inside() == inside - {f"lake/{VICTIM}"}


def test_a_manipulated_backup_writes_nothing_outside_the_namespace(
    spark: SparkSession, around: Neighbourhood, lake: Lake, tmp_path: Path
) -> None:
    """A restore writes only into the namespace, and reads only the copies."""
    repository, outside, inside = around.repository, around.outside(), around.inside()
    (tmp_path / "backups").mkdir()
    place = StoreLocation((tmp_path / "backups").as_uri())
    store = open_store(place)
    (tmp_path / "secret").write_bytes(b"somebody's")
    paths = BackupPaths("lake", "hostile")
    rows = [*NEVER, *LITERAL, *IMPOSSIBLE, "data/../../../../../secret", "../" * 5 + "secret"]
    store.put(f"{paths.objects}data/slice/fine", b"fine")
    checksum = f"sha256:{hashlib.sha256(b'fine').hexdigest()}"
    table = pa.Table.from_pylist(
        [
            {"address": address, "size": 4, "outcome": "copied", "proof": "", "checksum": checksum, "error": ""}
            for address in [*rows, "data/slice/fine"]
        ],
        RECORD,
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    content = buffer.getvalue()
    store.put(f"{paths.contents}part.parquet", content)
    part = MarkPart(f"{paths.contents}part.parquet", len(table), 0, hashlib.sha256(content).hexdigest())
    outcomes = {"copied": len(table), "already_gone": 0, "failed": 0}
    backup = Backup("hostile", "lake", repository.namespace, "d", utc_now(), (part,), outcomes, 4, {}, "0").sealed()
    store.put(paths.manifest, backup.to_json())
    collector = Collector(spark, repository)
    result = restore(
        collector.context,
        RestoreSource(read_backup(store, paths), place, repository.location),
    )
    assert result.objects["restored"] == 1
    assert result.objects["failed"] >= len(NEVER) + 2
    assert sum(result.objects.values()) == len(table)
    assert around.outside() == outside
    assert around.inside() == inside | {"lake/data/slice/fine"}


def test_a_manifest_cannot_name_another_location(around: Neighbourhood, tmp_path: Path) -> None:
    """Ids and repositories are also parts of keys."""
    for mark_id in ("..", "../x", "a/b", "", ".hidden", "a\0b", "a\n", "a\\b"):
        with pytest.raises(MarkError):
            _read(around.repository, mark_id)
        with pytest.raises(MarkError):
            BackupPaths("lake", mark_id)
    for repository in ("", "..", ".x", "a/b", "../lake2"):
        with pytest.raises(LakeFSGCError):
            BackupPaths(repository, "id")


def test_stores_stay_in_their_folder(around: Neighbourhood, tmp_path: Path) -> None:
    """The second line of defence: this holds for any key, even if it is not an address of lakeFS."""
    store, outside = around.repository.store, around.outside()
    (tmp_path / "there").mkdir()
    other = open_store(StoreLocation((tmp_path / "there").as_uri()))
    refused = 0
    for address in (*NEVER, *LITERAL, *IMPOSSIBLE):
        try:
            (deletion,) = store.delete_many([address])
            refused += deletion.outcome == DeletionOutcome.FAILED
        except NamespaceError:
            refused += 1
        with suppress(NamespaceError, StorageError):
            store.copy_to(address, other, "copy")
        with suppress(NamespaceError, StorageError):
            store.copy_to(VICTIM, store, address)
        assert around.outside() == outside, address
    assert refused >= 10
    assert set(keys_below(other, "")) <= {"copy"}
    # Unusual names are valid names of objects in the namespace.
    assert {f"lake/{address}" for address in LITERAL[:2]} <= around.inside()


@pytest.mark.parametrize("lake", ["file"], indirect=True)
def test_entries_that_point_outside_only_keep_objects(spark: SparkSession, around: Neighbourhood) -> None:
    """Commits and staged entries of an attacker can only keep objects of the namespace."""
    repository, outside = around.repository, around.outside()
    garbage = repository.put_stray("data/slice/garbage") if repository.lake.is_local else ""
    namespace = repository.namespace
    for number, address in enumerate([*NEVER, *LITERAL]):
        # As a full address, because the server converts a relative address to a full one.
        url = address if "://" in address else namespace + address
        with suppress(lakefs_sdk.ApiException):  # the server rejects it, so it cannot be staged
            repository.stage(f"hostile/{number}", url)
    repository.commit(allow_empty=True)
    collector = Collector(spark, repository)
    collector.collect()
    if garbage:
        assert garbage in collector.addresses("candidates")
    collector.sweep(collector.mark())
    assert around.outside() == outside
