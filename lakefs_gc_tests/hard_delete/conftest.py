"""All designs, run once for the tests that check the results."""

from __future__ import annotations

import pytest

from lakefs_gc.hard_delete.designs import DESIGNS, DesignOutcome, Outcome, run_design, run_storms


@pytest.fixture(scope="session")
def design_outcomes() -> tuple[DesignOutcome, ...]:
    return tuple(run_design(design) for design in DESIGNS)


@pytest.fixture(scope="session")
def storms() -> tuple[Outcome, ...]:
    return run_storms()
