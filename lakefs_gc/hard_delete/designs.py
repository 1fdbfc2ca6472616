"""All designs, and what came of running them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.hard_delete.explorer import Exploration, Explorer, Trace
from lakefs_gc.hard_delete.model import Design, Kind, Scenario
from lakefs_gc.hard_delete.models import (
    accepted,
    no_copies,
    reference_counter,
    staged_on_store,
    token_states,
    tracked_references,
)

DESIGNS: tuple[Design, ...] = (
    staged_on_store.DESIGN,
    reference_counter.DESIGN,
    tracked_references.DESIGN,
    token_states.DESIGN,
    no_copies.DESIGN,
    accepted.DESIGN,
)


@dataclass(frozen=True)
class Outcome:
    """What all schedules of a scenario, or many of a storm, came to. ``seconds``: how long that took."""

    scenario: Scenario
    exploration: Exploration
    seconds: float = field(compare=False)

    @property
    def found(self) -> tuple[Kind, ...]:
        """What broke, the worst first."""
        return tuple(kind for kind in Kind if kind in self.exploration.found)


@dataclass(frozen=True)
class DesignOutcome:
    """The outcomes of a design's scenarios."""

    design: Design
    outcomes: tuple[Outcome, ...]

    @property
    def states(self) -> int:
        return sum(outcome.exploration.states for outcome in self.outcomes)

    @property
    def seconds(self) -> float:
        return sum(outcome.seconds for outcome in self.outcomes)

    def by_itself(self) -> tuple[Outcome, ...]:
        """The scenarios of the design as it is: no ingredient taken out, no bound left behind."""
        return tuple(o for o in self.outcomes if not o.scenario.taken_out and not o.scenario.bounded_by)

    def broken(self) -> dict[Kind, list[Outcome]]:
        """What is broken in the design as it is, the worst first, and where."""
        outcomes = self.by_itself()
        broken = {kind: [o for o in outcomes if kind in o.found] for kind in Kind}
        return {kind: where for kind, where in broken.items() if where}

    @property
    def verdict(self) -> str:
        """In a sentence."""
        broken = self.broken()
        if not broken:
            left = [o.scenario.name for o in self.outcomes if o.scenario.bounded_by]
            return "nothing found" + (f" within its bounds (beyond them: {', '.join(left)})" if left else "")
        return "; ".join(f"{kind} ({where[0].scenario.name})" for kind, where in broken.items())


def run(scenario: Scenario) -> Outcome:
    """Go through all schedules of a scenario."""
    began = time.perf_counter()
    exploration = Explorer(scenario).explore()
    return Outcome(scenario, exploration, time.perf_counter() - began)


def run_design(design: Design) -> DesignOutcome:
    """Go through all scenarios of a design."""
    return DesignOutcome(design, tuple(run(scenario) for scenario in design.scenarios))


def run_storm(storm: Scenario, walks: int = accepted.STORM_WALKS, seed: int = 0) -> Outcome:
    """Take schedules of a scenario at random."""
    began = time.perf_counter()
    exploration = Explorer(storm).roam(walks, seed)
    return Outcome(storm, exploration, time.perf_counter() - began)


def run_storms() -> tuple[Outcome, ...]:
    """The accepted design with more going on than can be gone through."""
    return tuple(run_storm(storm) for storm in accepted.storms())


def traces(outcome: Outcome, kinds: Iterable[Kind] | None = None) -> list[Trace]:
    """The shortest schedule for each thing that broke, or for these."""
    explorer = Explorer(outcome.scenario)
    found = (explorer.shortest(kind) for kind in (outcome.found if kinds is None else kinds))
    return [trace for trace in found if trace is not None]


def find_design(number: int) -> Design:
    """Raises ``ConfigurationError`` for a number that no design has."""
    for design in DESIGNS:
        if design.number == number:
            return design
    known = ", ".join(f"{design.number} ({design.name})" for design in DESIGNS)
    raise ConfigurationError(f"there is no design {number}", remedy=f"name one of these: {known}")


def find_scenario(design: Design, name: str) -> Scenario:
    """Raises ``ConfigurationError`` for a name that no scenario of the design has."""
    for scenario in design.scenarios:
        if scenario.name == name:
            return scenario
    known = ", ".join(scenario.name for scenario in design.scenarios)
    raise ConfigurationError(f"design {design.number} has no scenario {name!r}", remedy=f"name one of these: {known}")
