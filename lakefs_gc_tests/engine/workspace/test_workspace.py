"""The data and the manifest of a stage."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakefs_gc.engine.spark import parts, schemas
from lakefs_gc.engine.spark.data_files import read_parquet
from lakefs_gc.engine.spark.parts import PART, write_parts
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.engine.workspace import stage_folder
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput, Workspace
from lakefs_gc.errors import CorruptFileError, InputOrderError, LakeFSGCError, SparkFailedError, StorageError
from lakefs_gc.formats.durable_record import as_written, digest_of
from lakefs_gc.storage.base import LISTING_SCHEMA
from lakefs_gc_tests.support.failing_worker import fail

RUN = "lake/1"
BEGAN = datetime(2026, 7, 1, tzinfo=UTC)
ENDED = BEGAN + timedelta(minutes=1)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(f"file://{tmp_path}/a workspace ä %20", clock=lambda: ENDED)


def rows(spark: SparkSession, *addresses: str) -> StageOutput:
    frame = spark.createDataFrame([(address,) for address in addresses], schemas.UNCOMMITTED)
    return StageOutput(
        frame, BEGAN, {"fact": "value"}, {"length": F.sum(F.length("address"))}, inputs={"store_listing": "abc"}
    )


def test_a_stage_is_read_back_with_what_is_known_of_it(spark: SparkSession, workspace: Workspace) -> None:
    written = workspace.write(spark, RUN, "uncommitted", rows(spark, "data/ä", "data/bc"))
    read = workspace.read(spark, RUN, "uncommitted", schemas.UNCOMMITTED)
    assert {row["address"] for row in read.dataframe.collect()} == {"data/ä", "data/bc"}
    assert read.manifest == written
    facts = {"fact": "value", "length": 13}
    made_from = {"store_listing": "abc"}
    folder = Path(workspace.folder(RUN, "uncommitted").removeprefix("file://")) / "data"
    files = {file.name: file.stat().st_size for file in folder.glob("part-*.parquet")}
    assert (
        read.manifest
        == DatasetManifest(
            "uncommitted", RUN, written.materialization_id, BEGAN, ENDED, 2, facts, made_from, files, written.footers
        ).sealed()
    )
    assert written.footers


def test_a_stage_without_rows_measures_zero(spark: SparkSession, workspace: Workspace) -> None:
    manifest = workspace.write(spark, RUN, "uncommitted", rows(spark))
    assert (manifest.rows, manifest.facts["length"]) == (0, 0)
    assert workspace.read(spark, RUN, "uncommitted", schemas.UNCOMMITTED).dataframe.count() == 0


def test_each_materialization_has_an_id_and_replaces_the_one_before(spark: SparkSession, workspace: Workspace) -> None:
    first = workspace.write(spark, RUN, "uncommitted", rows(spark, "a"))
    second = workspace.write(spark, RUN, "uncommitted", rows(spark, "b"))
    assert first.materialization_id != second.materialization_id
    assert workspace.manifest(RUN, "uncommitted") == second
    assert workspace.read(spark, RUN, "uncommitted", schemas.UNCOMMITTED).dataframe.collect() == [("b",)]


def test_two_runs_in_one_folder_are_noticed(spark: SparkSession, workspace: Workspace) -> None:
    """Reading back must return the data of this process, not what another process wrote since."""
    kept = workspace.keep(spark, RUN, "uncommitted", rows(spark, "data/a"), schemas.UNCOMMITTED)
    assert [row["address"] for row in kept.dataframe.collect()] == ["data/a"]

    class BetweenWriteAndRead(Workspace):
        def read(self, spark: SparkSession, run_key: str, stage: str, schema: StructType | str) -> Dataset:
            workspace.write(spark, run_key, stage, rows(spark, "data/b"))
            return super().read(spark, run_key, stage, schema)

    with pytest.raises(InputOrderError, match=f"uncommitted of run {RUN} was written by another process"):
        BetweenWriteAndRead(workspace.url).keep(spark, RUN, "uncommitted", rows(spark, "data/a"))


def test_a_stage_that_did_not_end_is_not_there(spark: SparkSession, workspace: Workspace) -> None:
    with pytest.raises(InputOrderError, match="uncommitted of run lake/1 does not exist, or was not finished"):
        workspace.read(spark, RUN, "uncommitted", schemas.UNCOMMITTED)
    workspace.write(spark, RUN, "uncommitted", rows(spark, "a"))
    broken = spark.range(1).mapInArrow(fail(StorageError("raised by the test")), "address string")
    with pytest.raises(StorageError, match="raised by the test"):
        workspace.write(spark, RUN, "uncommitted", StageOutput(broken, BEGAN))
    with pytest.raises(InputOrderError, match="not finished"):
        workspace.manifest(RUN, "uncommitted")


@pytest.mark.parametrize("lose", [Path.unlink, lambda file: file.write_bytes(b"")])
def test_a_stage_that_has_lost_a_file_is_not_read(
    spark: SparkSession, workspace: Workspace, lose: Callable[[Path], None]
) -> None:
    """Spark ignores a missing file, and an empty one, as a power cut leaves it."""
    output = rows(spark, *(f"data/{number}" for number in range(8)))
    manifest = workspace.write(spark, RUN, "uncommitted", replace(output, dataframe=output.dataframe.repartition(4)))
    folder = Path(workspace.folder(RUN, "uncommitted").removeprefix("file://")) / "data"
    files = sorted(folder.glob("part-*.parquet"))
    assert len(files) > 1
    lose(files[1])
    readable = spark.read.schema(schemas.UNCOMMITTED).parquet(str(folder))
    assert 0 < readable.count() < manifest.rows, "Spark itself does not notice"
    with pytest.raises(InputOrderError, match=f"1 of {len(files)} files of uncommitted .* for example {files[1].name}"):
        workspace.read(spark, RUN, "uncommitted", schemas.UNCOMMITTED)


def test_rows_that_this_machine_does_not_find_are_no_stage(
    spark: SparkSession, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster, each machine may have a local folder of that name."""
    monkeypatch.setattr(stage_folder, "data_files", lambda store, folder: {})
    with pytest.raises(StorageError, match="written with 2 rows, but 0 can be read back"):
        workspace.write(spark, RUN, "uncommitted", rows(spark, "a", "b"))
    with pytest.raises(InputOrderError, match="not finished"):
        workspace.manifest(RUN, "uncommitted")


