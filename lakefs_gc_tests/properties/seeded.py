"""A history from one seed: a repository with a random past, one move, and a collector before and after it."""

from __future__ import annotations

import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, Failure
from pyspark.sql import SparkSession

from lakefs_gc.config import SafetyParameters, Settings
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc_tests.properties.asset_collector import AssetCollector
from lakefs_gc_tests.properties.history import History, Operation
from lakefs_gc_tests.properties.plain_collector import PlainCollector
from lakefs_gc_tests.properties.stores import LOCAL, RemoteStore
from lakefs_gc_tests.support.collector import STAGES
from lakefs_gc_tests.support.lake_fixtures import name_server

logger = logging.getLogger(__name__)

_WITH_DAGSTER = 0.1
_WITH_A_LAST_RUN = 0.25
_SMALL_SHARE = 0.75
"""Of the runs. A run of a few objects that is not taken for a small one costs twice as much."""
_PATHS = ("a", "b", "dir/c")
_CONTENTS = ("one", "two", "three")  # two contents of each size, so that sizes do not distinguish them
_AGES_DAYS = (0, 5, 15, 40)


class ViolationError(AssertionError):
    """A property is violated."""


@dataclass
class Outcome:
    """The result of one history. ``errors`` counts the errors that ended a run, by class."""

    seed: int
    outcome: str = "whole"
    moves: list[str] = field(default_factory=list)
    marked: int = 0
    deleted: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    violation: str = ""

    def to_json(self) -> dict[str, object]:
        return asdict(self)


