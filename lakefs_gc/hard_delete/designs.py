"""The list of all designs, and functions that run their scenarios."""

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
    """The result of all schedules of a scenario, or of many of a storm. ``seconds``: the duration of the search."""

    scenario: Scenario
    exploration: Exploration
    seconds: float = field(compare=False)

    @property
    def found(self) -> tuple[Kind, ...]:
        """Return what broke, the worst first."""
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
        """Return the scenarios of the complete design: no ingredient removed, no bound exceeded."""
        return tuple(o for o in self.outcomes if not o.scenario.taken_out and not o.scenario.bounded_by)

    def broken(self) -> dict[Kind, list[Outcome]]:
        """Return what breaks in the complete design, the worst first, and in which scenarios."""
        outcomes = self.by_itself()
        broken = {kind: [o for o in outcomes if kind in o.found] for kind in Kind}
        return {kind: where for kind, where in broken.items() if where}

    @property
    def verdict(self) -> str:
        """Return the result in one sentence."""
        broken = self.broken()
        if not broken:
            left = [o.scenario.name for o in self.outcomes if o.scenario.bounded_by]
            return "nothing found" + (f" within its bounds (beyond them: {', '.join(left)})" if left else "")
        return "; ".join(f"{kind} ({where[0].scenario.name})" for kind, where in broken.items())


def run(scenario: Scenario) -> Outcome:
    """Try all schedules of a scenario."""
    began = time.perf_counter()
    exploration = Explorer(scenario).explore()
    return Outcome(scenario, exploration, time.perf_counter() - began)


def run_design(design: Design) -> DesignOutcome:
    """Try all scenarios of a design."""
    return DesignOutcome(design, tuple(run(scenario) for scenario in design.scenarios))


def run_storm(storm: Scenario, walks: int = accepted.STORM_WALKS, seed: int = 0) -> Outcome:
    """Try random schedules of a scenario."""
    began = time.perf_counter()
    exploration = Explorer(storm).roam(walks, seed)
    return Outcome(storm, exploration, time.perf_counter() - began)


def run_storms() -> tuple[Outcome, ...]:
    """Try the accepted design with more operations than can be searched completely, at random."""
    return tuple(run_storm(storm) for storm in accepted.storms())


def traces(outcome: Outcome, kinds: Iterable[Kind] | None = None) -> list[Trace]:
    """Return the shortest schedule for each kind of damage, or for the given kinds."""
    explorer = Explorer(outcome.scenario)
    shortest = (explorer.shortest(kind) for kind in (outcome.found if kinds is None else kinds))
    return [trace for trace in shortest if trace is not None]


def find_design(number: int) -> Design:
    """Return the design with a number. Raise ``ConfigurationError`` if no design has it."""
    for design in DESIGNS:
        if design.number == number:
            return design
    known = ", ".join(f"{design.number} ({design.name})" for design in DESIGNS)
    raise ConfigurationError(f"Unknown design {number}", remedy=f"Choose one of these: {known}")


def find_scenario(design: Design, name: str) -> Scenario:
    """Return a scenario by its name. Raise ``ConfigurationError`` if the design has no such scenario."""
    for scenario in design.scenarios:
        if scenario.name == name:
            return scenario
    known = ", ".join(scenario.name for scenario in design.scenarios)
    raise ConfigurationError(
        f"Unknown scenario {name!r} of design {design.number}", remedy=f"Choose one of these: {known}"
    )
