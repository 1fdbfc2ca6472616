"""Random schedules, run once for the tests that check the results."""

from __future__ import annotations

import pytest

from lakefs_gc.hard_delete.designs import Outcome, run_storms


@pytest.fixture(scope="session")
def storms() -> tuple[Outcome, ...]:
    return run_storms()
