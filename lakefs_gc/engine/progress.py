"""What a run is doing, for people who wait: the step, what it has done, how fast, and what remains.

Progress is an estimate. No decision depends on it, no Spark job is started for it, and an error in it never ends a run.
The terminal shows it in one line. Elsewhere, including Dagster's log, ``logged`` writes a line from time to time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lakefs_gc.units import human_seconds

LOGGER = __name__
"""The logger of the lines that say what a run is doing."""
logger = logging.getLogger(LOGGER)

_MIN_SECONDS_FOR_RATE = 2.0

_TITLES = {
    "store_listing": "listing the store",
    "foreign": "reading other repositories",
    "uncommitted": "reading uncommitted data",
    "active_ranges": "finding the active commits",
    "committed": "reading committed data",
    "unmatched": "comparing the store with all references",
    "kept": "looking for objects to protect",
    "twins": "looking for objects to protect",
    "missing": "looking for missing objects",
    "candidates": "selecting the candidates",
    "mark": "writing the mark",
    "sweep_approval": "checking the approval",
    "waiting_for_commits": "waiting until commits in progress have ended",
    "backup_plan": "reading the mark",
    "backup_outcomes": "reading the outcomes",
    "backup": "copying objects to the backup",
    "sweep_marked": "reading the mark",
    "sweep_left": "reading the mark",
    "sweep_plan": "comparing the mark with all references",
    "sweep_deletes": "deleting objects",
    "sweep_ledger": "reading the outcomes",
    "sweep": "sweeping",
    "forecast": "computing the forecast",
    "forecast_files": "reading the metadata of all commits",
    "forecast_metadata": "reading the metadata of all commits",
    "forecast_named": "reading the metadata of all commits",
    "restore_shown": "finding the commits that show the objects",
    "restore": "restoring objects",
}
_SECOND_LOOK = "look_"


def title_of(step: str) -> str:
    """Return what a step does, in words: ``second look: reading committed data`` for ``look_1_committed``."""
    if step.startswith(_SECOND_LOOK):
        return f"second look: {title_of(step.removeprefix(_SECOND_LOOK).partition('_')[2])}"
    begins = [name for name in _TITLES if step == name or step.startswith(f"{name}_")]
    return _TITLES[max(begins, key=len)] if begins else step.replace("_", " ")


@dataclass(frozen=True)
class Tasks:
    """The tasks of the Spark stages in progress: how many have ended, of how many."""

    ended: int
    total: int


@dataclass(frozen=True)
class Snapshot:
    """What a run is doing at one moment.

    ``done`` of ``total`` are in ``unit``; ``total`` is None if it is unknown. ``running`` is the number that the Spark
    tasks in progress share. ``counted_seconds`` have passed since the first count, which was ``counted_from``.
    ``seconds_left`` is None unless the duration of the step is fixed.
    """

    step: str
    seconds: float
    unit: str = ""
    done: int = 0
    total: int | None = None
    running: int = 0
    is_total_known: bool = True
    counted_from: int = 0
    counted_seconds: float = 0.0
    tasks: Tasks | None = None
    seconds_left: float | None = None

    @property
    def estimate(self) -> int:
        """Return the number that is done, including the running tasks' share."""
        if not self.tasks or not self.tasks.total:
            return self.done
        return self.done + self.running * min(self.tasks.ended, self.tasks.total) // self.tasks.total

    def __str__(self) -> str:
        """Return one line: ``listing the store (4 s): 1,200 of about 9,000 objects, 300 per second, about 26 s left``.

        The time in parentheses is the duration of the step so far.
        """
        parts = []
        rate = 0.0
        if self.unit and (self.done or self.total):
            about = "about " if self.running else ""
            of = "" if self.total is None else f" of {'' if self.is_total_known else 'about '}{self.total:,}"
            parts.append(f"{about}{self.estimate:,}{of} {self.unit}")
            if self.counted_seconds >= _MIN_SECONDS_FOR_RATE:
                rate = (self.estimate - self.counted_from) / self.counted_seconds
        if rate >= 1:
            parts.append(f"{rate:,.0f} per second")
        if rate and self.total is not None and self.total > self.estimate:
            parts.append(f"about {human_seconds((self.total - self.estimate) / rate)} left")
        if self.seconds_left is not None:
            parts.append(f"{human_seconds(max(0.0, self.seconds_left))} left")
        if self.tasks and not self.running:
            parts.append(f"{self.tasks.ended:,} of {self.tasks.total:,} tasks")
        return ": ".join(filter(None, (f"{title_of(self.step)} ({human_seconds(self.seconds)})", ", ".join(parts))))