def test_a_setting_of_the_cluster_hides_no_file_that_is_missing(spark: SparkSession, workspace: Workspace) -> None:
    workspace.write(spark, RUN, "uncommitted", rows(spark, "a", "b"))
    read = workspace.read(spark, RUN, "uncommitted", schemas.UNCOMMITTED)
    for file in (Path(workspace.folder(RUN, "uncommitted").removeprefix("file://")) / "data").glob("*.parquet"):
        file.unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(Exception, match="not exist"):
            read.dataframe.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_a_manifest_that_others_have_written_is_refused() -> None:
    """An editor or a tool that formats JSON in its own way may have changed more."""
    manifest = DatasetManifest("committed", RUN, "id", BEGAN, ENDED, 2, {}, {}, {"part-0.parquet": 7}).sealed()
    data = manifest.to_json()
    assert DatasetManifest.from_json(data, "m") == manifest
    for other in (data + b"\n", json.dumps(json.loads(data)).encode()):
        with pytest.raises(CorruptFileError, match="was changed"):
            DatasetManifest.from_json(other, "m")
    for name, value in (("rows", 2.0), ("files", {"part-0.parquet": "7"}), ("files", []), ("facts", [])):
        content = json.loads(data) | {name: value}
        other = as_written(content | {"digest": digest_of(content)}, sort_keys=True)
        with pytest.raises(CorruptFileError, match="not a manifest of a stage"):
            DatasetManifest.from_json(other, "m")


def test_no_flipped_bit_of_a_manifest_is_read() -> None:
    """With no rows, another cutoff, or nothing lost, live objects were deleted."""
    facts = {"run": {"cutoff": "2026-05-01T00:00:00+00:00"}, "lost": 1}
    made = DatasetManifest("committed", RUN, "id", BEGAN, ENDED, 8, facts, {"a": "b"}, {"part-0.parquet": 7}, 9)
    data = made.sealed().to_json()
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises((CorruptFileError, InputOrderError)):
                DatasetManifest.from_json(bytes(flipped), "m")
    with pytest.raises(CorruptFileError, match="was changed"):
        DatasetManifest.from_json(made.to_json(), "m")


def test_a_stage_that_seems_to_have_no_rows_is_compared_with_its_files(
    spark: SparkSession, workspace: Workspace
) -> None:
    written = workspace.write(spark, RUN, "uncommitted", rows(spark, "a", "b"))
    file = Path(workspace.folder(RUN, "uncommitted").removeprefix("file://")) / "manifest.json"
    of_version_1 = {
        name: value
        for name, value in json.loads(written.to_json()).items()
        if name not in ("digest", "footers", "schema_version")
    }
    for content in (
        replace(written, rows=0).sealed().to_json(),
        as_written(of_version_1 | {"rows": 0}, sort_keys=True),
    ):
        file.write_bytes(content)
        with pytest.raises(CorruptFileError, match="written with 0 rows, and has 2"):
            workspace.read(spark, RUN, "uncommitted", schemas.UNCOMMITTED)
    file.write_bytes(as_written(of_version_1, sort_keys=True))
    assert workspace.read(spark, RUN, "uncommitted", schemas.UNCOMMITTED).dataframe.count() == 2


