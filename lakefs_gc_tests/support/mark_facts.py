"""The facts beside a mark, as the asset ``mark`` writes them."""

from __future__ import annotations

from lakefs_gc.engine.decide.marking.gather_facts import gather_facts
from lakefs_gc.engine.decide.marking.marked_paths import marked_paths
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_facts import MarkFacts, write_facts
from lakefs_gc.engine.records.mark_parts import overview
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
