"""What a stage leaves behind: a DataFrame in Parquet, and a manifest that says how it came about.

Layout, below the workspace: ``<repository>/<run>/<stage>/data/*.parquet`` and ``manifest.json`` beside ``data``.  The
manifest is removed first and written last: a stage that did not end has none, and what reads it is told so.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakefs_gc.engine.spark.data_files import data_files, read_parquet, rows_in
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.parts import PartsFolder, StageFiles
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.engine.workspace.range_cache import RangeCache
from lakefs_gc.engine.workspace.run_folders import (
    LISTING,
    MANIFEST,
    MARK_RECORD,
    abandoned,
    listed,
    run_folders,
)
from lakefs_gc.errors import CorruptFileError, InputOrderError, ObjectNotFoundError, StorageError
from lakefs_gc.formats.json_object import read_json_object
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

logger = logging.getLogger(__name__)

_START_ANEW = "start a new run"

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The time on this machine's clock, UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class StageOutput:
    """A DataFrame that is not computed yet, and what its stage knows already.

    ``measures`` are aggregates that are taken while the DataFrame is written (never by a second pass); they join
    ``facts`` under their names.  ``inputs`` names the materialization of each stage that this one was computed from.

    ``partition_by`` names a column by whose values the files lie in folders, for what is read a value at a time.
    With ``in_parts`` workers write the rows themselves, to ``Workspace.parts_folder``: then ``dataframe`` are their
    reports (columns ``parts.PART`` and other counts), whose sums become facts, and there are no ``measures``.
    """

    dataframe: DataFrame
    began_at: datetime
    facts: Mapping[str, Any] = field(default_factory=dict)
    measures: Mapping[str, Column] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    partition_by: str = ""
    in_parts: bool = False


@dataclass(frozen=True)
class DatasetManifest:
    """How one materialization of a stage came about.  Times are UTC, on this machine's clock.

    ``files`` are its data: name below its folder ``data`` to size in bytes.
    """

    stage: str
    run_key: str
    materialization_id: str
    began_at: datetime
    ended_at: datetime
    rows: int
    facts: dict[str, Any]
    inputs: dict[str, str]
    files: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> bytes:
        content = asdict(self) | {"began_at": self.began_at.isoformat(), "ended_at": self.ended_at.isoformat()}
        return json.dumps(content, indent=2, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes, file: str) -> DatasetManifest:
        """Raises ``CorruptFileError`` for what is no manifest, ``InputOrderError`` for that of an older version."""
        content = read_json_object(data, file, "a manifest of a stage", remedy=_START_ANEW)
        if "materialization_id" in content and "files" not in content:
            raise InputOrderError(f"{file} was written by an older lakefs-gc", remedy=_START_ANEW)
        try:
            times = {name: datetime.fromisoformat(content[name]) for name in ("began_at", "ended_at")}
            manifest = cls(**{**content, **times})
            sizes = [manifest.rows, *manifest.files.values()]
            if not all(type(size) is int for size in sizes) or not isinstance(manifest.facts, dict):
                raise TypeError("rows and sizes are whole numbers, and facts have names")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptFileError(file, f"not a manifest of a stage: {error}", remedy=_START_ANEW) from None
        if manifest.to_json() != data:  # byte for byte as it was written, or somebody else wrote it
            raise CorruptFileError(file, "this manifest of a stage was changed", remedy=_START_ANEW)
        return manifest


@dataclass(frozen=True)
class Dataset:
    """A materialized stage: its DataFrame, read back from Parquet, and its manifest."""

    dataframe: DataFrame
    manifest: DatasetManifest


class Workspace:
    """The folder that holds the stages of all runs.

    ``url`` is any URL that Spark can write; manifests go through ``storage``, so it must be ``file://`` or ``s3://``
    (``s3a://`` for Spark, where its Hadoop client is installed).  The cache of ranges lies there too, unless it has
    ``max_range_cache_bytes`` of 0.
    """

    def __init__(self, url: str, clock: Clock = utc_now, *, max_range_cache_bytes: int = 0) -> None:
        self.url = url.rstrip("/")
        self._clock = clock
        self._max_range_cache_bytes = max_range_cache_bytes

    @property
    def range_cache(self) -> RangeCache:
        """The ranges that earlier runs have read."""
        return RangeCache(self._store().location, self._max_range_cache_bytes)

    def write(self, spark: SparkSession, run_key: str, stage: str, output: StageOutput) -> DatasetManifest:
        """Compute a stage and keep it; replaces an earlier materialization of the same stage and run."""
        logger.info("%s of %s: computing", stage, run_key, extra={"stage": stage})
        store, manifest_key = self._store(), f"{run_key}/{stage}/{MANIFEST}"
        store.delete_many([manifest_key])
        measured, parts = self._write_data(run_key, stage, output)
        files = self._written(run_key, stage, measured["rows"], parts)
        manifest = DatasetManifest(
            stage=stage,
            run_key=run_key,
            materialization_id=uuid4().hex,
            began_at=output.began_at,
            ended_at=self._clock(),
            rows=measured.pop("rows"),
            # A sum over no rows is null: there it is zero.
            facts={**output.facts, **{name: value or 0 for name, value in measured.items()}},
            inputs=dict(output.inputs),
            files=files,
        )
        store.put(manifest_key, manifest.to_json())
        if parts is not None:
            self._remove_other_parts(run_key, stage, parts)
        logger.info("%s of %s: %d rows", stage, run_key, manifest.rows, extra={"rows": manifest.rows})
        return manifest

    def _write_data(self, run_key: str, stage: str, output: StageOutput) -> tuple[dict[str, Any], list[str] | None]:
        """Compute and write; ``rows`` and the measures, and the names of the files if workers wrote them."""
        if output.in_parts:
            with driver_errors():
                written = output.dataframe.collect()  # a row for about a million
            counts = (name for name in output.dataframe.columns if name != "file")
            sums = {name: sum(row[name] for row in written) for name in counts}
            return sums, sorted(row["file"] for row in written)
        observation = Observation()
        observed = output.dataframe.observe(
            observation, F.count(F.lit(1)).alias("rows"), *(c.alias(name) for name, c in output.measures.items())
        )
        with driver_errors():
            writer = observed.write.mode("overwrite")
            if output.partition_by:
                writer = writer.partitionBy(output.partition_by)
            writer.parquet(f"{self.folder(run_key, stage)}/data")
        return dict(observation.get), None

    def _written(self, run_key: str, stage: str, rows: int, parts: list[str] | None) -> dict[str, int]:
        """The files, by name, and their sizes.  Raises ``StorageError`` unless they hold ``rows`` rows."""
        folder, store = f"{run_key}/{stage}/data/", self._store()
        there = data_files(store, folder)
        files = {name: there.get(name, 0) for name in parts} if parts is not None else there
        found = rows_in(store, [folder + name for name, size in files.items() if size])
        if found != rows:
            raise StorageError(
                f"{stage} of {run_key} was written with {rows} rows, and {found} can be read back from {self.url}",
                remedy="check the workspace (work_url): all machines must see the same folder; then run again",
            )
        return files

    def _remove_other_parts(self, run_key: str, stage: str, parts: list[str]) -> None:
        """Remove the files of an earlier materialization, and of attempts that did not count."""
        folder, store = f"{run_key}/{stage}/data/", self._store()
        kept = {folder + name for name in parts}
        found = (key for batch in store.list(folder) for key in batch.column("address").to_pylist())
        store.delete_many([key for key in found if key not in kept])

    def parts_folder(self, run_key: str, stage: str) -> PartsFolder:
        """Where workers write a stage themselves (``StageOutput.in_parts``)."""
        return PartsFolder(self._store().location, f"{run_key}/{stage}/data/")

    def files_of(self, manifest: DatasetManifest) -> StageFiles:
        """The files of a stage, for workers that read them themselves."""
        folder = f"{manifest.run_key}/{manifest.stage}/data/"
        return StageFiles(self._store().location, tuple(folder + name for name in sorted(manifest.files)))

    def read(self, spark: SparkSession, run_key: str, stage: str, schema: StructType | str) -> Dataset:
        """A stage of a run.

        Raises ``InputOrderError`` when it was not materialized, did not end, or has lost something since.
        """
        manifest = self.manifest(run_key, stage)
        there = data_files(self._store(), f"{run_key}/{stage}/data/")
        if manifest.files and not there:
            raise InputOrderError(
                f"the data of {stage} of run {run_key} were removed: newer runs took its place",
                remedy="start a new run, or raise keep_runs to keep the data of more of them",
            )
        changed = sorted(name for name, size_bytes in manifest.files.items() if there.get(name) != size_bytes)
        if changed:
            raise InputOrderError(
                f"{len(changed)} of {len(manifest.files)} files of {stage} of run {run_key} are gone, or not as long "
                f"as they were, e.g. {changed[0]}",
                remedy="start a new run, and find out what removes files from the workspace (work_url)",
            )
        if not manifest.rows:
            return Dataset(local_rows(spark, [], schema), manifest)
        folder_url = f"{self.folder(run_key, stage)}/data"
        return Dataset(read_parquet(spark, schema, folder_url, manifest.files), manifest)

    def manifest(self, run_key: str, stage: str) -> DatasetManifest:
        """The manifest of a stage alone."""
        try:
            key = f"{run_key}/{stage}/{MANIFEST}"
            data = self._store().read(key)
        except ObjectNotFoundError:
            raise InputOrderError(
                f"{stage} of run {run_key} is not there, or was not finished",
                remedy=f"materialize {stage} of this partition and everything after it, or start a new run",
            ) from None
        return DatasetManifest.from_json(data, key)

    def prune(self, repository: str, keep_runs: int, *, current: str = "") -> int:
        """Remove what old runs of a repository left; the number of files removed.  Never of the run ``current``.

        Old are all but the ``keep_runs`` newest of those whose listing has ended, and those without a listing to which
        nothing was written for long.  Manifests of assets stay: by them a mark that waits for its approval is found.
        """
        store = self._store()
        folders = [folder for folder in run_folders(store, repository).values() if folder.run_key != current]
        old = [folder for folder in listed(folders)[keep_runs:] if folder.removable] + abandoned(folders, store)
        if not old:
            return 0
        removed = sum(not gone.error for gone in store.delete_many([key for f in old for key in f.removable]))
        logger.info("removed %d files of %d old runs of %s", removed, len(old), repository)
        return removed

    def listed_runs(self, repository: str) -> Iterator[str]:
        """Keys of the runs of a repository whose listing has ended, the newest first.

        Manifests are read as they are asked for, so that the newest run costs the same among many.  One that is damaged
        is passed over with a warning.
        """
        for folder in listed(run_folders(self._store(), repository).values()):
            try:
                self.manifest(folder.run_key, LISTING)
            except CorruptFileError as error:
                logger.warning("run %s is passed over: %s", folder.run_key, error.message)
            except InputOrderError:
                continue  # of an older version, or removed meanwhile
            else:
                yield folder.run_key

    def keep(
        self,
        spark: SparkSession,
        run_key: str,
        stage: str,
        output: StageOutput,
        schema: StructType | str | None = None,
    ) -> Dataset:
        """Compute a stage, keep it, and read it back: for what must not be computed twice within one run.

        ``schema`` is what it is read with, if not the DataFrame's own.  Raises ``InputOrderError`` when somebody else
        has written the stage of this run meanwhile, and as ``write`` and ``read`` do.
        """
        written = self.write(spark, run_key, stage, output)
        kept = self.read(spark, run_key, stage, schema or output.dataframe.schema)
        if kept.manifest.materialization_id != written.materialization_id:
            raise InputOrderError(
                f"{stage} of run {run_key} was written by another process while this one wrote it",
                remedy="see which other run of this partition is under way (Dagster's UI, command lines on other "
                "machines), wait until it ends, and start this one again",
            )
        return kept

    def record_mark(self, run_key: str, mark_id: str, digest: str) -> None:
        """Remember the digest of a mark that was made from the stages of this run."""
        content = {"mark_id": mark_id, "digest": digest}
        self._store().put(f"{run_key}/{MARK_RECORD}", json.dumps(content, indent=2).encode())

    def has_made(self, run_key: str, mark_id: str, digest: str) -> bool:
        """Whether the stages of this run are those that a mark with this very digest was made from."""
        key = f"{run_key}/{MARK_RECORD}"
        try:
            content = read_json_object(self._store().read(key), key, "the record of a mark")
        except (ObjectNotFoundError, CorruptFileError) as error:
            logger.info("the mark %s is not known here: %s", mark_id, error.message)
            return False
        return (content.get("mark_id"), content.get("digest")) == (mark_id, digest)

    def remove(self, run_key: str) -> None:
        """Remove everything that a run left, manifests and all."""
        store = self._store()
        store.delete_many([key for batch in store.list(f"{run_key}/") for key in batch.column("address").to_pylist()])

    def folder(self, run_key: str, stage: str) -> str:
        """URL of the folder of a stage, without a final slash."""
        return f"{self.url}/{run_key}/{stage}"

    def _store(self) -> ObjectStore:
        """The place as an object store.  A local folder that is missing is made: here it is no mistake of a mount."""
        if self.url.startswith("file://"):
            # As it is written: neither the store nor Hadoop decodes ``%20``.
            Path(self.url.removeprefix("file://")).mkdir(parents=True, exist_ok=True)
        return open_store(StoreLocation(self.url.replace("s3a://", "s3://", 1)))
