"""Every call of a mark and its sweep fails once, or from then on, in each way: never is a live object gone.

The calls of a clean run are counted first; then each of them is spoiled in each way, in a run of its own.  No run has a
range cache: with one, only the first would read any.  That is many hundreds of runs: a few of them are made, unless
``LAKEFS_GC_TESTS_FAULTS`` says otherwise.  ``1/1`` makes all, ``3/20`` the third of twenty parts: twenty sessions with
a part each have made all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.retry import RetryPolicy
from lakefs_gc_tests.support import impatient_daemon
from lakefs_gc_tests.support.collector import Collector, Lake
from lakefs_gc_tests.support.faulty_s3 import Answer, Request, error
from lakefs_gc_tests.support.faulty_store import StoreInS3
from lakefs_gc_tests.support.lakefs_proxy import Answered, Asked, LakeFSProxy, refusal
from lakefs_gc_tests.support.live_and_garbage import Scene

_PART, _, _PARTS = os.environ.get("LAKEFS_GC_TESTS_FAULTS", "").partition("/")
_FEW = 2

pytestmark = pytest.mark.long(130)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver pauses for as little as the workers."""
    monkeypatch.setattr(RetryPolicy, "pause_seconds", impatient_daemon.pause_seconds)


def chosen(calls: int, faults: Iterable[str]) -> list[tuple[int, str]]:
    """Which calls to spoil, and how: a part of them, or a few."""
    every = [(number, fault) for fault in faults for number in range(1, calls + 1)]
    if _PART:
        return every[int(_PART) - 1 :: int(_PARTS)]
    step = len(every) // _FEW
    return every[step // 2 :: step]


def survive(
    scene: Scene, garbage: str, spoiled: Collector, clean: Collector, heal: Callable[[], None], when: str
) -> bool:
    """Run with a fault, then without; whether the first one ended right."""
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


API_FAULTS: dict[str, Callable[[Asked, Callable[..., Answered]], Answered]] = {
    "403": lambda asked, real: refusal(403),
    "500": lambda asked, real: refusal(500),
    "cut": lambda asked, real: Answered(real().status, b"{" * 100, cut_at=1),
    "wrong": lambda asked, real: Answered(200, b"[]"),
    "nothing": lambda asked, real: Answered(200, b"{}"),
}


def test_each_call_of_lakefs(spark: SparkSession, tmp_path: Path) -> None:
    """Once; and from then on, for the same path, where that is asked for again."""
    with Lake(tmp_path / "lake") as lake, LakeFSProxy(lake.credentials.endpoint_url) as proxy:
        scene = Scene.of(lake.repository())
        credentials = lake.credentials.model_copy(update={"endpoint_url": proxy.url})
        server = LakeFSClient(credentials, sleep=lambda seconds: None)

        def collector() -> Collector:
            return scene.collector(spark, server)

        def spoiled(number: int, fault: str, *, for_ever: bool) -> tuple[bool, bool]:
            """Whether that run ended right, and whether it asked again for what was spoiled."""
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
        assert scene.run(collector(), scene.litter())  # the first one has had a call of its own
        calls = len(proxy.asked) - before
        for number, fault in chosen(calls, API_FAULTS):
            ended, again = spoiled(number, fault, for_ever=False)
            assert ended or fault != "500", "one 500 is tried again"
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


def test_each_call_of_the_store(spark: SparkSession, tmp_path: Path, store_in_s3: StoreInS3) -> None:
    """Once for what a retry heals; else from then on, for that object."""
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
        for number, fault in chosen(calls, STORE_FAULTS):
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
