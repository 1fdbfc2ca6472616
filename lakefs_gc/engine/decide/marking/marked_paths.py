"""The folders of the repository that lose objects, for the person who reviews a mark. No decision is made from them.

Expired objects have paths in commits that the rules no longer retain. Reading all of their ranges can cost as much as
the mark itself, so a part of them is read: the result states how many objects it explains. ``lakefs-gc explain`` finds
the paths of any object.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import zip_longest

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.references.commit_graph import CommitGraph
from lakefs_gc.engine.collect.references.commit_paths import paths_in_commits
from lakefs_gc.engine.records.mark_facts import Amount, MarkedPaths, PathGroup
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import rows_having
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.engine.workspace.known_commits import read_commits
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.formats.gc_rules import GCRules, rules_from_record
from lakefs_gc.lakefs.active_commits import Commit
from lakefs_gc.lakefs.retained_until import Retained, retained_until
from lakefs_gc.units import EPOCH

logger = logging.getLogger(__name__)

_MOST_COMMITS = 20_000
"""Commits that are read: 20 requests to the server."""
_MOST_METARANGES = 1_000
_MOST_RANGES = 200
"""Up to 20 MB each. Ten million entries take two cores about ten seconds."""
_MOST_FOLDERS = 20
_EXAMPLES_OF_FOLDER = 3
_MOST_EXAMPLES = 10
_OTHERS = "(other folders)"
_HIVE_PARTITIONS = r"(^|/)[^/=]+=[^/]*/.*$"
"""The partitions of a table: the folder of the table is what people know."""
_FOLDERS_OF_TABLES = r"(^|/)(_delta_log|metadata)/$"


@dataclass(frozen=True)
class FoundPaths:
    """The folders of the marked objects, and some objects of the largest ones, as ``mark_parts.Overview.sample``."""

    paths: MarkedPaths
    examples: tuple[dict[str, str | int], ...] = ()


def begin_marked_paths(context: RunContext, run: GCRun, candidates: Dataset, active_ranges: Dataset) -> None:
    """Look for the folders now, in another thread."""
    context.ahead.begin(run, _name(candidates), lambda: _marked_paths(context, run, candidates, active_ranges))


def marked_paths(context: RunContext, run: GCRun, candidates: Dataset, active_ranges: Dataset) -> FoundPaths:
    """Return the folders with the most bytes of marked objects. What cannot be read is stated, and fails nothing.

    The search may have been begun before (``begin_marked_paths``).
    """
    found: FoundPaths | None = context.ahead.take(run, _name(candidates))
    return found or _marked_paths(context, run, candidates, active_ranges)


def _marked_paths(context: RunContext, run: GCRun, candidates: Dataset, active_ranges: Dataset) -> FoundPaths:
    expired = Amount(candidates.manifest.facts["expired"], candidates.manifest.facts["expired_bytes"])
    rules = rules_from_record(active_ranges.manifest.facts.get("rules"))
    if not expired.objects or rules is None:
        return _none("No object of this mark was ever committed, so none has a path.")
    try:
        return _read_paths(context, run, candidates, active_ranges, rules, expired)
    except LakeFSGCError as error:
        logger.warning("the paths of the marked objects are unknown: %s", error.message)
        return _none(f"The paths are unknown: {error.message}")


def _name(candidates: Dataset) -> str:
    """Return the name of the search: a mark that is made again after a failure has other candidates."""
    return f"paths of {candidates.manifest.materialization_id}"


def _none(why: str) -> FoundPaths:
    return FoundPaths(MarkedPaths((), Amount(), why))


def _read_paths(
    context: RunContext,
    run: GCRun,
    candidates: Dataset,
    active_ranges: Dataset,
    rules: GCRules,
    expired: Amount,
) -> FoundPaths:
    server, repository = context.server, run.repository
    heads = server.heads_of(repository)
    known = read_commits(context.open_store(context.workspace.range_cache.location), run.store.folder_url)
    graph = CommitGraph(min(context.safety.max_commits, _MOST_COMMITS), known)
    refs = [*heads.values(), *dict(server.tags(repository)).values()]
    graph.add_history_of(server, repository, refs)
    if not graph.complete:
        why = f"the repository has more than {graph.max_commits:,} commits"
        return _none(f"The paths were not looked up, because {why}.")
    commits = graph.reached_from(refs)
    retained = retained_until(commits.values(), heads, rules)
    newest = sorted(
        _expired(commits.values(), retained, run), key=lambda commit: (commit.creation_date, commit.id), reverse=True
    )
    # The least number is the last commit.
    numbers: dict[str, str] = {}
    for number, commit in enumerate(newest):
        numbers.setdefault(commit.meta_range_id, f"{number:09d}")
    metaranges = dict(list(numbers.items())[:_MOST_METARANGES])
    objects = rows_having(candidates.dataframe, "reason", schemas.EXPIRED)
    paths = paths_in_commits(
        context.compute,
        run.store,
        run.folders,
        metaranges,
        objects,
        skipped=active_ranges.dataframe,
        most_ranges=_MOST_RANGES,
    ).where(F.col("address").isNotNull())
    last = paths.groupBy("address").agg(F.min(F.struct("commit_id", "path")).alias("last"))
    example = F.struct("last", "address", "size", F.unix_micros("last_modified").alias("modified"))
    share = F.pmod(F.xxhash64("address"), F.lit(_EXAMPLES_OF_FOLDER))
    by_folder = (
        objects.join(last, "address")
        .withColumn("folder", _folder(F.col("last.path")))
        # With the sums of all folders. Before Spark 4.3 an observation would count rows twice that are sorted later.
        .rollup("folder")
        .agg(
            F.grouping("folder").alias("is_total"),
            F.count("*").alias("objects"),
            F.sum("size").alias("size"),
            # The least of each share is a different object, and one of them is the least of all.
            F.array(
                *(F.min(F.when(share == number, example)) for number in range(_EXAMPLES_OF_FOLDER)),
            ).alias("examples"),
        )
    )
    largest = by_folder.orderBy(F.desc("is_total"), F.desc("size"), "folder").limit(_MOST_FOLDERS + 2)
    with driver_errors():
        found = largest.collect()
    rows = [row for row in found if not row["is_total"]]
    with_path = sum((Amount(row["objects"], row["size"] or 0) for row in found if row["is_total"]), Amount())

    def last_commit(example: Row) -> dict[str, str]:
        commit = newest[int(example["last"]["commit_id"])]
        until = retained.get(commit.id)
        return {
            "commit_id": commit.id,
            "branch": until.branch if until else "",
            "rule": _rule(until, rules),
            "expired_on": f"{until.until:%Y-%m-%d}" if until else "",
        }

    groups, examples = [], []
    for row in rows[:_MOST_FOLDERS]:
        of_folder = sorted(filter(None, row["examples"]), key=lambda each: each["last"])
        expired_by = last_commit(of_folder[0])
        groups.append(
            PathGroup(
                folder=row["folder"] or "/",
                objects=row["objects"],
                size_bytes=row["size"],
                example=of_folder[0]["last"]["path"],
                committer=server.committer_of(repository, expired_by["commit_id"]),
                committed_at=commits[expired_by["commit_id"]].creation_date,
                **expired_by,
            )
        )
        examples.append([{**_sampled(each), **last_commit(each)} for each in of_folder])
    if len(rows) > _MOST_FOLDERS:
        rest = with_path - sum((Amount(group.objects, group.size_bytes) for group in groups), Amount())
        groups.append(PathGroup(_OTHERS, rest.objects, rest.size_bytes, "", "", "", None, "", "", ""))
    unknown = _unknown(expired, with_path, candidates.manifest.rows)
    return FoundPaths(MarkedPaths(tuple(groups), with_path, unknown), _of_all_folders(examples))


def _sampled(example: Row) -> dict[str, str | int]:
    return {
        "address": example["address"],
        "size": example["size"],
        "last_modified": str(EPOCH + timedelta(microseconds=example["modified"])),
        "reason": schemas.EXPIRED,
        "path": example["last"]["path"],
    }


def _of_all_folders(examples: Iterable[list[dict[str, str | int]]]) -> tuple[dict[str, str | int], ...]:
    """Return the first example of each folder, then the second ones, in the order of the folders."""
    turns = zip_longest(*examples)
    return tuple(each for turn in turns for each in turn if each)[:_MOST_EXAMPLES]


def _expired(commits: Iterable[Commit], retained: dict[str, Retained], run: GCRun) -> list[Commit]:
    return [
        commit
        for commit in commits
        if commit.meta_range_id and (commit.id not in retained or retained[commit.id].until <= run.started_at)
    ]


def _folder(path: Column) -> Column:
    """Return the folder of a path; for a file of a table that of the table."""
    folder = F.regexp_replace(path, r"[^/]*$", "")
    return F.regexp_replace(F.regexp_replace(folder, _HIVE_PARTITIONS, "$1"), _FOLDERS_OF_TABLES, "$1")


def _rule(retained: Retained | None, rules: GCRules) -> str:
    if retained is None:
        return "on no branch"
    name = retained.branch if retained.branch in rules.branches else "default"
    return f"{name}: {retained.retention_days} days"


def _unknown(expired: Amount, with_path: Amount, marked: int) -> str:
    sentences = []
    if missing := expired.objects - with_path.objects:
        sentences.append(
            f"The paths of {missing:,} of {expired.objects:,} expired objects are not shown: only deleted branches had "
            "them, or their metadata was not read."
        )
    if never := marked - expired.objects:
        sentences.append(f"{never:,} marked objects were never committed, so they have no path.")
    return " ".join(sentences)
