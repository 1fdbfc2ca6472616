"""The output of a stage: a DataFrame in Parquet, and a manifest that describes how it was computed.

Layout, below the workspace: ``<repository>/<run>/<stage>/data/*.parquet`` and ``manifest.json`` beside ``data``. The
manifest is removed first and written last. So a stage that did not end has no manifest, and reading it is an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.engine.spark.data_files import FilesRead, StageFiles, data_files, footers_of, read_parquet
from lakefs_gc.engine.spark.local_rows import local_rows, rows_of
from lakefs_gc.engine.spark.parts import PartsFolder
from lakefs_gc.engine.spark.scale import is_small
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest, MarkOfRun
from lakefs_gc.engine.workspace.range_cache import RangeCache
from lakefs_gc.engine.workspace.run_folders import (
    LISTING,
    MANIFEST,
    MARK_RECORD,
    abandoned,
    listed,
    run_folders,
)
from lakefs_gc.engine.workspace.stage_folder import StageFolder
from lakefs_gc.engine.workspace.stage_folder import StageOutput as StageOutput
from lakefs_gc.errors import CorruptFileError, InputOrderError, ObjectNotFoundError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

logger = logging.getLogger(__name__)

Clock = Callable[[], datetime]

_MOST_BYTES_HERE = 64 * 1024**2
"""Of the files of a stage that the process of a small run reads; some two million addresses."""


def utc_now() -> datetime:
    """Return the time on this machine's clock, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Dataset:
    """A materialized stage: its manifest, and its DataFrame, read back from Parquet with ``read``.

    ``files`` are for who reads the rows without Spark; None if only ``read`` has them.
    """

    read: Callable[[], DataFrame]
    manifest: DatasetManifest
    files: StageFiles | None = None

    @cached_property
    def dataframe(self) -> DataFrame:
        """Return the rows. Reads them only once, and not at all for a stage that needs only the manifest."""
        return self.read()