def test_a_stage_of_an_older_version_is_made_anew(spark: SparkSession, workspace: Workspace) -> None:
    workspace.write(spark, RUN, "store_listing", StageOutput(spark.createDataFrame([], schemas.STORE_LISTING), BEGAN))
    file = Path(workspace.folder(RUN, "store_listing").removeprefix("file://")) / "manifest.json"
    content = json.loads(file.read_text())
    for name in ("files", "footers", "digest", "schema_version"):
        del content[name]
    file.write_bytes(as_written(content, sort_keys=True))
    with pytest.raises(InputOrderError, match="older lakefs-gc"):
        workspace.read(spark, RUN, "store_listing", schemas.STORE_LISTING)
    assert list(workspace.listed_runs("lake")) == []


def test_old_runs_lose_their_data_and_keep_their_manifests(spark: SparkSession, workspace: Workspace) -> None:
    for day in range(1, 4):
        listing = StageOutput(spark.createDataFrame([], schemas.STORE_LISTING), BEGAN + timedelta(days=day))
        workspace.write(spark, f"lake/{day}", "store_listing", listing)
        workspace.write(spark, f"lake/{day}", "uncommitted", rows(spark, "a"))
    workspace.write(spark, "lake/unfinished", "uncommitted", rows(spark, "a"))
    workspace.write(spark, "lake-2/1", "store_listing", listing)
    assert workspace.prune("lake", keep_runs=2) > 0
    with pytest.raises(InputOrderError, match="were removed"):
        workspace.read(spark, "lake/1", "uncommitted", schemas.UNCOMMITTED)
    assert workspace.manifest("lake/1", "uncommitted").facts["fact"] == "value"
    for run in ("lake/2", "lake/3", "lake/unfinished"):
        assert workspace.read(spark, run, "uncommitted", schemas.UNCOMMITTED).dataframe.count() == 1
    assert workspace.read(spark, "lake-2/1", "store_listing", schemas.STORE_LISTING).dataframe.count() == 0
    assert workspace.prune("lake", keep_runs=2) == 0


def listed(*addresses: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"address": address, "size": 10, "last_modified": BEGAN} for address in addresses], schema=LISTING_SCHEMA
    )


def in_parts(spark: SparkSession, reports: list[pa.RecordBatch]) -> StageOutput:
    """Return the output that the driver gets from the workers' reports."""
    rows = [row for report in reports for row in report.to_pylist()]
    frame = spark.createDataFrame([(row["file"], row["rows"], row["size_bytes"]) for row in rows], PART)
    return StageOutput(frame, BEGAN, {"fact": "value"}, in_parts=True)


