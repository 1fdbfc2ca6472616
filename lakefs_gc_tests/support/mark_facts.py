"""The facts beside a mark, as the asset ``mark`` writes them."""

from __future__ import annotations

from lakefs_gc.engine.decide.marking.gather_facts import gather_facts
from lakefs_gc.engine.decide.marking.marked_paths import marked_paths
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_facts import MarkFacts, write_facts
from lakefs_gc.engine.records.mark_parts import overview
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc_tests.support.collector import Collector


def write_facts_of(collector: Collector, mark: Mark) -> MarkFacts:
    """Write the facts beside a mark that ``collect_and_mark`` made, and return them."""
    store, candidates = collector.repository.store, collector.dataset("candidates")
    facts = gather_facts(
        collector.context,
        collector.run,
        mark,
        overview(store, mark),
        listing=collector.dataset("store_listing"),
        kept=collector.dataset("kept"),
        candidates=candidates,
        found=marked_paths(collector.context, collector.run, candidates, collector.dataset("active_ranges")),
    )
    write_facts(store, facts)
    return facts


def write_few_facts(store: ObjectStore, mark: Mark) -> None:
    """Write facts beside a mark that was not made by the stages: no backup location, and no paths."""
    facts = MarkFacts(
        mark_id=mark.mark_id,
        digest=mark.digest,
        started_at=mark.created_at,
        min_age_seconds=0,
        funnel=None,
        listed_by_age={},
        marked_by_age={},
        never_committed_by_age={},
        run_seconds=0,
        earlier=None,
        lowered=(),
        backup_url="",
        ready_at=None,
        objects_per_request=1000,
        largest_prefixes=(),
        sample=(),
    )
    write_facts(store, facts)
