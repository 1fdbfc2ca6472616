"""The list of all designs, and functions that search their combinations and run their scenarios."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.hard_delete.combinations import Search, combine, search
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
    """The results of a design's combinations, one search for each reading."""

    design: Design
    searches: tuple[Search, ...]

    @property
    def combinations(self) -> int:
        return sum(len(search.results) for search in self.searches)

    @property
    def states(self) -> int:
        return sum(search.states for search in self.searches)

    @property
    def seconds(self) -> float:
        return sum(search.seconds for search in self.searches)


def run(scenario: Scenario) -> Outcome:
    """Try all schedules of a scenario."""
    began = time.perf_counter()
    exploration = Explorer(scenario).explore()
    return Outcome(scenario, exploration, time.perf_counter() - began)


def search_design(design: Design, operations: int | None = None) -> DesignOutcome:
    """Search all combinations of a design, or only those with at most so many operations."""
    return DesignOutcome(
        design,
        tuple(
            search(reading, None if operations is None else reading.bound.at_most(operations))
            for reading in design.readings
        ),
    )


def run_storm(storm: Scenario, walks: int = accepted.STORM_WALKS, seed: int = 0) -> Outcome:
    """Try random schedules of a scenario."""
    began = time.perf_counter()
    exploration = Explorer(storm).roam(walks, seed)
    return Outcome(storm, exploration, time.perf_counter() - began)


def run_storms() -> tuple[Outcome, ...]:
    """Try the accepted design with more operations than can be searched completely, at random."""
    return tuple(run_storm(storm) for storm in accepted.storms())


def traces(scenario: Scenario, found: Iterable[Kind]) -> list[Trace]:
    """Return the shortest schedule for each kind of damage."""
    explorer = Explorer(scenario)
    return [trace for kind in found if (trace := explorer.shortest(kind)) is not None]


def find_design(number: int) -> Design:
    """Return the design with a number. Raise ``ConfigurationError`` if no design has it."""
    for design in DESIGNS:
        if design.number == number:
            return design
    known = ", ".join(f"{design.number} ({design.name})" for design in DESIGNS)
    raise ConfigurationError(f"Unknown design {number}", remedy=f"Choose one of these: {known}")


def find_scenario(design: Design, name: str) -> Scenario:
    """Return a scenario or a combination by its name. Raise ``ConfigurationError`` if the design has none."""
    for scenario in design.scenarios:
        if scenario.name == name:
            return scenario
    for reading in design.readings:
        for combination in combine(reading):
            if combination.name == name:
                return combination.scenario()
    known = ", ".join(scenario.name for scenario in design.scenarios)
    raise ConfigurationError(
        f"Unknown scenario {name!r} of design {design.number}",
        remedy=f"Choose one of these: {known}. Or name a combination as `lakefs-gc designs show {design.number}` does",
    )