class SeededHistory(History):
    """A history whose operations are selected by ``random``. ``settings``: the settings of the next collector."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        instance: DagsterInstance,
        seed: int,
        options: SandboxOptions,
        store: RemoteStore | None = None,
    ) -> None:
        super().__init__(spark, folder, instance, options, store)
        self.random = random.Random(seed)
        self.spark = spark
        self.errors: Counter[str] = Counter()
        self.drawn: list[str] = []
        """What a move has drawn, for its outcome also where it ends in a violation."""
        self.finishable = True
        """Whether a run with the usual settings can do its work after the move."""
        self.settings: Settings = self.lake.settings
        self._with_dagster = self.random.random() < _WITH_DAGSTER
        self._sizes = random.Random(-seed - 1)

    def _collector(self, mode: str = "auto", objects_per_look: int = 4) -> AssetCollector:
        kind = AssetCollector if self._with_dagster else PlainCollector
        small = self._sizes.random() < _SMALL_SHARE
        collector = kind(
            self._spark, self.repository, self._instance, mode, objects_per_look, self.settings, small=small
        )
        self._hours_owed[collector.run_key] = 0
        return collector

    def collector(self, *, mounts: dict[str, str] | None = None, **safety: object) -> AssetCollector:
        """Return a collector with its own settings."""
        before = self.settings
        parameters = SafetyParameters.model_validate(self.settings.safety.model_dump(exclude_unset=True) | safety)
        changes = {"safety": parameters} | ({"mounts": mounts} if mounts is not None else {})
        self.settings = before.model_copy(update=changes)
        try:
            return self._collector()
        finally:
            self.settings = before

    # -- what users do

    def users(self, at_least: int, at_most: int) -> None:
        """Run a few operations of users."""
        for _ in range(self.random.randint(at_least, at_most)):
            self.do(self.operation())

    def operation(self) -> Operation:
        """Run one operation that a user may do at any time."""
        r = self.random
        branch, other, path = r.choice(self.branches), r.choice(self.branches), r.choice(_PATHS)
        content, days, number = r.choice(_CONTENTS), r.choice(_AGES_DAYS), r.randint(0, 50)
        old, commit, second = r.choice((48, 48, 0)), r.choice(self.commits), r.choice(_PATHS)
        some: list[tuple[int, Operation]] = [
            (6, lambda h: h.upload(branch, path, content, old)),
            (2, lambda h: h.upload_again(branch, number)),
            (5, lambda h: h.commit(branch, days)),
            (1, lambda h: h.link(branch, path, content)),
            (2, lambda h: h.repository.delete(path, branch=branch)),
            (1, lambda h: h.copy(branch, path, second)),
            (2, lambda h: h.stage_garbage(branch, path, number)),
            (1, lambda h: h.stage_by_folder(branch, path, number)),
            (1, lambda h: h.stage_with_wrong_size(branch, path, number)),
            (1, lambda h: h.merge(branch, other)),
            (1, lambda h: h.revert(branch, commit)),
            (1, lambda h: h.cherry_pick(branch, commit)),
            (1, lambda h: h.import_outside(branch, path)),
            (1, lambda h: h.share(branch, number)),
            (1, lambda h: h.reset(branch)),
            (1, lambda h: h.create_branch(commit)),
            (1, lambda h: h.delete_branch(branch)),
            (1, lambda h: h.tag(commit)),
            (1, lambda h: h.repository.keep_days(days, main=r.choice(_AGES_DAYS))),
            (1, lambda h: h.drop_rules()),
        ]
        [chosen] = r.choices([operation for _, operation in some], [weight for weight, _ in some])
        return chosen

    def begin_past(self) -> None:
        """Create the past before the first run. It ends with garbage, and with a committed object on main."""
        self.repository.keep_days(10)
        self.users(6, 14)
        for number in range(2):
            self.upload("main", f"kept-{number}", f"kept {number}", 48)
        self.commit("main", self.random.choice(_AGES_DAYS))
        for number in range(self.random.randint(2, 7)):
            self.repository.put_stray(f"data/garbage/{number}", f"garbage {number}".encode())
        self.litter()

    # -- the collector

    def mark_with(self, collector: AssetCollector, also_on: Set[str] | None = None) -> Mark:
        """Run all stages, with operations of users between some of them."""
        cut = self.random.randint(1, len(STAGES))
        collector.materialize(*STAGES[:cut])
        if self.random.random() < 0.5:
            # An empty committed set is possible at first, but main has a commit here.
            self.users(1, 2)
        collector.materialize(*STAGES[cut:])
        mark = collector.mark(also_on or frozenset())
        self.marked += 1
        return mark

    @contextmanager
    def nothing_live_is_lost(
        self, *, without: set[str] | None = None, also: set[str] | None = None
    ) -> Iterator[set[str]]:
        """Assert that every existing reachable object still exists at the end of the block.

        Yield the live keys. ``without``: keys that a person has accepted as lost. ``also``: keys of objects that
        entries reference in ways that ``reachable`` does not read.
        """
        live = ((self.reachable() | (also or set())) - (without or set())) & self.repository.objects()
        try:
            yield live
        finally:
            lost = live - self.repository.objects()
            if lost:
                raise ViolationError(f"live objects deleted: {sorted(lost)}")

    @contextmanager
    def may_fail(self, *kinds: type[LakeFSGCError]) -> Iterator[list[LakeFSGCError]]:
        """Run a step that may fail with one of these errors. Count and return the error."""
        caught: list[LakeFSGCError] = []
        try:
            yield caught
        except (LakeFSGCError, Failure) as error:
            cause = error if isinstance(error, LakeFSGCError) else error.__cause__
            if not isinstance(cause, kinds):
                raise
            self.errors[type(cause).__name__] += 1
            caught.append(cause)

    @contextmanager
    def must_fail(self, *kinds: type[LakeFSGCError]) -> Iterator[None]:
        """Run a step that must fail with one of these errors, without deleting anything."""
        before = self.repository.objects()
        with self.may_fail(*kinds) as caught:
            yield
        if not caught:
            raise ViolationError(f"continued instead of failing with {' or '.join(kind.__name__ for kind in kinds)}")
        if gone := before - self.repository.objects():
            raise ViolationError(f"deleted before the failure: {sorted(gone)}")


@contextmanager
def clock_off_by(seconds: float) -> Iterator[None]:
    """Run the block with a clock of the collector's machine that differs from the store's."""

    def shifted() -> datetime:
        return utc_now() + timedelta(seconds=seconds)

    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("lakefs_gc.") and getattr(module, "utc_now", None) is utc_now:
                patch.setattr(module, "utc_now", shifted)
        yield


@dataclass(frozen=True)
class Move:
    """An event in a repository, other repositories or the collector, besides the operations of users.

    ``make`` gets a history with a past, and returns the names of its random choices. It raises ``AssertionError`` if a
    live object is lost, or if the collector continues after it could not read something.
    """

    make: Callable[[SeededHistory], list[str]]
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    """Options of the sandbox in which it is made."""
    needs_folder: bool = False
    """Whether it is possible in a local folder only."""


def move_of(seed: int, moves: Mapping[str, Move], kind: str = LOCAL) -> str:
    """Return the name of the move of a seed. All moves that are possible in a store have the same frequency."""
    names = sorted(name for name, move in moves.items() if kind == LOCAL or not move.needs_folder)
    return names[seed % len(names)]


def run_history(
    spark: SparkSession, seed: int, moves: Mapping[str, Move], name: str = "", store: RemoteStore | None = None
) -> Outcome:
    """Run the history of a seed, in local files or in a store. ``name``: a move that replaces the one of the seed."""
    began, outcome = time.monotonic(), Outcome(seed)
    name = name or move_of(seed, moves, store.kind if store else LOCAL)
    outcome.moves.append(name)
    history: SeededHistory | None = None
    with tempfile.TemporaryDirectory(prefix="lakefs-gc-history-") as folder, ExitStack() as stack:
        try:
            instance = stack.enter_context(DagsterInstance.ephemeral())
            options = SandboxOptions(slice_seconds=1, **moves[name].sandbox)
            history = SeededHistory(spark, Path(folder), instance, seed, options, store)
            stack.callback(history.close)
            name_server(history.lake, stack.enter_context(pytest.MonkeyPatch.context()))
            history.begin_past()
            outcome.moves += moves[name].make(history)
            if history.finishable and history.random.random() < _WITH_A_LAST_RUN:
                outcome.moves.append("finish")
                history.finish(both_modes=False)
        except Exception as error:
            # Every allowed error is caught where it is allowed.
            drawn = history.drawn if history is not None else []
            logger.exception("seed %d, %s: %s", seed, name, "; ".join(drawn))
            outcome.moves += [detail for detail in drawn if detail not in outcome.moves]
            outcome.outcome = "violation"
            outcome.violation = f"{type(error).__name__}: {error}"[:2000]
        if history is not None:
            outcome.marked, outcome.deleted = history.marked, history.deleted
            outcome.errors = dict(history.errors)
    if outcome.errors and outcome.outcome == "whole":
        outcome.outcome = "ended by a clear error"
    outcome.seconds = round(time.monotonic() - began, 2)
    return outcome
