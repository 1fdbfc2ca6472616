"""A few of the random histories, one for each move; ``python -m lakefs_gc_tests.properties`` runs thousands."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lakefs_gc_tests.properties.moves import MOVES
from lakefs_gc_tests.properties.seeded import move_of, run_history

SEEDS = {seed: move_of(seed, MOVES) for seed in range(11, 22)}


def test_the_seeds_cover_each_move() -> None:
    assert set(SEEDS.values()) == set(MOVES)


@pytest.mark.long(10)
@pytest.mark.parametrize("seed", SEEDS, ids=SEEDS.get)
def test_no_live_object_is_lost_and_a_failed_read_ends_the_run(spark: SparkSession, seed: int) -> None:
    outcome = run_history(spark, seed, MOVES)
    assert outcome.moves[0] == SEEDS[seed]
    assert not outcome.violation, f"python -m lakefs_gc_tests.properties --histories 1 --seed {seed}"
