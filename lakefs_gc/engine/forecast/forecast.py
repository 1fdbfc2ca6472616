"""The stage ``forecast``: what keeps the objects of a run's listing, for all retention rules at once.

It reads what the run stored (the listing, and what other references keep), the commits as the server shows them now,
and all metadata files, most of them from the range cache. Its rows are few, whatever the number of objects.
``outlook`` answers questions about rules from them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from lakefs_gc.engine.collect.listing.age_buckets import bytes_by_age
from lakefs_gc.engine.collect.references.commit_graph import CommitGraph
from lakefs_gc.engine.forecast.commit_holds import (
    LISTED,
    PROTECTED,
    Hold,
    classes_of,
    hold_commits,
    whole_days,
)
from lakefs_gc.engine.forecast.held_files import held_files
from lakefs_gc.engine.forecast.held_objects import (
    KEPT,
    OTHER_REPOSITORY,
    STAGED,
    forecast_table,
    references,
    shown_by_heads,
)
from lakefs_gc.engine.forecast.outlook import PROTECT_DAYS, Total
from lakefs_gc.engine.input_order import check_inputs
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.errors import SafetyError
from lakefs_gc.formats.commits_csv import read_active_commits
from lakefs_gc.formats.gc_rules import GCRules, rules_to_record
from lakefs_gc.lakefs.protections import protected_commits, protected_since


def forecast(
    context: RunContext,
    run: GCRun,
    *,
    listing: Dataset,
    uncommitted: Dataset,
    foreign_references: Dataset,
    unmatched: Dataset,
    kept: Dataset,
    ruled_branches: Collection[str] = (),
) -> StageOutput:
    """Return how the objects of the listing are held. Columns: ``schemas.FORECAST``.

    ``ruled_branches`` are branches that may get their own rule, besides those that have one. Only for these branches a
    rule can be evaluated. Ages count from the start of the run.

    Raises ``InputOrderError`` (rule 1), ``SafetyError`` for more than ``safety.max_commits`` commits, and what reading
    the store and calling the server raise. A metadata file that is missing or damaged is a row ``UNREADABLE``.
    """
    began_at = context.clock()
    check_inputs(run.run_key, listing, uncommitted, unmatched, kept)
    check_inputs(run.run_key, listing, foreign_references)
    server, safety = context.server, context.safety
    rules = server.retention_rules(run.repository)
    heads, tags = server.heads_of(run.repository), dict(server.tags(run.repository))
    graph = CommitGraph(safety.max_commits)
    graph.add_history_of(server, run.repository, [*heads.values(), *tags.values()])
    listed: list[str] = []
    if rules is not None and graph.complete:
        listed = _commits_on_list(context, run)
        if len(listed) > safety.max_commits:
            graph.complete = False
        else:
            graph.add_history_of(server, run.repository, (c for c in listed if c not in graph.commits))
    if not graph.complete:
        raise SafetyError(
            f"{run.repository} has more than {safety.max_commits} commits, so it is unknown how long each is kept",
            remedy="Raise safety.max_commits (each takes about 1 kB of the driver's memory)",
        )
    classes = classes_of(heads, {*ruled_branches, *(rules.branches if rules else ())})
    holds = hold_commits(graph.commits, heads, classes, run.started_at)
    since = protected_since(safety.protect, run.started_at)
    if since is not None:
        for commit_id, hold in holds.items():
            days = whole_days(since, graph.commits[commit_id].creation_date)
            holds[commit_id] = replace(hold, ages=(*hold.ages, days if days < 0 else None))
        classes = (*classes, PROTECT_DAYS)
    lasting = safety.protect.model_copy(update={"days": 0})
    for commit_id in protected_commits(graph.commits, heads, tags, lasting, run.started_at):
        holds[commit_id] = replace(holds[commit_id], endless=PROTECTED)
    for commit_id in listed:
        if rules is not None and not _is_active(holds[commit_id], classes, rules):
            holds[commit_id] = replace(holds[commit_id], endless=LISTED)
    by_metarange: dict[str, Hold] = {}
    for commit_id, hold in holds.items():
        metarange = graph.commits[commit_id].meta_range_id
        if metarange:
            by_metarange[metarange] = hold.merged(by_metarange[metarange]) if metarange in by_metarange else hold
    numbers = {branch: number for number, branch in enumerate(sorted(heads))}
    files = held_files(
        context,
        run,
        by_metarange,
        numbers,
        classes=len(classes),
        protected_since=None if since is None else (len(classes) - 1, since),
    )
    table = forecast_table(
        run,
        references(context, run, files, len(classes)),
        len(classes),
        listing=listing,
        others={STAGED: uncommitted, OTHER_REPOSITORY: foreign_references, KEPT: kept},
        named_at_root=unmatched.manifest.facts["named_at_root"],
    )
    metaranges = {branch: graph.commits[head].meta_range_id for branch, head in heads.items()}
    shown = shown_by_heads(context, run, {name for name in metaranges.values() if name})
    return StageOutput(
        dataframe=table,
        began_at=began_at,
        facts={
            "as_of": run.started_at.isoformat(),
            "cutoff": run.cutoff.isoformat(),
            "rules": rules_to_record(rules),
            "classes": list(classes),
            "branches": [
                {
                    "name": branch,
                    "head": heads[branch],
                    "idle_days": whole_days(run.started_at, graph.commits[heads[branch]].creation_date),
                    **_shown(shown, metaranges[branch]),
                }
                for branch in numbers
            ],
            "commits_seen": len(graph.commits),
            "metadata": _metadata_facts(files.manifest.facts),
            "other_repositories_not_read": sorted(
                {*foreign_references.manifest.facts["unreadable"], *foreign_references.manifest.facts["not_asked"]}
            ),
            "other_repositories_switched_off": foreign_references.manifest.facts["switched_off"],
        },
        inputs={
            d.manifest.stage: d.manifest.materialization_id for d in (listing, uncommitted, foreign_references, kept)
        },
    )


def _commits_on_list(context: RunContext, run: GCRun) -> list[str]:
    """Return the commits that the server lists as active. Some of them only this list shows to a client."""
    hours = context.safety.prepare_timeout_hours
    prepared = context.server.prepare_commits(run.repository, timeout_seconds=hours * 3600)
    key = run.key_of(prepared.location)
    commits: list[str] = read_active_commits(context.open_store(run.store).read(key), key)["commit_id"].to_pylist()
    return commits


def _is_active(hold: Hold, classes: Iterable[str], rules: GCRules) -> bool:
    limits = (0 if name == PROTECT_DAYS else rules.retention_days(name) for name in classes)
    return bool(hold.heads or hold.endless) or any(
        age is not None and age < limit for age, limit in zip(hold.ages, limits, strict=True)
    )


def _shown(shown: Mapping[str, Total], metarange: str) -> dict[str, int | None]:
    """Return the objects of a head. None if a file of it could not be read."""
    if not metarange:
        return {**Total().to_facts()}
    total = shown.get(metarange)
    return dict.fromkeys(("objects", "size_bytes")) if total is None else {**total.to_facts()}


def _metadata_facts(measured: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "files": measured["files"],
        "unnamed_files": measured["unnamed_files"],
        "unnamed_bytes": measured["unnamed_bytes"],
        "unnamed_bytes_by_age": bytes_by_age(measured),
    }
