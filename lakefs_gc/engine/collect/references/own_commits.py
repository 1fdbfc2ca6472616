"""Which commits are active by the definition, whatever the server lists, and which ones users protect.

The server walks the history in an order that depends on commit ids, and leaves out commits that its own rules retain
(see ``retention.active_commits``).  Here the same rules are applied to the commits that a client can see.  Commits that
no branch and no tag reaches are seen only where the server lists them; of those that ``protect.days`` keeps,
``active_ranges`` finds the content.
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
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.errors import SafetyError
from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc.lakefs.active_commits import active_commits
from lakefs_gc.lakefs.protections import protected_commits

logger = logging.getLogger(__name__)

_SHOWN = 20


@dataclass(frozen=True)
class KeptCommit:
    """A commit that is active although the server does not list it; ``why`` is for people."""

    id: str
    metarange_id: str
    why: str


@dataclass(frozen=True)
class OwnCommits:
    """What the server's list lacks; ``facts`` say what was looked at."""

    missed: tuple[KeptCommit, ...]
    facts: Mapping[str, Any]


def own_active_commits(
    context: RunContext, run: GCRun, rules: GCRules, listed: DataFrame, graph: CommitGraph
) -> OwnCommits:
    """Compute the active and the protected commits, and take out what is ``listed`` (column ``commit_id``).

    ``graph`` has commits that are known already, and gets those that are read.
    Raises ``SafetyError`` when commits are to be protected and there are too many to look at.
    """
    server, safety = context.server, context.safety
    heads, tags = dict(server.branch_heads(run.repository)), dict(server.tags(run.repository))
    graph.add_history_of(server, run.repository, [*heads.values(), *tags.values()])
    if graph.complete:
        with driver_errors():
            ids = listed.select("commit_id").limit(safety.max_commits + 1)
            on_list = {row["commit_id"] for row in ids.collect()}
        if len(on_list) > safety.max_commits:
            graph.complete = False
        else:
            graph.add_history_of(server, run.repository, sorted(on_list - graph.commits.keys()))
    if not graph.complete:
        return _too_many(run, safety)
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
        logger.warning("the server's list lacks %d commits that its rules retain: they are kept", by_rules)
    return OwnCommits(
        missed,
        {
            "commits_seen": len(graph.commits),
            "commits_listed": len(on_list),
            "missed_by_rules": by_rules,
            "commits_protected": len(missed) - by_rules,
            "missed_commits": [{"commit": c.id, "why": c.why} for c in missed[:_SHOWN]],
        },
    )


def _too_many(run: GCRun, safety: SafetyParameters) -> OwnCommits:
    if safety.protect.of_commits:
        raise SafetyError(
            f"{run.repository} has more than {safety.max_commits} commits: which of them are protected is not known",
            remedy="raise safety.max_commits (each takes about 1 kB of the driver's memory), or protect path prefixes",
        )
    logger.warning(
        "%s has more than %d commits: the server's list of active ones is not checked",
        run.repository,
        safety.max_commits,
    )
    # None: nobody knows, which is not the same as none.
    return OwnCommits((), {"commits_seen": 0, "missed_by_rules": None, "commits_protected": 0, "missed_commits": []})
