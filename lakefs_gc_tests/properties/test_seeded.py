"""A few of the random histories: one for each move in local files, and in CI two in each emulator.

``python -m lakefs_gc_tests.properties`` runs thousands.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.properties.moves import MOVES
from lakefs_gc_tests.properties.seeded import move_of, run_history
from lakefs_gc_tests.properties.stores import AZURE, GCS, in_azurite, in_fake_gcs

SEEDS = {seed: move_of(seed, MOVES) for seed in range(11, 22)}
_EVERYWHERE = 4
"""The number of these histories that run outside CI, too. Each takes ten seconds."""
_FEW = [
    pytest.param(seed, id=move, marks=[pytest.mark.of_ci] if number >= _EVERYWHERE else [])
    for number, (seed, move) in enumerate(SEEDS.items())
]
OF_STORES = {seed: move_of(seed, MOVES, AZURE) for seed in (5006, 5007)}
"""Histories in which a sweep deletes something."""


def test_the_seeds_cover_each_move() -> None:
    assert set(SEEDS.values()) == set(MOVES)


@pytest.mark.of_ci("clocks", "folders, known", "approvals")
@pytest.mark.long(10)
@pytest.mark.parametrize("seed", _FEW)
def test_no_live_object_is_lost_and_a_failed_read_ends_the_run(spark: SparkSession, seed: int) -> None:
    outcome = run_history(spark, seed, MOVES)
    assert outcome.moves[0] == SEEDS[seed]
    assert not outcome.violation, f"python -m lakefs_gc_tests.properties --histories 1 --seed {seed}"


@pytest.mark.of_ci  # the moves are those of local files; the engine's own tests are of the emulators' stores, too
@pytest.mark.long(20)
@pytest.mark.parametrize("kind", [AZURE, GCS])
@pytest.mark.parametrize("seed", OF_STORES, ids=OF_STORES.get)
def test_no_live_object_of_azure_or_of_google_is_lost(
    kind: str,
    seed: int,
    spark: SparkSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    location: StoreLocation = request.getfixturevalue(f"{kind}_namespace")
    running = (
        in_azurite(request.getfixturevalue("azurite"), location, tmp_path)
        if kind == AZURE
        else in_fake_gcs(request.getfixturevalue("fake_gcs"), location, tmp_path)
    )
    with running as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
        outcome = run_history(spark, seed, MOVES, store=store)
    assert outcome.moves[0] == OF_STORES[seed]
    assert not outcome.violation, f"python -m lakefs_gc_tests.properties --histories 1 --seed {seed} --store {kind}"
    assert outcome.deleted, "no object was old enough"