@dataclass(eq=False)
class _Step:
    name: str
    began: float
    unit: str = ""
    done: int = 0
    total: int | None = None
    running: int = 0
    is_total_known: bool = True
    count_began: float = 0.0
    count_from: int = 0
    lasts_seconds: float | None = None


@dataclass
class Progress:
    """The steps in progress, outermost first. Several threads may use it."""

    clock: Callable[[], float] = time.monotonic
    tasks: Callable[[], Tasks | None] = lambda: None
    """Returns the tasks of the Spark stages in progress. ``spark.tasks`` sets it."""
    log_every_seconds: float = 10.0
    _steps: list[_Step] = field(default_factory=list)
    _logs: int = 0

    @contextmanager
    def step(self, name: str, work: tuple[str, int] | None = None, *, seconds: float | None = None) -> Iterator[None]:
        """Show a step while the block runs.

        ``work`` is the unit and the number that its Spark tasks share, ``seconds`` its duration if that is fixed.
        """
        step = _Step(name, self.clock(), lasts_seconds=seconds)
        self._steps.append(step)
        if work is not None:
            unit, number = work
            self.count(unit, total=number, running=number)
        try:
            yield
        finally:
            self._steps.remove(step)

    def count(self, unit: str, done: int = 0, *, total: int | None = None, running: int = 0) -> None:
        """Set the counts of the innermost step. Without ``total`` the former total stays."""
        for step in self._steps[-1:]:
            if not step.count_began:
                step.count_began, step.count_from = self.clock(), done
            step.unit, step.done, step.running = unit, done, running
            if total is not None:
                step.total = total

    def expect(self, unit: str, total: Callable[[], int | None]) -> int:
        """Set the total of the innermost step to an estimate, and return it. 0 if it is unknown or fails."""
        try:
            expected = total() or 0
        except Exception as error:  # a number for people: a run must not end because of it
            logger.debug("progress: the expected number of %s is unknown: %s", unit, error)
            return 0
        for step in self._steps[-1:]:
            step.unit, step.total, step.is_total_known = unit, expected or None, False
        return expected

    def snapshot(self) -> Snapshot | None:
        """Return the innermost step, with the counts of the innermost step that has some; None without a step."""
        steps = list(self._steps)
        if not steps:
            return None
        now = self.clock()
        last = steps[-1]
        counted = next((step for step in reversed(steps) if step.unit), last)
        return Snapshot(
            step=last.name,
            seconds=now - last.began,
            unit=counted.unit,
            done=counted.done,
            total=counted.total,
            running=counted.running,
            is_total_known=counted.is_total_known,
            counted_from=counted.count_from,
            counted_seconds=now - counted.count_began,
            tasks=self._tasks(),
            seconds_left=None if last.lasts_seconds is None else last.began + last.lasts_seconds - now,
        )

    def _tasks(self) -> Tasks | None:
        try:
            return self.tasks()
        except Exception as error:  # Spark may be stopping
            logger.debug("progress: the number of Spark's tasks is unknown: %s", error)
            return None

    @contextmanager
    def logged(self) -> Iterator[None]:
        """Log what the run is doing every ``log_every_seconds`` while the block runs. An inner block adds nothing."""
        self._logs += 1
        ended = threading.Event()
        if self._logs == 1:
            threading.Thread(
                target=self._log, args=(ended, self.log_every_seconds), name="progress", daemon=True
            ).start()
        try:
            yield
        finally:
            self._logs -= 1
            ended.set()

    def _log(self, ended: threading.Event, every_seconds: float) -> None:
        while not ended.wait(every_seconds):
            try:
                snapshot = self.snapshot()
                if snapshot:
                    logger.info("%s", snapshot)
            except Exception:  # for example, Dagster's database is locked: the next line may succeed
                logger.debug("progress: a line was not logged", exc_info=True)


RUN_PROGRESS = Progress()
"""The progress of this process. A process runs one job at a time."""
