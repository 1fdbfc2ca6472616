"""Write the rows of a stage, and read them back before the stage counts as written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from lakefs_gc.engine.spark.compat import known_table, to_arrow
from lakefs_gc.engine.spark.data_files import data_files, footers_of, read_parquet, row_sum
from lakefs_gc.engine.spark.parts import PartsFolder, footers_of_names, write_table
from lakefs_gc.engine.spark.scale import is_small
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.errors import SparkFailedError, StorageError
from lakefs_gc.storage.base import ObjectStore

_ROW_SUM = "row_sum"
_PAGES = {"parquet.page.write-checksum.enabled": "true", "parquet.writer.version": "v1"}
"""Options of Spark's Parquet writer. In Spark 3.5, pages of version 2 have no checksum, whatever is asked for."""


@dataclass(frozen=True)
class StageOutput:
    """A DataFrame that is not computed yet, and the known facts of its stage.

    ``measures`` are aggregates that are computed while the DataFrame is written, without a second pass. They are added
    to ``facts`` under their names. ``inputs`` names the materialization of each stage that this one is computed from.

    ``partition_by`` names a column for whose values there are separate folders, for a reader of one value at a time.
    With ``in_parts`` workers write the rows themselves, to ``Workspace.parts_folder``. Then ``dataframe`` has their
    reports (columns ``parts.PART`` and other counts), whose sums become facts, and ``measures`` is empty. A report
    whose ``file`` is null has only counts. ``expected`` has the sums that are known before, which do not become facts:
    with another sum the results of a task were lost, and the stage fails.
    Rows for which ``only_counted`` is true are counted by ``measures``, but not written.

    ``ended_at`` is when its work had ended, if ``dataframe`` only has reports of it; None: when the rows are written.
    ``work`` is for people who wait: the unit and the number of what the tasks work through, for example ranges.
    """

    dataframe: DataFrame
    began_at: datetime
    facts: Mapping[str, Any] = field(default_factory=dict)
    measures: Mapping[str, Column] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    partition_by: str = ""
    in_parts: bool = False
    expected: Mapping[str, int] = field(default_factory=dict)
    only_counted: Column | None = None
    work: tuple[str, int] | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True)
class WrittenStage:
    """What was written, as ``DatasetManifest`` records it; ``measured`` are measures and counts.

    ``is_of_spark``: Spark wrote the files, and not a worker or this process.
    """

    rows: int
    measured: dict[str, Any]
    files: dict[str, int]
    footers: int
    is_of_spark: bool