def test_of_what_workers_write_only_what_they_report_counts(
    spark: SparkSession, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_ROWS_PER_FILE", 2)
    where = workspace.parts_folder(RUN, "committed")
    workspace.write(spark, RUN, "committed", in_parts(spark, list(write_parts([listed("earlier")], where))))
    for _ in range(2):  # an attempt that was lost, and one that failed half way
        next(write_parts([listed("lost", "ä"), listed("later")], where))
    reports = list(write_parts([listed("a"), listed("b"), listed("ä"), listed()], where))
    assert [report.column("rows").to_pylist() for report in reports] == [[2], [1]]
    manifest = workspace.write(spark, RUN, "committed", in_parts(spark, reports))
    assert (manifest.rows, manifest.facts) == (3, {"fact": "value", "size_bytes": 30})
    read = workspace.read(spark, RUN, "committed", schemas.COMMITTED)
    assert {tuple(row) for row in read.dataframe.select("address", "size").collect()} == {
        ("a", 10),
        ("b", 10),
        ("ä", 10),
    }
    folder = Path(workspace.folder(RUN, "committed").removeprefix("file://")) / "data"
    assert {file.name: file.stat().st_size for file in folder.iterdir()} == manifest.files
    empty = workspace.write(spark, RUN, "committed", in_parts(spark, list(write_parts([listed()], where))))
    assert (empty.rows, empty.files) == (0, {})
    assert workspace.read(spark, RUN, "committed", schemas.COMMITTED).dataframe.count() == 0


@pytest.mark.parametrize("lost", [0, 1], ids=["a report of a part", "a report without a part"])
def test_a_stage_whose_reports_are_not_complete_is_not_there(
    spark: SparkSession, workspace: Workspace, lost: int
) -> None:
    [part] = write_parts([listed("a", "b")], workspace.parts_folder(RUN, "committed"))
    [report] = part.to_pylist()
    reports = [(report["file"], report["rows"], report["size_bytes"], 4), (None, 0, 0, 3)]
    schema = StructType([StructField("file", StringType()), *PART.fields[1:], StructField("files_read", LongType())])

    def output(reports: list[tuple[str | None, int, int, int]]) -> StageOutput:
        rows = spark.createDataFrame(reports, schema)
        return StageOutput(rows, BEGAN, in_parts=True, expected={"files_read": 7})

    manifest = workspace.write(spark, RUN, "committed", output(reports))
    assert (manifest.rows, len(manifest.files), manifest.facts) == (2, 1, {"size_bytes": 20})
    del reports[lost]
    message = f"the tasks of committed of {RUN} should have reported 7 files_read, but the reports have {3 + lost}"
    with pytest.raises(SparkFailedError, match=message):
        workspace.write(spark, RUN, "committed", output(reports))
    with pytest.raises(InputOrderError, match="not finished"):
        workspace.manifest(RUN, "committed")


def test_a_bit_that_flipped_in_a_footer_is_noticed(spark: SparkSession, workspace: Workspace) -> None:
    """Spark omits a row group with a negative number of rows, or that seems to lie elsewhere, and says nothing."""
    [report] = write_parts([listed("a", "b")], workspace.parts_folder(RUN, "committed"))
    workspace.write(spark, RUN, "committed", in_parts(spark, [report]))
    url = f"{workspace.folder(RUN, 'committed')}/data"
    [file] = Path(url.removeprefix("file://")).iterdir()
    data = file.read_bytes()
    omitted = with_right_number = 0
    for place in range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data) - 8):
        for bit in (0, 6):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            try:
                footer = pq.read_metadata(pa.BufferReader(bytes(flipped)))
            except (pa.ArrowException, OSError):
                continue
            file.write_bytes(flipped)
            with pytest.raises(CorruptFileError):
                workspace.read(spark, RUN, "committed", schemas.SIZED).dataframe.count()
            if omitted and with_right_number:
                continue
            try:
                with driver_errors():
                    rows = read_parquet(spark, schemas.SIZED, url, [file.name]).count()
            except LakeFSGCError:
                continue
            omitted += rows == 0
            with_right_number += rows == 0 and footer.num_rows == footer.row_group(0).num_rows == 2
    assert omitted, "Spark itself notices"
    assert with_right_number, "Spark itself notices"


def test_a_bit_that_flipped_in_a_footer_before_its_checksum_was_taken_is_noticed(
    spark: SparkSession, workspace: Workspace
) -> None:
    """The address seems to be optional (``25 00`` becomes ``25 02``), and Spark reads nulls."""
    addresses = [f"data/s/{number:03}" for number in range(108)]
    [report] = write_parts([listed(*addresses)], workspace.parts_folder(RUN, "committed"))
    url = f"{workspace.folder(RUN, 'committed')}/data"
    [file] = Path(url.removeprefix("file://")).iterdir()
    whole = file.read_bytes()
    place = whole.index(b"\x25\0", len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")) + 1
    file.write_bytes(whole[:place] + b"\x02" + whole[place + 1 :])
    with driver_errors():
        read = read_parquet(spark, schemas.SIZED, url, [file.name]).collect()
    assert [row["address"] for row in read] != addresses, "Spark itself notices"
    with pytest.raises(StorageError, match=r"committed of .* is read back .* with other footers"):
        workspace.write(spark, RUN, "committed", in_parts(spark, [report]))
    file.write_bytes(whole)
    workspace.write(spark, RUN, "committed", in_parts(spark, [report]))
    found = workspace.read(spark, RUN, "committed", schemas.SIZED).dataframe.collect()
    assert [row["address"] for row in found] == addresses


@pytest.mark.executors
def test_a_bit_that_flipped_in_an_index_of_pages_omits_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own files have indexes, which no checksum covers; pyarrow's have none."""
    folder = tmp_path / "data"
    spark.range(40).select(F.col("id").cast("string").alias("address")).coalesce(1).write.parquet(folder.as_uri())
    [file] = folder.glob("part-*.parquet")
    (folder / f".{file.name}.crc").unlink()  # Hadoop's, of local folders only
    data = bytearray(file.read_bytes())
    # The place of a page in the index of offsets ends with its first row (field 3, 64 bits), which is 0.
    number = data.rindex(b"\x16\0\0", 0, len(data) - 8 - int.from_bytes(data[-8:-4], "little")) + 1
    data[number] ^= 1 << 5
    file.write_bytes(data)
    names = F.col("address").isNotNull()
    found = read_parquet(spark, "address string", folder.as_uri(), [file.name]).where(names)
    assert len(found.collect()) == 40
    assert len(spark.read.parquet(f"{folder.as_uri()}/{file.name}").where(names).collect()) < 40, "Spark itself notices"
