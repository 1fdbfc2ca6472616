"""What the brakes of a mark are evaluated from, gathered from its stages, the server and the marks before."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.active_ranges import METADATA_FOLDER
from lakefs_gc.engine.brakes import RULES_NOT_LOOSER, Evidence, protections_from_json, rules_from_json
from lakefs_gc.engine.dataset import Dataset
from lakefs_gc.engine.local_rows import local_rows
from lakefs_gc.engine.marks import Mark, MarkPaths, list_marks, read_mark
from lakefs_gc.engine.run import GCRun, check_alike, check_inputs, check_made_from
from lakefs_gc.engine.workers import driver_errors
from lakefs_gc.errors import LakeFSGCError, RepositoryNotFoundError
from lakefs_gc.server import LakeFSServer
from lakefs_gc.storage.base import ObjectStore

logger = logging.getLogger(__name__)

_BRANCHES_SAMPLED = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def gather_evidence(
    spark: SparkSession,
    run: GCRun,
    *,
    listing: Dataset,
    uncommitted: Dataset,
    active_ranges: Dataset,
    committed: Dataset,
    foreign_references: Dataset,
    kept: Dataset,
    missing: Dataset,
    candidates: Dataset,
    mark_id: str,
    server: LakeFSServer,
    store: ObjectStore,
    head_sample_objects: int,
) -> Evidence:
    """Everything that is known of a mark before it is written; one small Spark job looks for heads among it.

    Raises ``InputOrderError`` for stages that are out of order, of different runs, or not made from each other (rule
    1): what one of them says of another's materialization is no evidence.
    """
    check_alike("unmatched", candidates, missing)
    check_inputs(run.run_key, listing, uncommitted, active_ranges, committed, kept, candidates)
    check_inputs(run.run_key, listing, foreign_references, candidates)
    check_inputs(run.run_key, committed, missing)
    check_made_from(candidates, listing, uncommitted, active_ranges, committed, foreign_references, kept)
    facts = candidates.manifest.facts
    newest_us = facts["newest_us"]
    shown, unread = _shown_by_heads(run, uncommitted.manifest.facts["heads"], server, head_sample_objects)
    earlier = _mark_before(store, run, mark_id)
    # By what the stages went, whatever is configured where the mark is made.
    prefixes = {"path_prefixes": kept.manifest.facts.get("path_prefixes", [])}
    protections = active_ranges.manifest.facts.get("protections", {}) | prefixes
    return Evidence(
        cutoff=run.cutoff,
        listed=listing.manifest.rows,
        listed_bytes=listing.manifest.facts["size_bytes"],
        marked=candidates.manifest.rows,
        marked_bytes=facts["size_bytes"],
        newest_marked=_EPOCH + timedelta(microseconds=newest_us) if newest_us else None,
        committed=committed.manifest.rows,
        has_metadata=committed.manifest.rows > 0 or _has_metadata(store),
        rules=rules_from_json(active_ranges.manifest.facts.get("rules")),
        earlier_rules=rules_from_json(earlier.rules) if earlier else None,
        earlier_mark_id=earlier.mark_id if earlier else "",
        heads_sampled=len(shown),
        heads_marked=_marked_among(spark, shown, candidates),
        lost=missing.manifest.facts["lost"],
        lost_to_our_sweeps=missing.manifest.rows - missing.manifest.facts["lost"],
        heads_unread=unread,
        unreadable=foreign_references.manifest.facts["unreadable"],
        shielded=kept.manifest.facts["shielded"],
        server_missed=active_ranges.manifest.facts.get("missed_by_rules", 0),
        protections=protections_from_json(protections),
        earlier_protections=protections_from_json(earlier.run.get("protections") if earlier else None),
    )


def _has_metadata(store: ObjectStore) -> bool:
    _, files = store.list_level(METADATA_FOLDER)
    return bool(files.num_rows)


def _shown_by_heads(
    run: GCRun, heads: dict[str, Any], server: LakeFSServer, amount: int
) -> tuple[list[str], dict[str, str]]:
    """Addresses that some branches show, relative to the namespace; and each branch that cannot be asked, and why."""
    if not amount or not heads:
        return [], {}
    # Spread over the names, the same ones for the same branches.
    branches = sorted(heads)[:: max(1, len(heads) // _BRANCHES_SAMPLED)][:_BRANCHES_SAMPLED]
    each = min(1000, max(1, amount // len(branches)))
    found: list[str] = []
    gone: dict[str, str] = {}
    unread: dict[str, str] = {}
    for branch in branches:
        try:
            urls = server.shown_objects(run.repository, branch, each)
        except RepositoryNotFoundError as error:
            gone[branch] = error.message  # deleted since the run began
            continue
        except LakeFSGCError as error:
            logger.warning("branch %s cannot be sampled: %s", branch, error.message)
            unread[branch] = error.message
            continue
        keys = map(run.known_folders.key_or_outside, urls)
        found += [key for key in keys if key is not None]
    # All of them gone is no sample.
    return found, gone if len(gone) == len(branches) else unread


def _marked_among(spark: SparkSession, shown: list[str], candidates: Dataset) -> list[str]:
    if not shown or not candidates.manifest.rows:
        return []
    sample = local_rows(spark, [(address,) for address in shown], "address string").distinct()
    with driver_errors():
        rows = candidates.dataframe.select("address").join(F.broadcast(sample), "address", "left_semi").collect()
    return sorted(row["address"] for row in rows)


def _mark_before(store: ObjectStore, run: GCRun, mark_id: str) -> Mark | None:
    """The newest mark of ours before this one by whose rules somebody has meant to collect.

    A mark that was stopped for its rules, and never swept, is passed over: or a second try would be let through.
    """
    for earlier_id in list_marks(store):
        if earlier_id == mark_id:
            continue
        try:
            earlier = read_mark(store, run.repository, run.namespace, earlier_id)
        except LakeFSGCError as error:
            logger.warning("mark %s cannot be read: %s", earlier_id, error.message)
            continue
        if earlier.made_by != "lakefs-gc":
            continue
        stopped = any(brake.name == RULES_NOT_LOOSER and not brake.passed for brake in earlier.brakes)
        if not stopped or store.stat_many([MarkPaths.of(earlier_id).sweep_summary]):
            return earlier
    return None
