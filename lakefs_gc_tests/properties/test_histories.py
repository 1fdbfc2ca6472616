"""Random histories with concurrent collectors: no reachable object is ever deleted.

``LAKEFS_GC_TESTS_HISTORIES``: the number of histories (1 by default, 4 if ``CI`` is set).
``LAKEFS_GC_TESTS_SEED``: the first seed.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from dagster import DagsterInstance
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from pyspark.sql import SparkSession

from lakefs_gc_tests.properties.history import History, Operation
from lakefs_gc_tests.support.collector import STAGES
from lakefs_gc_tests.support.lake_fixtures import name_server

_MANY = 12
_IN_CI = 4
_HISTORIES = int(os.environ.get("LAKEFS_GC_TESTS_HISTORIES") or (_IN_CI if os.environ.get("CI") else 1))
_SEED = int(os.environ.get("LAKEFS_GC_TESTS_SEED", "1"))
_STEPS = 12
_RUNS = 2
"""The maximum number of runs before the last one, and of sweeps."""
_BOTH_MODES_EVERY = 5

logger = logging.getLogger(__name__)

paths = st.sampled_from(["a", "b", "dir/c"])
# Two contents of each size, so that sizes do not distinguish them.
contents = st.sampled_from(["one", "two", "three"])
numbers = st.integers(0, 50)
ages_days = st.sampled_from([0, 5, 15, 40])


def pick(names: list[str], number: int) -> str:
    return names[number % len(names)]


def operations() -> st.SearchStrategy[Operation]:
    """Return the operations of users, with their arguments."""
    branches = numbers

    def on(history: History, number: int) -> str:
        return pick(history.branches, number)

    uploads = st.builds(
        lambda b, p, c, old: lambda h: h.upload(on(h, b), p, c, 48 if old else 0),
        branches,
        paths,
        contents,
        st.sampled_from([True, True, False]),
    )
    again = st.builds(lambda b, n: lambda h: h.upload_again(on(h, b), n), branches, numbers)
    commits = st.builds(lambda b, d: lambda h: h.commit(on(h, b), d), branches, ages_days)
    rest = st.one_of(
        st.builds(lambda b, p, c: lambda h: h.link(on(h, b), p, c), branches, paths, contents),
        st.builds(lambda b, p: lambda h: h.repository.delete(p, branch=on(h, b)), branches, paths),
        st.builds(lambda b, p, q: lambda h: h.copy(on(h, b), p, q), branches, paths, paths),
        st.builds(lambda b, p, n: lambda h: h.stage_garbage(on(h, b), p, n), branches, paths, numbers),
        st.builds(lambda b, p, n: lambda h: h.stage_by_folder(on(h, b), p, n), branches, paths, numbers),
        st.builds(lambda b, p, n: lambda h: h.stage_with_wrong_size(on(h, b), p, n), branches, paths, numbers),
        st.builds(lambda b, n: lambda h: h.merge(on(h, b), on(h, n)), branches, numbers),
        st.builds(lambda b, n: lambda h: h.revert(on(h, b), pick(h.commits, n)), branches, numbers),
        st.builds(lambda b, n: lambda h: h.cherry_pick(on(h, b), pick(h.commits, n)), branches, numbers),
        st.builds(lambda b, p: lambda h: h.import_outside(on(h, b), p), branches, paths),
        st.builds(lambda b, n: lambda h: h.share(on(h, b), n), branches, numbers),
        st.builds(lambda: lambda h: h.pass_time()),
        st.builds(lambda b: lambda h: h.reset(on(h, b)), branches),
        st.builds(lambda n: lambda h: h.create_branch(pick(h.commits, n)), numbers),
        st.builds(lambda b: lambda h: h.delete_branch(on(h, b)), branches),
        st.builds(lambda n: lambda h: h.tag(pick(h.commits, n)), numbers),
        st.builds(lambda d, m: lambda h: h.repository.keep_days(d, main=m), ages_days, ages_days),
        st.builds(lambda: lambda h: h.drop_rules()),
    )
    return st.one_of(uploads, uploads, again, again, commits, rest, rest)


def comebacks() -> st.SearchStrategy[Operation]:
    """Return the operations of users. Most of them reference garbage again."""
    stage = st.builds(lambda b, p, n: lambda h: h.stage_garbage(pick(h.branches, b), p, n), numbers, paths, numbers)
    branch = st.builds(lambda n: lambda h: h.create_branch(pick(h.commits, n)), numbers)
    revert = st.builds(lambda b, n: lambda h: h.revert(pick(h.branches, b), pick(h.commits, n)), numbers, numbers)
    return st.one_of(stage, stage, branch, revert, operations(), operations())


class Histories(RuleBasedStateMachine):
    spark: SparkSession
    seen: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="lakefs-gc-history-")
        self._stack = ExitStack()
        instance = self._stack.enter_context(DagsterInstance.ephemeral())
        self.history = History(self.spark, Path(self._folder.name), instance)
        patch = self._stack.enter_context(pytest.MonkeyPatch.context())
        name_server(self.history.lake, patch)
        self.history.repository.keep_days(10)

    @initialize(several=st.lists(operations(), min_size=8, max_size=16), age_days=ages_days, twin=st.booleans())
    def past(self, several: list[Operation], age_days: int, twin: bool) -> None:
        """Run random operations, then create garbage. Some begin with an object that is in no list of the server."""
        for operation in [*several, History.litter, lambda h: h.commit("main", age_days), History.litter]:
            self.history.do(operation)
        if twin:
            self.history.do(lambda h: h.upload_again("main", age_days))

    @rule(several=st.lists(operations(), min_size=1, max_size=6))
    def users(self, several: list[Operation]) -> None:
        for operation in several:
            self.history.do(operation)

    @precondition(lambda self: self.history.begun < _RUNS)
    @rule()
    def begin(self) -> None:
        self.history.begin()

    @precondition(lambda self: self.history.collectors or self.history.begun < _RUNS)
    @rule(several=st.lists(st.tuples(numbers, st.integers(1, len(STAGES) + 1), comebacks()), min_size=1, max_size=4))
    def stages(self, several: list[tuple[int, int, Operation]]) -> None:
        if not self.history.collectors:
            self.history.begin()
        for number, stages, between in several:
            self.history.step(number, stages)
            self.history.do(between)

    @precondition(lambda self: len(self.history.collectors) > 1)
    @rule()
    def interrupt(self) -> None:
        self.history.interrupt()

    @precondition(lambda self: self.history.marks and self.history.swept < _RUNS)
    @rule(number=numbers, meanwhile=st.lists(comebacks(), max_size=3))
    def sweep(self, number: int, meanwhile: list[Operation]) -> None:
        self.history.sweep(number, meanwhile)

    def teardown(self) -> None:
        history = self.history
        # Hypothesis aborts some histories and does not count them. They are checked nevertheless.
        self.seen["histories cut short"] += sys.exception() is not None
        try:
            history.finish(both_modes=self.seen["histories"] % _BOTH_MODES_EVERY == 0)
        finally:
            history.close()
            self._stack.close()
            self._folder.cleanup()
        self.seen["histories"] += 1
        for name, number in (
            ("marks", history.marked),
            ("sweeps", history.swept),
            ("deleted objects", history.deleted),
            ("objects that came back", history.resurrected),
            ("objects that no list has", history.hidden),
            ("optimized runs", history.optimized),
            ("outdated runs", history.outdated),
        ):
            self.seen[name] += number
            self.seen[f"histories with {name}"] += number > 0


@pytest.mark.long(150)
def test_no_reachable_object_is_ever_deleted(spark: SparkSession) -> None:
    Histories.spark, Histories.seen = spark, Counter()
    run_state_machine_as_test(
        seeded(_SEED)(Histories),
        settings=settings(
            max_examples=_HISTORIES,
            stateful_step_count=_STEPS,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
    logger.info("from seed %d: %s", _SEED, dict(Histories.seen))
    assert Histories.seen["deleted objects"]
    if _HISTORIES >= _MANY:
        assert Histories.seen["objects that came back"]
        assert Histories.seen["objects that no list has"]
        assert Histories.seen["optimized runs"]