class Workspace:
    """The folder with the stages of all runs, and with the range cache unless ``max_range_cache_bytes`` is 0.

    Spark writes the Parquet files, and ``storage`` the manifests. So ``url`` must be ``file://`` or ``s3://``, or
    ``s3a://`` if Spark has Hadoop's S3A client.
    """

    def __init__(self, url: str, clock: Clock = utc_now, *, max_range_cache_bytes: int = 0) -> None:
        self.url = url.rstrip("/")
        self._clock = clock
        self._max_range_cache_bytes = max_range_cache_bytes

    @property
    def range_cache(self) -> RangeCache:
        """Return the cache of the ranges that earlier runs read."""
        return RangeCache(self._store().location, self._max_range_cache_bytes)

    def write(self, spark: SparkSession, run_key: str, stage: str, output: StageOutput) -> DatasetManifest:
        """Compute and write a stage, which replaces an earlier materialization of the same stage and run."""
        logger.debug("%s: started", stage, extra={"stage": stage, "run_key": run_key})
        store, manifest_key, began = self._store(), f"{run_key}/{stage}/{MANIFEST}", time.monotonic()
        store.delete_many([manifest_key])
        folder = StageFolder(self.url, store, run_key, stage)
        with RUN_PROGRESS.step(stage, output.work):
            written = folder.write(output)
        manifest = DatasetManifest(
            stage=stage,
            run_key=run_key,
            materialization_id=uuid4().hex,
            began_at=output.began_at,
            ended_at=output.ended_at or self._clock(),
            rows=written.rows,
            # A sum over no rows is null, but the fact is zero.
            facts={**output.facts, **{name: value or 0 for name, value in written.measured.items()}},
            inputs=dict(output.inputs),
            files=written.files,
            footers=written.footers,
        ).sealed()
        store.put(manifest_key, manifest.to_json())
        folder.remove_others(written)
        seconds = time.monotonic() - began
        logger.debug("%s: %s rows in %.1f s", stage, f"{manifest.rows:,}", seconds, extra={"rows": manifest.rows})
        return manifest

    def parts_folder(self, run_key: str, stage: str) -> PartsFolder:
        """Return the folder to which workers write a stage themselves (``StageOutput.in_parts``)."""
        return StageFolder(self.url, self._store(), run_key, stage).parts

    def files_of(self, manifest: DatasetManifest) -> StageFiles:
        """Return the files of a stage, for workers that read them themselves."""
        parts = self.parts_folder(manifest.run_key, manifest.stage)
        keys = tuple(parts.folder + name for name, size_bytes in sorted(manifest.files.items()) if size_bytes)
        label = f"{manifest.run_key}/{manifest.stage}"
        return StageFiles(parts.store, keys, manifest.rows, manifest.footers, label)

    def read(self, spark: SparkSession, run_key: str, stage: str, schema: StructType | str) -> Dataset:
        """Return a stage of a run.

        Raise ``InputOrderError`` if it was not materialized, did not end, or lost or changed a file since then. A file
        that is damaged, or lost later, is an error of ``Dataset.dataframe``, or of what computes it.
        """
        manifest = self.manifest(run_key, stage)
        existing = data_files(self._store(), f"{run_key}/{stage}/data/")
        if manifest.files and not existing:
            raise InputOrderError(
                f"the data files of {stage} of run {run_key} were removed, because newer runs replace old ones",
                remedy="Start a new run, or raise keep_runs to keep the data of more runs",
            )
        changed = sorted(name for name, size_bytes in manifest.files.items() if existing.get(name) != size_bytes)
        if changed:
            raise InputOrderError(
                f"{len(changed)} of {len(manifest.files)} files of {stage} of run {run_key} are missing or have "
                f"another size, for example {changed[0]}",
                remedy="Start a new run, and find out what changes files in the workspace (work_url)",
            )
        files = self.files_of(manifest)
        if not manifest.rows:  # Spark writes a file with the schema alone
            self._refuse_other_footers(files)
            return Dataset(lambda: local_rows(spark, [], schema), manifest, files)

        def rows() -> DataFrame:
            if _fits_here(spark, manifest):
                return rows_of(spark, files.table(self._store(), schema), schema)
            self._refuse_other_footers(files)
            return self.rows_of_files(spark, run_key, stage, schema, manifest.files)

        return Dataset(rows, manifest, files)

    def _refuse_other_footers(self, files: StageFiles) -> None:
        """Raise ``CorruptFileError`` if the footers of the files are not those that were written."""
        files.refuse_others(FilesRead(*footers_of(self._store(), files.keys)))

    def rows_of_files(
        self, spark: SparkSession, run_key: str, stage: str, schema: StructType | str, names: Iterable[str]
    ) -> DataFrame:
        """Return files of a stage, read by Spark. A missing or damaged file is an error."""
        return read_parquet(spark, schema, f"{self.folder(run_key, stage)}/data", sorted(names))

    def manifest(self, run_key: str, stage: str) -> DatasetManifest:
        """Return the manifest of a stage, without looking at its data.

        Raise ``InputOrderError`` if it has none, and ``CorruptFileError`` for the manifest of another stage or run: a
        stage without rows would have nothing to read.
        """
        try:
            key = f"{run_key}/{stage}/{MANIFEST}"
            data = self._store().read(key)
        except ObjectNotFoundError:
            raise InputOrderError(
                f"{stage} of run {run_key} does not exist, or was not finished",
                remedy=f"Materialize {stage} of this partition and all assets downstream of it, or start a new run",
            ) from None
        manifest = DatasetManifest.from_json(data, key)
        if (manifest.run_key, manifest.stage) != (run_key, stage):
            raise CorruptFileError(
                key,
                f"this is the manifest of stage {manifest.stage} of run {manifest.run_key}",
                remedy="Start a new run, and find out what changes files or answers of the workspace (work_url)",
            )
        return manifest

    def prune(self, repository: str, keep_runs: int, *, current: str = "") -> int:
        """Remove the data of old runs of a repository. Return the number of removed files.

        Old are all runs with a store listing except the ``keep_runs`` newest, and abandoned runs without one. The run
        ``current`` is never old. Manifests of assets stay, because a mark that waits for its approval is found by them.
        """
        store = self._store()
        folders = [folder for folder in run_folders(store, repository).values() if folder.run_key != current]
        old = [folder for folder in listed(folders)[keep_runs:] if folder.removable] + abandoned(folders, store)
        if not old:
            return 0
        removed = sum(not result.error for result in store.delete_many([key for f in old for key in f.removable]))
        logger.info("workspace: removed %d files of %d old runs of %s", removed, len(old), repository)
        return removed

    def repositories(self) -> list[str]:
        """Return the names of the folders of repositories. The folder may also contain others."""
        folders, _ = self._store().list_level()
        return [folder.rstrip("/") for folder in folders]

    def listed_runs(self, repository: str) -> Iterator[str]:
        """Yield the keys of the runs of a repository whose store listing ended, newest first.

        Manifests are read one by one, so that finding the newest run costs the same among many runs. A run with a
        damaged manifest is skipped with a warning.
        """
        for folder in listed(run_folders(self._store(), repository).values()):
            try:
                self.manifest(folder.run_key, LISTING)
            except CorruptFileError as error:
                logger.warning("workspace: skipping run %s: %s", folder.run_key, error.message)
            except InputOrderError:
                continue  # written by an older version, or removed since the listing
            else:
                yield folder.run_key

    def last_listed(self, repository: str, *, except_run: str = "") -> int | None:
        """Return the number of objects in the newest store listing of a repository, None without one."""
        newest = next((key for key in self.listed_runs(repository) if key != except_run), "")
        return self.manifest(newest, LISTING).rows if newest else None

    def exists(self) -> bool:
        """Return whether a local folder exists. Other workspaces need no folder."""
        return not self.url.startswith("file://") or Path(self.url.removeprefix("file://")).is_dir()

    def keep(
        self,
        spark: SparkSession,
        run_key: str,
        stage: str,
        output: StageOutput,
        schema: StructType | str | None = None,
    ) -> Dataset:
        """Compute and write a stage, and read it back, because a stage must not be computed twice within one run.

        ``schema`` is the schema to read it with, if it is not the DataFrame's own. Raise ``InputOrderError`` if another
        process wrote the stage of this run at the same time, and the errors of ``write`` and ``read``.
        """
        written = self.write(spark, run_key, stage, output)
        dataset = self.read(spark, run_key, stage, schema or output.dataframe.schema)
        if dataset.manifest.materialization_id != written.materialization_id:
            raise InputOrderError(
                f"{stage} of run {run_key} was written by another process while this one wrote it",
                remedy="Find the other run of this partition (in the Dagster UI or on another machine). Wait "
                "until it ends, then run again",
            )
        return dataset

    def record_mark(self, run_key: str, mark_id: str, digest: str) -> None:
        """Record the digest of a mark that was made from the stages of this run."""
        self._store().put(f"{run_key}/{MARK_RECORD}", MarkOfRun(mark_id, digest).to_json())

    def has_made(self, run_key: str, mark_id: str, digest: str) -> bool:
        """Return whether a mark with exactly this digest was made from the stages of this run."""
        key = f"{run_key}/{MARK_RECORD}"
        try:
            recorded = MarkOfRun.from_json(self._store().read(key), key)
        except (ObjectNotFoundError, CorruptFileError) as error:
            logger.info("workspace: no record that mark %s was made from run %s: %s", mark_id, run_key, error.message)
            return False
        return recorded == MarkOfRun(mark_id, digest)

    def remove(self, run_key: str) -> None:
        """Remove all files of a run, including its manifests."""
        store = self._store()
        store.delete_many([key for batch in store.list(f"{run_key}/") for key in batch.column("address").to_pylist()])

    def folder(self, run_key: str, stage: str) -> str:
        """Return the URL of the folder of a stage, without a final slash."""
        return f"{self.url}/{run_key}/{stage}"

    def _store(self) -> ObjectStore:
        """Return the workspace as an object store. Create a local folder that does not exist."""
        if self.url.startswith("file://"):
            # The path as it is: neither the store nor Hadoop decodes ``%20``.
            Path(self.url.removeprefix("file://")).mkdir(parents=True, exist_ok=True)
        return open_store(StoreLocation(self.url.replace("s3a://", "s3://", 1)))


def _fits_here(spark: SparkSession, manifest: DatasetManifest) -> bool:
    """Return whether this process reads the files of a stage itself."""
    is_partitioned = any("/" in name for name in manifest.files)
    return is_small(spark) and sum(manifest.files.values()) <= _MOST_BYTES_HERE and not is_partitioned
