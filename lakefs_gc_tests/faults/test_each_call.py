"""Every call of a mark and its sweep fails once, or repeatedly, in each way. No live object is ever deleted.

First the calls of a run without a fault are counted. Then each of them fails in each way, in its own run. No run has a
range cache, because with one only the first run would read ranges. All of this takes many hundreds of runs, so by
default only a few are made. ``LAKEFS_GC_TESTS_FAULTS`` chooses others: ``1/1`` makes all runs, and ``3/20`` the third
of twenty parts. Those of Azure and Google are replayed (``replay``), and a command of its own makes all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.faults.replay import CLEAR_ERROR, ENDED_RIGHT, FAULTS, Replay
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.faulty_s3 import Answer, Request, error
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lakefs_proxy import Answered, Asked, LakeFSProxy, refusal
from lakefs_gc_tests.support.live_and_garbage import Scene
from lakefs_gc_tests.support.store_proxy import before_azurite, before_fake_gcs

_PART, _, _PARTS = os.environ.get("LAKEFS_GC_TESTS_FAULTS", "").partition("/")
_FEW_CALLS, _FEW_API_CALLS = (2, 4) if os.environ.get("CI") else (1, 2)  # one more of a 404, and one of a 410
_FEW_CASES = 4

pytestmark = pytest.mark.long(130)


def chosen(calls: int, faults: Iterable[str], few: int) -> list[tuple[int, str]]:
    """Return the calls that fail, and how: a part of all combinations, or by default a few."""
    every = [(number, fault) for fault in faults for number in range(1, calls + 1)]
    if _PART:
        return every[int(_PART) - 1 :: int(_PARTS)]
    step = len(every) // few
    return every[step // 2 :: step]


def survive(
    scene: Scene, garbage: str, spoiled: Collector, clean: Collector, heal: Callable[[], None], when: str
) -> bool:
    """Run with a fault, then without. Return whether the first run ended with the right result."""
    try:
        ended = scene.run(spoiled, garbage, when)
    except LakeFSGCError:
        ended = False
    heal()
    scene.check_live(when)
    if not ended:
        assert scene.run(clean, scene.litter(), f"after {when}"), when
        scene.check_live(f"after {when}")
    return ended


_TEXT = {"Content-Type": "text/plain"}
API_FAULTS: dict[str, Callable[[Asked, Callable[..., Answered]], Answered]] = {
    "403": lambda asked, real: refusal(403),
    "500": lambda asked, real: refusal(500),
    "cut": lambda asked, real: Answered(real().status, b"{" * 100, cut_at=1),
    "wrong": lambda asked, real: Answered(200, b"[]"),
    "nothing": lambda asked, real: Answered(200, b"{}"),
    "not found": lambda asked, real: refusal(404, "not found"),
    "not found, by a proxy": lambda asked, real: Answered(404, b"404 page not found\n", _TEXT),
    "gone": lambda asked, real: refusal(410, "gone"),
    "gone, by a proxy": lambda asked, real: Answered(410, b"<html>410 Gone</html>", _TEXT),
}


def test_each_call_of_lakefs(spark: SparkSession, tmp_path: Path) -> None:
    """A call fails once. If the run repeats the call, it also fails repeatedly, in another run."""
    with Lake(tmp_path / "lake") as lake, LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        scene = Scene.of(lake.repository())
        credentials = lake.credentials.model_copy(update={"endpoint_url": proxy.url})
        server = LakeFSClient(credentials, sleep=lambda seconds: None)

        def collector() -> Collector:
            return scene.collector(spark, server)

        def spoiled(number: int, fault: str, *, for_ever: bool) -> tuple[bool, bool]:
            """Return whether the run ended with the right result, and whether it repeated the failed call."""
            garbage = scene.litter()
            first = len(proxy.asked)
            hit: list[str] = []
            again: list[str] = []

            def spoil(asked: Asked, real: Callable[..., Answered]) -> Answered | None:
                path = asked.path.partition("?")[0]
                if len(proxy.asked) == first + number and not hit:
                    hit.append(path)
                elif not (hit and hit[0] == path):
                    return None
                else:
                    again.append(path)
                    if not for_ever:
                        return None
                return API_FAULTS[fault](asked, real)

            proxy.spoil.append(spoil)
            when = f"{fault} at call {number} of {calls}{', and from then on' if for_ever else ''}"
            ended = survive(scene, garbage, collector(), collector(), proxy.spoil.clear, when)
            assert hit, when
            return ended, bool(again)

        assert scene.run(collector(), scene.litter())
        before = len(proxy.asked)
        assert scene.run(collector(), scene.litter())  # the first run makes a call that later runs do not make
        calls = len(proxy.asked) - before
        for number, fault in chosen(calls, API_FAULTS, _FEW_API_CALLS):
            ended, again = spoiled(number, fault, for_ever=False)
            assert ended or fault != "500", "a single 500 is retried"
            if again:
                spoiled(number, fault, for_ever=True)


STORE_FAULTS: dict[str, Callable[[], Answer]] = {
    "403": lambda: error(403, "AccessDenied"),
    "404": lambda: error(404, "NoSuchKey"),
    "503": lambda: error(503, "SlowDown"),
    "cut": lambda: Answer(200, b"x" * 100, cut_at=10),
    "wrong": lambda: Answer(200, b"<Wrong/>"),
    "nothing": lambda: Answer(200, b""),
}


@pytest.mark.of_ci
@pytest.mark.executors
def test_each_call_of_the_store(spark: SparkSession, tmp_path: Path, store_in_s3: StoreInS3) -> None:
    """A fault that a retry heals occurs once, any other fault at each request for the same object."""
    with Lake(tmp_path / "lake", store_in_s3.location) as lake:
        scene = Scene.of(lake.repository())
        proxied = store_in_s3.server

        def collector() -> Collector:
            return scene.collector(spark)

        assert scene.run(collector(), scene.litter())
        garbage = scene.litter()
        proxied.requests.clear()
        assert scene.run(collector(), garbage)
        calls = len(proxied.requests)
        for number, fault in chosen(calls, STORE_FAULTS, _FEW_CALLS):
            garbage = scene.litter()
            first = len(proxied.requests)
            hit: list[tuple[str, tuple[str, ...]]] = []

            def spoil(
                request: Request,
                at: int = first + number,
                hit: list[tuple[str, tuple[str, ...]]] = hit,
                fault: str = fault,
            ) -> Answer | None:
                if len(proxied.requests) == at and not hit:
                    hit.append((request.operation, request.keys))
                elif fault == "503" or not hit or hit[0] != (request.operation, request.keys):
                    return None
                return STORE_FAULTS[fault]()

            proxied.faults.append(spoil)
            when = f"{fault} at call {number} of {calls}"
            survive(scene, garbage, collector(), collector(), proxied.faults.clear, when)
            assert hit, when


@pytest.mark.of_ci
@pytest.mark.executors
@pytest.mark.parametrize("kind", FAULTS)
def test_each_call_of_azure_and_of_google(
    kind: str, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few cases; ``python -m lakefs_gc_tests.faults`` tries all."""
    location: StoreLocation = request.getfixturevalue(f"{kind}_namespace")
    before = (
        before_azurite(request.getfixturevalue("azurite"))
        if kind == "azure"
        else before_fake_gcs(request.getfixturevalue("fake_gcs"))
    )
    with before as (proxy, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
        with Lake(tmp_path / "lake", location, SandboxOptions(grace_period_seconds=1)) as lake:
            scene = Scene.of(lake.repository(), min_age_seconds=2)
            replay = Replay(kind, spark, scene, proxy, tmp_path / "copies", garbage=_FEW_CASES + 2)
            every = list(replay.cases())
            assert len(every) > 50 * len(FAULTS[kind]), "the workers do not go through the proxy"
            step = len(every) // _FEW_CASES
            for case in every[step // 2 :: step]:
                outcome = replay.try_case(case)
                assert outcome.result in (ENDED_RIGHT, CLEAR_ERROR), outcome
            replay.prove_next_run()