@dataclass(frozen=True)
class StageFolder:
    """The folder of a stage of a run, in the workspace ``url`` with its ``store``."""

    url: str
    store: ObjectStore
    run_key: str
    stage: str

    @property
    def parts(self) -> PartsFolder:
        """Return the folder to which workers write the stage themselves."""
        return PartsFolder(self.store.location, f"{self.run_key}/{self.stage}/data/")

    def write(self, output: StageOutput) -> WrittenStage:
        """Compute and write the rows.

        Raise ``StorageError`` if they cannot be read back as they were written, and ``SparkFailedError`` if Spark could
        not finish or lost the results of a task.
        """
        measured, parts = self._write_data(output)
        rows = measured.pop("rows")
        files, footers = self._files(rows, parts)
        if parts is None:
            self._refuse_other_rows(output, files, measured.pop(_ROW_SUM))
        return WrittenStage(rows, measured, files, footers, parts is None)

    def remove_others(self, written: WrittenStage) -> None:
        """Remove the files of an earlier materialization, and of task attempts that Spark discarded."""
        if written.is_of_spark:  # it has replaced the folder
            return
        folder = self.parts.folder
        keys = (key for batch in self.store.list(folder) for key in batch.column("address").to_pylist())
        self.store.delete_many([key for key in keys if key.removeprefix(folder) not in written.files])

    def _write_data(self, output: StageOutput) -> tuple[dict[str, Any], list[str] | None]:
        """Compute and write the data. Return ``rows`` and the measures, and the files if workers wrote them."""
        if output.in_parts:
            with driver_errors():
                reports = to_arrow(output.dataframe).to_pylist()  # one row for about a million rows of data
            counts = (name for name in output.dataframe.columns if name != "file")
            sums = {name: sum(report[name] for report in reports) for name in counts}
            _refuse_lost_results(f"{self.stage} of {self.run_key}", sums, output.expected)
            facts = {name: count for name, count in sums.items() if name not in output.expected}
            return facts, sorted(report["file"] for report in reports if report["file"] is not None)
        here = is_small(output.dataframe.sparkSession) and not output.partition_by
        table = known_table(output.dataframe)
        if here and table is not None and not output.measures and output.only_counted is None:
            return {"rows": table.num_rows}, write_table(table, self.parts)
        observation, is_written = Observation(), F.lit(True)
        if output.only_counted is not None:
            is_written = ~output.only_counted
        measures = {"rows": F.count_if(is_written), **output.measures}
        if not here:
            measures[_ROW_SUM] = row_sum(_hashed(output), is_written)
        observed = output.dataframe.observe(observation, *(each.alias(name) for name, each in measures.items()))
        if output.only_counted is not None:
            observed = observed.where(is_written)
        with driver_errors():
            if here:
                written = write_table(to_arrow(observed), self.parts)
                return dict(observation.get), written
            writer = observed.write.mode("overwrite").options(**_PAGES)
            if output.partition_by:
                writer = writer.partitionBy(output.partition_by)
            writer.parquet(self._data_url)
        return dict(observation.get), None

    @property
    def _data_url(self) -> str:
        return f"{self.url}/{self.run_key}/{self.stage}/data"

    def _files(self, rows: int, parts: list[str] | None) -> tuple[dict[str, int], int]:
        """Return the sizes of the files, by name, and the sum of the CRC-32 of their footers.

        Raise ``StorageError`` unless the files contain ``rows`` rows.
        """
        folder = self.parts.folder
        existing = data_files(self.store, folder)
        files = {name: existing.get(name, 0) for name in parts} if parts is not None else existing
        readable_rows, footers = footers_of(self.store, [folder + name for name, size in files.items() if size])
        if readable_rows != rows:
            raise StorageError(
                f"{self.stage} of {self.run_key} was written with {rows} rows, but {readable_rows} can be read back "
                f"from {self.url}",
                remedy="Check that all machines see the same folder at the workspace (work_url), then run again",
            )
        if parts is not None and footers != footers_of_names(parts):
            raise StorageError(
                f"{self.stage} of {self.run_key} is read back from {self.url} with other footers than its files were "
                "written with",
                remedy="Find out what changes files in the workspace (work_url), then run again",
            )
        return files, footers

    def _refuse_other_rows(self, output: StageOutput, files: Mapping[str, int], written_sum: int | None) -> None:
        """Read back what Spark has written, and raise ``StorageError`` unless it is what Spark was given.

        The footers of these files were read before, so a footer that was damaged until then is noticed now, and one
        that is damaged later is another one.
        """
        names = [name for name, size_bytes in files.items() if size_bytes]
        if not names:
            return
        with driver_errors():
            rows = read_parquet(output.dataframe.sparkSession, output.dataframe.schema, self._data_url, names)
            [[read_sum]] = rows.agg(row_sum(_hashed(output))).collect()
        if read_sum != written_sum:
            raise StorageError(
                f"{self.stage} of {self.run_key} is read back from {self.url} with other rows than Spark was given",
                remedy="Find out what changes files in the workspace (work_url), then run again",
            )


def _hashed(output: StageOutput) -> list[str]:
    """Return the columns in the files of a stage; the one that it is partitioned by is in their names."""
    return [name for name in output.dataframe.columns if name != output.partition_by]


def _refuse_lost_results(stage: str, sums: Mapping[str, int], expected: Mapping[str, int]) -> None:
    for name, number in expected.items():
        if sums.get(name, 0) != number:
            raise SparkFailedError(
                f"the tasks of {stage} should have reported {number:,} {name}, but the reports have "
                f"{sums.get(name, 0):,}. So the results of a task were lost or repeated, or a file of an earlier stage "
                "was read with another content",
                remedy="Start a new run. If it happens again, look in the log of Spark for executors that were lost, "
                "and find out what changes files in the workspace (work_url)",
            )
