"""A flipped bit in a file of a stage is an error, whoever wrote the file and whoever reads it (rule 12)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import arrow_schema
from lakefs_gc.engine.spark.data_files import read_parquet
from lakefs_gc.engine.spark.local_rows import rows_of
from lakefs_gc.engine.spark.parts import PartsFolder, write_table
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.errors import CorruptFileError, LakeFSGCError
from lakefs_gc.formats.parquet import parquet_bytes, read_columns
from lakefs_gc.storage.location import StoreLocation

SCHEMA = arrow_schema(schemas.UNCOMMITTED)
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


def test_small_files_have_checksums_too() -> None:
    [batch] = pa.table({"address": ADDRESSES}, SCHEMA).to_batches()
    with pytest.raises(CorruptFileError, match=r"(?i)crc|checksum"):
        read_columns(flip_one_bit(parquet_bytes(batch)), SCHEMA, "file")
