"""Find the run whose data a forecast can be computed from, and read a stored forecast. Needs no Spark."""

from __future__ import annotations

import io
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from lakefs_gc.engine.forecast.outlook import UNREADABLE, Branch, Forecast, Row, Total
from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.errors import CorruptFileError, InputOrderError, ObjectNotFoundError
from lakefs_gc.formats.gc_rules import rules_from_record
from lakefs_gc.formats.report import MARKS_FOLDER
from lakefs_gc.storage.base import ObjectStore, written_at
from lakefs_gc.storage.open import open_store

STAGE = "forecast"
INPUTS = ("store_listing", "uncommitted", "foreign_references", "unmatched", "kept")
"""The stages that a forecast is computed from."""
OLDEST_RUN = timedelta(days=7)
"""A run that is older than this is not used, because its listing is no longer the content of the store."""

_CHANGES = ("/lakefs-gc/ledger/", "/lakefs-gc/restores/")


def run_to_forecast(workspace: Workspace, repository: str, store: ObjectStore, namespace: str) -> str:
    """Return the key of the newest run if a forecast can be computed from it. Empty: the store must be listed anew.

    The run must have all of ``INPUTS`` and be newer than ``OLDEST_RUN``. No sweep or restore may have recorded anything
    in the namespace since its listing began.
    """
    run_key = next(workspace.listed_runs(repository), "")
    if not run_key:
        return ""
    try:
        listing, *_ = [workspace.manifest(run_key, stage) for stage in INPUTS]
        run = GCRun.of(listing)
    except (InputOrderError, CorruptFileError):
        return ""
    is_recent = store.now() - run.started_at <= OLDEST_RUN
    return run_key if is_recent and run.namespace == namespace and not _changed_since(store, run.started_at) else ""


def _changed_since(store: ObjectStore, since: datetime) -> bool:
    for batch in store.list(MARKS_FOLDER):
        for key, at in written_at(batch).items():
            if at >= since and any(folder in key for folder in _CHANGES):
                return True
    return False


def stored_forecast(workspace: Workspace, run_key: str) -> Forecast | None:
    """Return the forecast that a run stored; None if it stored none, or its files were removed or changed."""
    try:
        manifest = workspace.manifest(run_key, STAGE)
        files = workspace.files_of(manifest)
        store = open_store(files.store)
        tables = []
        for key in files.keys:
            data = store.read(key)
            if len(data) != manifest.files[key.rpartition("/data/")[2]]:
                return None
            if data:
                tables.append(pq.read_table(io.BytesIO(data)))
    except (InputOrderError, ObjectNotFoundError, CorruptFileError, pa.ArrowException):
        return None
    return forecast_of(manifest, pa.concat_tables(tables) if tables else pa.table({}))


def forecast_of(manifest: DatasetManifest, table: pa.Table) -> Forecast:
    """Return a stored forecast. ``table`` has the rows of the stage, and ``manifest`` its facts."""
    rows, unreadable = [], []
    for row in table.to_pylist():
        if row["held_by"] == UNREADABLE:
            unreadable.append(str(row["file"]))
            continue
        total = Total(row["objects"], row["size_bytes"])
        rows.append(Row(row["held_by"], row["branch"], tuple(row["ages"]), row["new_days"], row["unseen"], total))
    facts = manifest.facts
    branches = [
        Branch(
            branch["name"],
            branch["head"],
            branch["idle_days"],
            None if branch["objects"] is None else Total(branch["objects"], branch["size_bytes"]),
        )
        for branch in facts["branches"]
    ]
    return Forecast(
        tuple(facts["classes"]), rows, branches, rules_from_record(facts["rules"]), facts, tuple(sorted(unreadable))
    )
