"""Compute the commits that the rules retain and the commits that users protect, whatever the server lists.

The server walks the history in an order that depends on commit ids, and omits commits that its own rules retain (see
``lakefs.active_commits``). This module applies the same rules to the commits that a client can see. A commit that no
branch and no tag reaches is visible only if the server lists it. ``active_ranges`` finds the content of such commits
that ``protect.days`` keeps.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from lakefs_gc.config import SafetyParameters
from lakefs_gc.engine.collect.references.commit_graph import CommitGraph
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark.compat import known_table, to_arrow
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.errors import IncompleteAnswerError, SafetyError
from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc.lakefs.active_commits import active_commits
from lakefs_gc.lakefs.models import Heads
from lakefs_gc.lakefs.protections import protected_commits

logger = logging.getLogger(__name__)

HEADS = "heads"
"""Fact: the branches whose commits were read, and their commits."""

_MAX_IN_FACTS = 20


@dataclass(frozen=True)
class KeptCommit:
    """A commit that is active although the server's list omits it. ``why`` is for people."""

    id: str
    metarange_id: str
    why: str


@dataclass(frozen=True)
class OwnCommits:
    """The commits that the server's list omits. ``facts`` says what was read."""

    missed: tuple[KeptCommit, ...]
    facts: Mapping[str, Any]


def own_active_commits(
    context: RunContext, run: GCRun, rules: GCRules, listed: DataFrame, graph: CommitGraph
) -> OwnCommits:
    """Compute the active and the protected commits that are not ``listed`` (columns ``commit_id``, ``metarange_id``).

    ``graph`` has the commits that are already known. The commits that are read are added to it. Raises
    ``IncompleteAnswerError`` if ``listed`` gives one of these commits another metarange, and ``SafetyError`` when
    commits must be protected but there are more than ``safety.max_commits``.
    """
    server, safety = context.server, context.safety
    # Tags first: a branch may be made of a tag that is then deleted. In the reverse case, the branch existed when the
    # server listed its active commits.
    tags = dict(server.tags(run.repository))
    heads = server.heads_of(run.repository)
    graph.add_history_of(server, run.repository, [*heads.values(), *tags.values()])
    if graph.complete:
        with driver_errors():
            known = known_table(listed)
            commits = to_arrow(listed.limit(safety.max_commits + 1)) if known is None else known
        on_list = dict(zip(commits["commit_id"].to_pylist(), commits["metarange_id"].to_pylist(), strict=True))
        if len(on_list) > safety.max_commits:
            graph.complete = False
        else:
            graph.add_history_of(server, run.repository, sorted(on_list - graph.commits.keys()))
    if not graph.complete:
        return _too_many(run, safety, heads)
    _refuse_other_content(on_list, graph)
    now = run.started_at
    reasons = {
        commit: str(reason) for commit, reason in active_commits(graph.commits.values(), heads, rules, now).items()
    }
    protected = protected_commits(graph.commits, heads, tags, safety.protect, now)
    missed = tuple(
        KeptCommit(commit_id, graph.commits[commit_id].meta_range_id, why)
        for commit_id, why in sorted({**protected, **reasons}.items())
        if commit_id not in on_list
    )
    by_rules = sum(commit.id in reasons for commit in missed)
    if by_rules:
        logger.warning(
            "repository %s: the server's list omits %d of the commits that its rules retain. Their objects are kept",
            run.repository,
            by_rules,
        )
    return OwnCommits(
        missed,
        {
            HEADS: heads,
            "commits_seen": len(graph.commits),
            "commits_listed": len(on_list),
            "missed_by_rules": by_rules,
            "commits_protected": len(missed) - by_rules,
            "missed_commits": [{"commit": c.id, "why": c.why} for c in missed[:_MAX_IN_FACTS]],
        },
    )


def commits_since(
    context: RunContext, run: GCRun, rules: GCRules, graph: CommitGraph, heads: Heads, known: Heads, read: set[str]
) -> list[KeptCommit] | None:
    """Return the commits that are active or protected with the branches ``heads``, and whose content was not read.

    ``known`` are the heads of the last reading of commits. ``graph`` has the history from then. What is read is added
    to it; None if it is too much for it. ``read`` is empty after such a reading, and collects what calls have returned.
    """
    protect, now, commits = context.safety.protect, run.started_at, graph.commits
    tags = dict(context.server.tags(run.repository)) if protect.of_commits else {}

    def kept_by(branches: Heads, tags: Heads) -> dict[str, str]:
        active = active_commits(commits.values(), branches, rules, now)
        return {
            **protected_commits(commits, branches, tags, protect, now),
            **{commit_id: str(reason) for commit_id, reason in active.items()},
        }

    if not graph.complete:
        return None
    # First: a commit that is not known yet would count as one that no branch reaches, and such a commit may be active.
    # Without tags, because a tag may be newer than that reading. Ranges that were read are not read again.
    if not read:
        read.update(kept_by(known, {}))
    graph.add_history_of(context.server, run.repository, [*heads.values(), *tags.values()])
    if not graph.complete:
        return None
    new = [
        KeptCommit(commit_id, commits[commit_id].meta_range_id, why)
        for commit_id, why in sorted(kept_by(heads, tags).items())
        if commit_id not in read
    ]
    read.update(commit.id for commit in new)
    return new


def _refuse_other_content(on_list: Mapping[str, str], graph: CommitGraph) -> None:
    for commit_id, metarange_id in on_list.items():
        named = graph.commits[commit_id].meta_range_id
        if metarange_id != named:
            raise IncompleteAnswerError(
                f"The server's list of active commits gives commit {commit_id} the metarange {metarange_id!r}, but its "
                f"log gives it {named!r}. Objects of that commit would look like garbage",
                remedy="Start a new run. If the error persists, check the log of the lakeFS server for prepare_commits",
            )


def _too_many(run: GCRun, safety: SafetyParameters, heads: Heads) -> OwnCommits:
    if safety.protect.of_commits:
        raise SafetyError(
            f"{run.repository} has more than {safety.max_commits} commits, so the protected commits are unknown",
            remedy="Raise safety.max_commits (each takes about 1 kB of the driver's memory), or protect path prefixes",
        )
    logger.warning(
        "repository %s has more than %d commits: the server's list of active commits is not checked",
        run.repository,
        safety.max_commits,
    )
    # None means unknown, which differs from 0.
    facts: dict[str, Any] = {"commits_seen": 0, "missed_by_rules": None, "commits_protected": 0, "missed_commits": []}
    return OwnCommits((), {HEADS: heads, **facts})
