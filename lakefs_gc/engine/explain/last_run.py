"""What the newest run of a repository has stored in the workspace about objects, read without Spark.

It says what an answer cannot find out with a few requests: what other repositories reference, what was kept as a hidden
twin, and which commits of deleted branches the server retains.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.errors import InputOrderError, LakeFSGCError, ObjectNotFoundError
from lakefs_gc.formats.commits_csv import read_active_commits
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.open import open_store

_ARROW_ERRORS = (pa.ArrowException, OSError, ValueError)


@dataclass(frozen=True)
class LastRun:
    """The newest run that decided what is garbage, and its stages. ``run`` is None if the workspace has none."""

    run: GCRun | None
    manifests: dict[str, DatasetManifest] = field(default_factory=dict)
    workspace: Workspace | None = None

    @classmethod
    def of(cls, workspace: Workspace, repository: str, namespace: str) -> LastRun:
        """Find the newest run of a repository that has all stages up to its candidates."""
        for run_key in workspace.listed_runs(repository):
            stages = ("store_listing", "uncommitted", "active_ranges", "foreign_references", "kept", "candidates")
            try:
                manifests = {stage: workspace.manifest(run_key, stage) for stage in stages}
                run = GCRun.of(manifests["store_listing"])
            except LakeFSGCError:
                continue  # it failed, or is still in progress
            if run.namespace == namespace:
                return cls(run, manifests, workspace)
        return cls(None)

    @property
    def name(self) -> str:
        """The run and its time, for messages."""
        return f"run {self.run.run_key} of {self.run.started_at:%Y-%m-%d %H:%M} UTC" if self.run else "no run"

    def rows(self, stage: str, column: str, addresses: Collection[str]) -> dict[str, list[str]]:
        """Return the values of a column of a stage for each address that it has.

        Raises ``InputOrderError`` if the data of the stage is no longer in the workspace.
        """
        if self.workspace is None:
            raise InputOrderError("the workspace has no run of this repository")
        files = self.workspace.files_of(self.manifests[stage])
        store = open_store(files.store)
        found: dict[str, list[str]] = {}
        for key in files.keys:
            try:
                data = store.read(key)
                if len(data) != self.manifests[stage].files[key.rpartition("/data/")[2]]:
                    raise OSError(f"{key} has another size than it was written with")
                source = pa.BufferReader(data)
                table = pq.read_table(
                    source,
                    columns=list(dict.fromkeys(["address", column])),
                    filters=[("address", "in", sorted(addresses))],
                )
            except (ObjectNotFoundError, *_ARROW_ERRORS) as error:
                raise InputOrderError(
                    f"the data of {stage} of {self.name} cannot be read: {str(error)[:200]}", remedy="Start a new run"
                ) from None
            for row in table.to_pylist():
                found.setdefault(row["address"], []).append(str(row[column]))
        return found

    def facts(self, stage: str) -> dict[str, Any]:
        """Return the facts of a stage. Empty without a run."""
        return self.manifests[stage].facts if self.run else {}

    def listed_commits(self, store: ObjectStore) -> list[str]:
        """Return the commits that the server listed as active for this run. Empty if no rules applied.

        Raises what reading the list raises.
        """
        run_id = self.facts("active_ranges").get("commits_run_id")
        if not run_id:
            return []
        key = f"_lakefs/retention/gc/commits/run_id={run_id}/commits.csv"
        commits: list[str] = read_active_commits(store.read(key), key).column("commit_id").to_pylist()
        return commits
