"""Gathers the evidence for the checks of a mark, from its stages, the server and earlier marks (rules 1, 8 and 12).

Runs once before a mark is written, and once before the sweep of a mark that lakeFS's own client made. A fact that
cannot be read is ``Unknown`` or names what is unread; it is never replaced by a value that would pass.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta

from lakefs_gc.engine.collect.listing.foreign_names import (
    CHOSEN_NAME,
    CHOSEN_NAMES,
    EXAMPLE_AT_ROOT,
    MARKED_AT_ROOT,
    NOT_LAKEFS,
    NOT_LAKEFS_BYTES,
    is_in_whole_bucket,
    unrecognized_name_facts,
    uses_root,
)
from lakefs_gc.engine.collect.references.active_ranges import METADATA_FOLDER
from lakefs_gc.engine.decide.marking.checks import (
    ChosenNames,
    EarlierMark,
    Evidence,
    UnreadRepositories,
    protections_from_json,
)
from lakefs_gc.engine.decide.marking.head_sample import head_sample
from lakefs_gc.engine.decide.marking.listed_otherwise import listed_otherwise
from lakefs_gc.engine.decide.missing import UNLISTED
from lakefs_gc.engine.input_order import check_alike, check_inputs, check_made_from
from lakefs_gc.engine.records.check import RULES_NOT_LOOSER, Unknown
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.stored_marks import list_marks, made_by_us, read_mark
from lakefs_gc.engine.run import GCRun, RunContext, refuse_another_repository
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import CorruptFileError, MarkError
from lakefs_gc.formats.gc_rules import rules_from_record
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.units import EPOCH

logger = logging.getLogger(__name__)


def gather_evidence(
    context: RunContext,
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
) -> Evidence:
    """Return the evidence for the checks of a mark. One small Spark job searches the candidates for head objects.

    In a whole bucket with candidates at its root, another one searches the references (``foreign_names.uses_root``).

    Raises ``InputOrderError`` if the stages are out of order, of different runs, or not made from each other (rule 1):
    facts about another materialization prove nothing about this one.
    """
    refuse_another_repository(context.server, run)
    store = context.open_store(run.store)
    check_alike("unmatched", candidates, missing)
    check_inputs(run.run_key, listing, uncommitted, active_ranges, committed, kept, candidates)
    check_inputs(run.run_key, listing, foreign_references, candidates)
    check_inputs(run.run_key, committed, missing)
    check_made_from(candidates, listing, uncommitted, active_ranges, committed, foreign_references, kept)
    check_made_from(kept, missing)  # which sizes may hide an object, and what is lost, are facts of one look-up
    facts, not_lakefs = candidates.manifest.facts, unrecognized_name_facts(candidates)
    newest_us = facts["newest_us"]
    # The protections that the stages applied, which may differ from the settings of this process.
    prefixes = {"path_prefixes": kept.manifest.facts.get("path_prefixes", [])}
    protections = active_ranges.manifest.facts.get("protections", {}) | prefixes
    heads: dict[str, str] = uncommitted.manifest.facts["heads"]
    return Evidence(
        cutoff=run.cutoff,
        # The share is one of lakeFS's objects: objects of other applications would make any mark look small.
        listed=listing.manifest.rows - not_lakefs[NOT_LAKEFS],
        listed_bytes=listing.manifest.facts["size_bytes"] - not_lakefs[NOT_LAKEFS_BYTES],
        marked=candidates.manifest.rows,
        marked_bytes=facts["size_bytes"],
        newest_marked=EPOCH + timedelta(microseconds=newest_us) if newest_us else None,
        committed=committed.manifest.rows,
        has_metadata=committed.manifest.rows > 0 or _has_metadata(store),
        rules=rules_from_record(active_ranges.manifest.facts.get("rules")),
        earlier=_mark_before(store, run, mark_id),
        heads=head_sample(context, run, heads, candidates),
        lost=missing.manifest.facts["lost"],
        lost_to_our_sweeps=missing.manifest.rows - missing.manifest.facts["lost"],
        unlisted=missing.manifest.facts[UNLISTED],
        listed_otherwise=listed_otherwise(context, missing, candidates),
        others=_other_repositories(foreign_references),
        shielded=kept.manifest.facts["shielded"],
        server_missed=_missed_by_server(active_ranges),
        chosen_names=_chosen_names(run, candidates, committed, uncommitted),
        protections=protections_from_json(protections),
    )


def _other_repositories(foreign_references: Dataset) -> UnreadRepositories | Unknown:
    facts = foreign_references.manifest.facts
    if facts["switched_off"]:
        return Unknown(
            "other repositories were not read, because safety.check_foreign_references is off. They may refer to "
            "objects of this repository"
        )
    return UnreadRepositories(facts["unreadable"], facts["not_asked"])


def _missed_by_server(active_ranges: Dataset) -> int | Unknown:
    missed: int | None = active_ranges.manifest.facts.get("missed_by_rules")
    if missed is None:
        return Unknown(
            "not all commits were read, because the repository has more than safety.max_commits. Commits that the "
            "server omits, or whose metarange is missing, could lose their objects (raise the limit; each commit takes "
            "about 1 kB of the driver's memory)"
        )
    return missed


def _chosen_names(run: GCRun, candidates: Dataset, *references: Dataset) -> ChosenNames | Unknown:
    """Return which candidates may be of another program. ``references`` are read only if some are at the root."""
    if not is_in_whole_bucket(run):
        return ChosenNames()
    facts = candidates.manifest.facts
    if not {CHOSEN_NAMES, MARKED_AT_ROOT} <= facts.keys():
        return Unknown(
            "an older version of lakefs-gc did not count the marked objects whose names lakeFS did not generate, or "
            "those at the root (start a new run)"
        )
    names = ChosenNames(facts[CHOSEN_NAMES], facts[CHOSEN_NAME] or "")
    if not facts[MARKED_AT_ROOT] or uses_root(*references):
        return names
    return replace(names, at_root=facts[MARKED_AT_ROOT], example_at_root=facts[EXAMPLE_AT_ROOT])


def _has_metadata(store: ObjectStore) -> bool:
    _, files = store.list_level(METADATA_FOLDER)
    return bool(files.num_rows)


def _mark_before(store: ObjectStore, run: GCRun, mark_id: str) -> EarlierMark | Unknown | None:
    """Return the newest earlier mark of lakefs-gc whose rules were in force; Unknown if a newer mark is unreadable.

    A mark that failed the check of its rules and was never swept is skipped. Otherwise a second mark with the same
    looser rules would pass, because it would be compared with the first.
    """
    for earlier_id in list_marks(store):
        if earlier_id == mark_id or not made_by_us(store, earlier_id):
            continue
        try:
            earlier = read_mark(store, run.repository, run.namespace, earlier_id)
        except (MarkError, CorruptFileError) as error:
            return Unknown(f"the rules of the previous mark {earlier_id} are unknown: {error.message}")
        was_blocked = any(check.name == RULES_NOT_LOOSER and not check.passed for check in earlier.checks)
        # Rules decide which objects are expired. A sweep of the others says nothing about them, be they a part of the
        # mark or all of it.
        swept = [MarkPaths.of(earlier_id).sweep_summary_of(only) for only in (Scope.all, Scope.expired)]
        if not was_blocked or (earlier.only.covers(Scope.expired) and store.stat_many(swept)):
            protections = protections_from_json(earlier.run.get("protections"))
            return EarlierMark(earlier_id, rules_from_record(earlier.rules), protections)
    return None
