"""A flipped bit in a file of a stage is an error, whoever wrote the file and whoever reads it (rule 12)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import arrow_schema, spark_version
from lakefs_gc.engine.spark.data_files import FilesRead, StageFiles, footers_of, read_parquet
from lakefs_gc.engine.spark.local_rows import rows_of
from lakefs_gc.engine.spark.parts import PartsFolder, write_table
from lakefs_gc.engine.spark.session import start_spark
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.engine.workspace.stage_folder import StageFolder
from lakefs_gc.engine.workspace.workspace import StageOutput, Workspace, utc_now
from lakefs_gc.errors import ConfigurationError, CorruptFileError, LakeFSGCError, SparkFailedError, StorageError
from lakefs_gc.formats.parquet import parquet_bytes, read_columns
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

SCHEMA = arrow_schema(schemas.UNCOMMITTED)
MAY_BE_NULL = pa.schema([("address", pa.string())])
ADDRESSES = ["data/s/x1", "data/s/x3", "data/another"]


def flip_one_bit(data: bytes) -> bytes:
    """Return a file whose address x1 reads as x3. Nothing but a checksum shows that."""
    wanted = sorted([*ADDRESSES[1:], ADDRESSES[1]])
    for place in range(4, len(data) - 8):
        for bit in range(8):
            other = bytearray(data)
            other[place] ^= 1 << bit
            try:
                read = pq.read_table(pa.BufferReader(bytes(other)))["address"].to_pylist()
            except (pa.ArrowException, OSError, ValueError):
                continue
            if all(isinstance(address, str) for address in read) and sorted(read) == wanted:
                return bytes(other)
    raise AssertionError("no bit")


def by_pyarrow(spark: SparkSession, folder: Path) -> Path:
    """As workers write a stage."""
    [name] = write_table(pa.table({"address": ADDRESSES}, SCHEMA), PartsFolder(StoreLocation(folder.as_uri()), ""))
    return folder / name


def by_spark(spark: SparkSession, folder: Path) -> Path:
    rows_of(spark, pa.table({"address": ADDRESSES}, SCHEMA), schemas.UNCOMMITTED).coalesce(1).write.mode(
        "append"
    ).parquet(str(folder))
    [file] = folder.glob("part-*.parquet")
    (folder / f".{file.name}.crc").unlink()  # S3 has none
    return file


@pytest.mark.parametrize("write", [by_pyarrow, by_spark])
def test_a_flipped_bit_in_a_page_is_an_error(spark: SparkSession, tmp_path: Path, write: object) -> None:
    file: Path = write(spark, tmp_path)  # type: ignore[operator]

    def read() -> list[str]:
        with driver_errors():
            rows = read_parquet(spark, schemas.UNCOMMITTED, tmp_path.as_uri(), [file.name]).collect()
        return [row["address"] for row in rows]

    whole = file.read_bytes()
    assert sorted(read()) == sorted(ADDRESSES)
    assert read_columns(whole, SCHEMA, file.name)["address"].to_pylist() == ADDRESSES
    flipped = flip_one_bit(whole)
    file.write_bytes(flipped)
    with pytest.raises(LakeFSGCError, match=r"(?i)crc|checksum"):
        read()
    with pytest.raises(CorruptFileError, match=r"(?i)crc|checksum"):
        read_columns(flipped, SCHEMA, file.name)


def test_pages_are_of_the_version_with_checksums(spark: SparkSession, tmp_path: Path) -> None:
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    workspace = Workspace(tmp_path.as_uri())
    hadoop.set("parquet.writer.version", "v2")
    try:
        output = StageOutput(references(spark).repartition(1), utc_now())
        workspace.write(spark, "lake/1", "uncommitted", output)
        references(spark).write.parquet(f"{tmp_path}/of-a-cluster")
    finally:
        hadoop.unset("parquet.writer.version")

    def encodings(folder: str) -> set[str]:
        [file] = (tmp_path / folder).glob("part-*.parquet")
        return set(pq.read_metadata(file).row_group(0).column(0).encodings)

    assert "DELTA_BYTE_ARRAY" in encodings("of-a-cluster")
    assert encodings("lake/1/uncommitted/data") <= {"PLAIN", "PLAIN_DICTIONARY", "RLE", "BIT_PACKED"}


def test_small_files_have_checksums_too() -> None:
    [batch] = pa.table({"address": ADDRESSES}, SCHEMA).to_batches()
    with pytest.raises(CorruptFileError, match=r"(?i)crc|checksum"):
        read_columns(flip_one_bit(parquet_bytes(batch)), SCHEMA, "file")


_has_such_a_bit = pytest.mark.skipif(
    spark_version() == (4, 0), reason="no single bit in a footer of Spark 4.0 makes a column seem to have no nulls"
)


def with_other_footers(data: bytes) -> Iterator[bytes]:
    """Yield files whose rows read otherwise, as many and without an error: its column seems to have no nulls."""
    for place in range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data) - 8):
        for bit in range(8):
            other = bytearray(data)
            other[place] ^= 1 << bit
            try:
                read = read_columns(bytes(other), MAY_BE_NULL, "file")["address"].to_pylist()
            except (LakeFSGCError, pa.ArrowException, OSError, ValueError):
                continue
            if len(read) == len(ADDRESSES) and sorted(read) != sorted(ADDRESSES):
                yield bytes(other)


def references(spark: SparkSession) -> DataFrame:
    return rows_of(spark, pa.table({"address": ADDRESSES}, MAY_BE_NULL), "address string").coalesce(1)


@_has_such_a_bit
def test_a_flipped_bit_in_a_footer_is_an_error_in_this_process(spark: SparkSession, tmp_path: Path) -> None:
    """Also where workers and the join of ``unmatched`` read what Spark has written."""
    references(spark).write.mode("append").parquet(str(tmp_path))
    [file] = tmp_path.glob("part-*.parquet")
    store, location = open_store(StoreLocation(tmp_path.as_uri())), StoreLocation(tmp_path.as_uri())
    files = StageFiles(location, (file.name,), *footers_of(store, [file.name]), stage="lake/1/stage")
    assert sorted(files.table(store, "address string")["address"].to_pylist()) == sorted(ADDRESSES)
    assert sum(map(len, files.strings("address"))) == len(ADDRESSES)
    file.write_bytes(next(with_other_footers(file.read_bytes())))
    with pytest.raises(CorruptFileError, match=r"lake/1/stage.*other footers"):
        files.table(store, "address string")
    with pytest.raises(CorruptFileError, match=r"lake/1/stage.*other footers"):
        list(files.strings("address"))


def test_another_file_of_the_same_rows_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, address in ((one, "data/a"), (two, "data/another")):
        rows_of(spark, pa.table({"address": [address]}, SCHEMA), schemas.UNCOMMITTED).coalesce(1).write.parquet(
            str(folder)
        )
    contents = [next(folder.glob("part-*.parquet")).read_bytes() for folder in (one, two)]
    whole, twice = FilesRead(), FilesRead()
    for content, again in zip(contents, (contents[0], contents[0]), strict=True):
        whole.add(content, "file")
        twice.add(again, "file")
    files = StageFiles(StoreLocation(tmp_path.as_uri()), (), whole.rows, whole.footers)
    files.refuse_others(whole)
    with pytest.raises(CorruptFileError, match="other footers"):
        files.refuse_others(twice)


@_has_such_a_bit
@pytest.mark.executors
def test_a_bit_that_flips_before_the_file_is_read_back_is_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the checksum of the damaged footer would be recorded, and each later reader would find the same."""
    workspace, files = Workspace(tmp_path.as_uri()), StageFolder._files
    output = StageOutput(references(spark), utc_now())
    assert workspace.write(spark, "lake/1", "uncommitted", output).rows == len(ADDRESSES)
    attempt, bits, unnoticed_by_spark = 0, 1, 0

    def damaged(*arguments: Any) -> object:
        nonlocal bits
        [file] = (tmp_path / "lake/1/uncommitted/data").glob("part-*.parquet")
        file.with_name(f".{file.name}.crc").unlink()
        others = list(with_other_footers(file.read_bytes()))
        bits = len(others)
        file.write_bytes(others[attempt])
        return files(*arguments)

    monkeypatch.setattr(StageFolder, "_files", damaged)
    while attempt < bits:
        with pytest.raises((StorageError, SparkFailedError)) as raised:
            workspace.write(spark, "lake/1", "uncommitted", output)
        unnoticed_by_spark += "with other rows than Spark was given" in str(raised.value)
        attempt += 1
    assert unnoticed_by_spark, "Spark itself notices"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.parquet.enableVectorizedReader", "false"),
        ("spark.sql.parquet.enableNestedColumnVectorizedReader", "FALSE"),
        ("spark.sql.parquet.outputTimestampType", "INT96"),
    ],
)
def test_spark_must_read_with_care(spark: SparkSession, name: str, value: str) -> None:
    """Its other reader fills a page that lost its end with the first value."""
    before = spark.conf.get(name)
    try:
        with pytest.raises(ConfigurationError, match=f"{name} is {value}, and must be"):
            start_spark({name: value})
        start_spark({name: str(before).title()})
    finally:
        spark.conf.set(name, str(before))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.io.compression.codec", "zstd"),
        ("spark.shuffle.compress", "false"),
        ("spark.shuffle.spill.compress", "False"),
        ("spark.broadcast.compress", "false"),
        ("spark.broadcast.checksum", "false"),
    ],
)
def test_what_tasks_exchange_must_have_checksums(spark: SparkSession, name: str, value: str) -> None:
    """With one flipped bit in a file of a shuffle, an address that is in use would be lost without an error."""
    settings: Any = spark.sparkContext._conf  # those of Java
    before = settings.get(name, "")
    settings.set(name, value)
    try:
        with pytest.raises(ConfigurationError, match=f"{name} is {value}, and must be"):
            start_spark({})
    finally:
        if before:
            settings.set(name, before)
        else:
            settings._jconf.remove(name)
    start_spark({name: "lz4" if name.endswith("codec") else "TRUE"})


def test_a_time_of_another_unit_is_an_error() -> None:
    """One flipped bit in a footer says that microseconds are nanoseconds, and 2026 becomes 1970."""
    moment = pa.array([1_790_000_000_000_000], pa.int64()).view(pa.timestamp("us", tz="UTC"))
    for unit in ("us", "ns"):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"at": moment.cast(pa.timestamp(unit, tz="UTC"))}), sink)
        schema = pa.schema([("at", pa.timestamp("us", tz="UTC"))])
        if unit == "us":
            assert read_columns(sink.getvalue().to_pybytes(), schema, "file")["at"].to_pylist() == moment.to_pylist()
            continue
        with pytest.raises(CorruptFileError, match=r"'at' contains timestamp\[ns, tz=UTC\]"):
            read_columns(sink.getvalue().to_pybytes(), schema, "file")
