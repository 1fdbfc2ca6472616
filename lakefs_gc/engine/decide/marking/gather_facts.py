"""Gathers what a mark shows people beyond its manifest (``records.mark_facts``). No decision is made from it."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import functions as F

from lakefs_gc.config import SafetyParameters, Settings, SweepSettings
from lakefs_gc.engine.collect.listing.age_buckets import bytes_by_age
from lakefs_gc.engine.decide.marking.marked_paths import FoundPaths
from lakefs_gc.engine.decide.matching.unmatched import NEWER_BYTES, NEWER_OBJECTS, UNREFERENCED, UNREFERENCED_BYTES
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_facts import Amount, EarlierNumbers, Funnel, LoweredSetting, MarkFacts
from lakefs_gc.engine.records.mark_parts import Overview
from lakefs_gc.engine.records.stored_marks import list_marks, made_by_us, read_mark, ready_at
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import CorruptFileError, MarkError
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.units import human_duration

LESS_SAFE_IF_LARGER = (
    "max_clock_skew_seconds",
    "max_marked_share",
    "share_counts_from_objects",
    "share_counts_from_bytes",
    "max_mark_age_days",
)
LESS_SAFE_IF_SMALLER = ("min_age_hours", "longest_commit_minutes", "head_sample_objects", "max_commits")


def gather_facts(
    context: RunContext,
    run: GCRun,
    mark: Mark,
    contents: Overview,
    *,
    listing: Dataset,
    kept: Dataset,
    candidates: Dataset,
    found: FoundPaths | None = None,
) -> MarkFacts:
    """Return the facts beside a mark, from the stages that it was made from.

    The sample has the examples with paths instead of expired objects without paths.
    """
    facts, settings = candidates.manifest.facts, context.settings
    return MarkFacts(
        mark_id=mark.mark_id,
        digest=mark.digest,
        started_at=run.started_at,
        min_age_seconds=run.min_age_seconds,
        funnel=_funnel(mark, listing, kept, candidates),
        listed_by_age=bytes_by_age(listing.manifest.facts),
        marked_by_age=bytes_by_age(facts),
        never_committed_by_age=bytes_by_age(facts, schemas.NEVER_COMMITTED),
        run_seconds=(mark.created_at - run.started_at).total_seconds(),
        earlier=_earlier(context.open_store(run.store), mark),
        lowered=tuple(lowered_settings(settings, run)),
        backup_url=settings.backup.url,
        ready_at=ready_at(mark, settings.safety),
        objects_per_request=settings.sweep.objects_per_request,
        largest_prefixes=contents.largest_prefixes,
        sample=_sample(contents, found.examples if found else ()),
        paths=found.paths if found else None,
    )


def _sample(contents: Overview, with_paths: tuple[dict[str, str | int], ...]) -> tuple[dict[str, str | int], ...]:
    others = (row for row in contents.sample if not with_paths or row.get("reason") != schemas.EXPIRED)
    return (*with_paths, *others)


def _funnel(mark: Mark, listing: Dataset, kept: Dataset, candidates: Dataset) -> Funnel | None:
    """Return what became of each listed object; None if the stages were written by a version that did not count it."""
    facts = candidates.manifest.facts
    if any(facts.get(name) is None for name in (NEWER_OBJECTS, UNREFERENCED)) or mark.not_lakefs is None:
        return None
    listed = Amount(listing.manifest.rows, listing.manifest.facts["size_bytes"])
    newer, unreferenced = (
        Amount(facts[NEWER_OBJECTS], facts[NEWER_BYTES]),
        Amount(facts[UNREFERENCED], facts[UNREFERENCED_BYTES]),
    )
    marked, not_lakefs = Amount(mark.candidates, mark.candidate_bytes or 0), Amount(*mark.not_lakefs)
    # Without a part, every unreferenced object is either marked or kept. An object may be kept for two reasons.
    held = _distinct(kept) if mark.only.is_part else unreferenced - marked
    because = {
        why: Amount(kept.manifest.facts[name], kept.manifest.facts[f"{name}_bytes"])
        for why, name in ((schemas.KEPT_UNVERIFIED, "shielded"), (schemas.PROTECTED, "protected"))
    }
    rows = Amount(kept.manifest.rows, kept.manifest.facts["size_bytes"])
    because = {schemas.SHOWN_BY_BRANCH: rows - because[schemas.KEPT_UNVERIFIED] - because[schemas.PROTECTED]} | because
    return Funnel(
        listed=listed,
        live=listed - newer - unreferenced - not_lakefs,
        newer=newer,
        kept=held,
        not_lakefs=not_lakefs,
        other_part=unreferenced - marked - held,
        marked=marked,
        kept_because={why: amount for why, amount in because.items() if amount.objects},
    )


def _distinct(kept: Dataset) -> Amount:
    once = kept.dataframe.groupBy("address").agg(F.max("size").alias("size"))
    with driver_errors():
        (row,) = once.agg(F.count("*").alias("objects"), F.coalesce(F.sum("size"), F.lit(0)).alias("size")).collect()
    return Amount(row["objects"], row["size"])


def _earlier(store: ObjectStore, mark: Mark) -> EarlierNumbers | None:
    """Return the numbers of the newest readable mark before this one that is of the same part."""
    for earlier_id in list_marks(store):
        if earlier_id == mark.mark_id or not made_by_us(store, earlier_id):
            continue
        try:
            earlier = read_mark(store, mark.repository, mark.namespace, earlier_id)
        except (MarkError, CorruptFileError):
            continue
        if earlier.only is mark.only and earlier.created_at < mark.created_at:
            marked = Amount(earlier.candidates, earlier.candidate_bytes or 0)
            return EarlierNumbers(earlier_id, earlier.created_at, marked, earlier.counts.get("store_listing", 0))
    return None


def lowered_settings(settings: Settings, run: GCRun | None = None) -> Iterator[LoweredSetting]:
    """Yield the settings that make a mark or its sweep less safe than the defaults."""
    safety, default = settings.safety, SafetyParameters()
    for names, sign in ((LESS_SAFE_IF_LARGER, 1), (LESS_SAFE_IF_SMALLER, -1)):
        for name in names:
            value, usual = getattr(safety, name), getattr(default, name)
            if sign * (value - usual) > 0:
                yield LoweredSetting(f"safety.{name}", *(_text(name, each) for each in (value, usual)))
    if run is not None and run.min_age_seconds < run.grace_period_seconds:
        yield LoweredSetting(
            "minimum age below the server's grace period",
            human_duration(run.min_age_seconds),
            human_duration(run.grace_period_seconds),
        )
    if not safety.check_foreign_references:
        yield LoweredSetting("safety.check_foreign_references", "false", "true")
    if safety.repositories_not_read:
        yield LoweredSetting("safety.repositories_not_read", ", ".join(safety.repositories_not_read), "none")
    sweep, usual = settings.sweep, SweepSettings()
    if sweep.max_look_age_minutes > usual.max_look_age_minutes:
        yield LoweredSetting(
            "sweep.max_look_age_minutes", f"{sweep.max_look_age_minutes:g}", f"{usual.max_look_age_minutes:g}"
        )
    if sweep.policy != usual.policy:
        yield LoweredSetting("sweep.policy", sweep.policy, usual.policy)
    if sweep.delete_versions:
        yield LoweredSetting("sweep.delete_versions", "true", "false")


def _text(name: str, value: float) -> str:
    return human_duration(value * 3600) if name.endswith("_hours") else f"{value:g}"
