"""Backups in tests: ``back_up`` backs up a mark as the asset does."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from lakefs_gc.config import BackupSettings, Settings
from lakefs_gc.engine.records.backups.location import open_backup_location, read_backup
from lakefs_gc.engine.records.backups.manifest import Backup, BackupPaths
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.undo.backup import BackupResult, backup
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.collector import Collector


@dataclass
class BackedUp:
    """The result of a backup, and its rows by address."""

    result: BackupResult
    rows: dict[str, dict[str, str]]

    @property
    def outcomes(self) -> dict[str, str]:
        return {address: row["outcome"] for address, row in self.rows.items()}

    @property
    def proofs(self) -> set[str]:
        return {row["proof"] for row in self.rows.values() if row["proof"]}


@dataclass
class Backups:
    """A backup location: an empty folder or prefix."""

    location: StoreLocation

    @property
    def store(self) -> ObjectStore:
        return open_store(self.location)

    def settings(self, collector: Collector, **changes: object) -> Settings:
        section = BackupSettings.model_validate({"url": self.location.url, **changes})
        return collector.settings.model_copy(update={"backup": section})

    def back_up(self, spark: SparkSession, collector: Collector, mark: Mark, **changes: object) -> BackedUp:
        settings = self.settings(collector, **changes)
        output, result = backup(
            collector.context_with(backup=settings.backup),
            collector.repository.location,
            mark,
            open_backup_location(settings, collector.server),
            run_key=collector.run_key,
        )
        collector.workspace.write(spark, collector.run_key, "backup", output)
        rows = collector.dataset("backup").dataframe.collect()
        if len(rows) != len({row["address"] for row in rows}):
            raise ValueError("an object has more than one outcome")
        return BackedUp(result, {row["address"]: row.asDict() for row in rows})

    def copies(self, mark: Mark) -> dict[str, bytes]:
        """Return the content of every copy by address."""
        folder = BackupPaths(mark.repository, mark.mark_id).objects
        keys = [key for batch in self.store.list(folder) for key in batch.column("address").to_pylist()]
        return {key.removeprefix(folder): content for key, content in self.store.read_many(keys)}

    def manifest_of(self, mark: Mark) -> Backup:
        """Return the manifest of a complete backup. Raise ``BackupError`` if there is none."""
        return read_backup(self.store, BackupPaths(mark.repository, mark.mark_id))
