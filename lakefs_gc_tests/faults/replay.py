"""Every call of a run to Azure's or Google's store fails, without a whole run for each of them.

A fault at a call of one stage changes nothing before that stage. So a run without faults keeps the workspace as it was
before each stage, and a case begins with the stage of its call. If the stage then ends with the same result, and no
later stage sends the failed request again, all later stages would have the same input as without the fault.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.errors import LakeFSGCError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.collector import STAGES, Collector, marked
from lakefs_gc_tests.support.lake import keys_below
from lakefs_gc_tests.support.live_and_garbage import Scene
from lakefs_gc_tests.support.store_proxy import StoreAnswer, StoreProxy, StoreRequest, azure_error, gcs_error

MARK, SWEEP = "mark", "sweep"
STEPS = (*STAGES, MARK, SWEEP)

ENDED_RIGHT, CLEAR_ERROR, WRONG, NOT_REACHED = "ended right", "clear error", "WRONG", "not reached"

_SPOILED: dict[str, Callable[[], StoreAnswer]] = {
    "cut": lambda: StoreAnswer(200, b"x" * 100, cut_at=10),
    "wrong": lambda: StoreAnswer(200, b"<Wrong/>"),
    "nothing": lambda: StoreAnswer(200),
    "no answer": lambda: StoreAnswer(200, b"x", cut_at=0),
}
FAULTS: dict[str, dict[str, Callable[[], StoreAnswer]]] = {
    "azure": {
        "403": lambda: azure_error(403, "AuthorizationPermissionMismatch"),
        "404": lambda: azure_error(404, "BlobNotFound"),
        "412": lambda: azure_error(412, "ConditionNotMet"),
        "503": lambda: azure_error(503, "ServerBusy"),
        **_SPOILED,
    },
    "gcs": {
        "403": lambda: gcs_error(403, "forbidden"),
        "404": lambda: gcs_error(404, "notFound"),
        "412": lambda: gcs_error(412, "conditionNotMet"),
        "503": lambda: gcs_error(503, "backendError"),
        "429": lambda: gcs_error(429, "rateLimitExceeded"),
        **_SPOILED,
    },
}
_ONCE = ("503", "429")
"""Faults that a retry heals. Any other fault occurs at each repetition of the request."""

_OUTCOMES_DESPITE_OBJECT = {"404": ("already_gone", "deleted"), "412": ("resurrected",)}
"""What a sweep may say of garbage that exists as it was: the store answered so."""

_RETENTION = "_lakefs/retention/"
_IDS = re.compile(r"([0-9a-f]{64})|[0-9a-f]{8}-[0-9a-f-]{27,}|[0-9a-v]{20}|[0-9a-f]{16,}|\d{4,}[T0-9.:-]*")
"""What differs from run to run, and in the group the name of a range, which does not."""


@dataclass(frozen=True, order=True)
class Case:
    """The ``call``-th request of a stage, from 1, gets an answer that the store did not give."""

    stage: str
    call: int
    fault: str


@dataclass(frozen=True)
class Outcome:
    """How a case ended, and the request that failed."""

    case: Case
    result: str
    request: str
    detail: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as one flat record."""
        return asdict(self.case) | {name: value for name, value in asdict(self).items() if name != "case"}


@dataclass(frozen=True)
class _Recorded:
    """What the stages of a run without faults read and wrote."""

    collector: Collector
    requests: Mapping[str, list[str]]
    results: Mapping[str, dict[str, Any]]
    garbage: frozenset[str]
    """What the listing found."""
    stable: Mapping[str, set[str]]
    """The paths in a result that do not change from one run to the next."""


class Replay:
    """Tries cases on one repository, with one Spark session. ``folder`` gets the copies of the workspace.

    ``kind`` is ``azure`` or ``gcs``, and ``proxy`` stands before its emulator. ``garbage`` is the number of objects
    that are written at once: a case that sweeps uses one up.
    """

    def __init__(
        self, kind: str, spark: SparkSession, scene: Scene, proxy: StoreProxy, folder: Path, garbage: int
    ) -> None:
        self.kind, self._spark, self._scene, self._proxy = kind, spark, scene, proxy
        self._work, self._copies = scene.repository.lake.folder / "work", folder
        self._number_of_garbage = garbage
        self._garbage: set[str] = set()
        self._expected = frozenset[str]()  # what the listing of the current case finds
        self._target = ""  # what its mark has
        self._run = self._record()

    # -- a run without faults

    def cases(self) -> Iterator[Case]:
        """Yield every case, in the order of the requests."""
        for stage, requests in self._run.requests.items():
            for call in range(1, len(requests) + 1):
                for fault in FAULTS[self.kind]:
                    yield Case(stage, call, fault)

    @property
    def garbage_left(self) -> int:
        """Return how many cases can still sweep, until ``prove_next_run``."""
        return len(self._garbage)

    @property
    def requests(self) -> Mapping[str, list[str]]:
        """Return the requests of a run without faults, by stage."""
        return self._run.requests

    def prove_next_run(self) -> None:
        """Run from the listing to the sweep, with all that the last cases left. All garbage must be swept."""
        self._proxy.heal()
        collector = self._collector()
        mark = collector.collect_and_mark()
        assert marked(self._scene.repository, mark) == self._garbage
        result = collector.sweep(mark, retries=0)
        result.raise_if_incomplete()
        assert self._scene.repository.objects() == set(self._scene.live), "the garbage is left, or more is lost"
        self._garbage = set()
        self._run = self._record()

    def _collector(self) -> Collector:
        # A server error that a fault caused is repeated at once.
        server = LakeFSClient(self._scene.repository.lake.credentials, sleep=lambda seconds: None)
        return self._scene.collector(self._spark, server)

    def _record(self) -> _Recorded:
        shutil.rmtree(self._work, ignore_errors=True)
        self._litter()
        first = self._collect_recorded(copy=False)
        shutil.rmtree(self._work)
        run = self._collect_recorded(copy=True)
        stable = {
            stage: {path for path, value in result.items() if first.results[stage].get(path) == value}
            for stage, result in run.results.items()
        }
        return replace(run, stable=stable)

    def _litter(self) -> None:
        for number in range(self._number_of_garbage):
            self._garbage.add(self._scene.repository.put_stray(f"data/x/garbage-{number}", b"garbage"))
        time.sleep(self._scene.min_age_seconds + 1)  # a store's times may be whole seconds

    def _collect_recorded(self, *, copy: bool) -> _Recorded:
        collector, requests, results = self._collector(), {}, {}
        mark: Mark | None = None
        self._expected = frozenset(self._garbage)
        for step in STEPS:
            if copy:
                self._copy(step)
            before = len(self._proxy.requests)
            mark = self._take(step, collector, mark)
            requests[step] = [_name(request) for request in self._proxy.requests[before:]]
            results[step] = self._result(step, collector, mark)
            if step == STAGES[-1]:
                assert collector.addresses(step) == self._expected
                self._narrow(collector)
        self._garbage &= self._scene.repository.objects()
        return _Recorded(collector, requests, results, self._expected, {})

    def _take(self, step: str, collector: Collector, mark: Mark | None) -> Mark | None:
        """Take a step. Return the mark if there is one by then."""
        if step == MARK:
            return collector.mark()
        if step == SWEEP:
            assert mark is not None
            result = collector.sweep(mark, retries=0)
            result.raise_if_incomplete()
            return mark
        collector.materialize(step)
        return None

    def _narrow(self, collector: Collector) -> None:
        """Leave one object in the candidates, ``_target``, so that a mark has that one."""
        self._target = min(self._garbage)
        output = collector.output("candidates")
        chosen = replace(output, dataframe=output.dataframe.where(F.col("address") == self._target))
        collector.workspace.write(self._spark, collector.run_key, "candidates", chosen)

    def _result(self, step: str, collector: Collector, mark: Mark | None) -> dict[str, Any]:
        """Return what a step wrote, flat: of a stage the rows and the facts of everything in the workspace."""
        if step == MARK:
            assert mark is not None
            answers = {f"answer of {check.name}": check.answer for check in mark.checks}
            texts = {f"text of {check.name}": str(check) for check in mark.checks}
            return answers | texts | {"objects": len(marked(self._scene.repository, mark))}
        if step == SWEEP:
            return {}
        result: dict[str, Any] = {}
        run = self._work / collector.run_key
        for manifest in sorted(run.glob("*/manifest.json")):
            recorded, stage = json.loads(manifest.read_text()), manifest.parent.name
            for path, value in _leaves(recorded["facts"], stage):
                result[path] = value
            rows = [
                row for name in recorded["files"] for row in pq.read_table(manifest.parent / "data" / name).to_pylist()
            ]
            kept = (row for row in rows if not str(row.get("address", "")).startswith("data/x/"))
            result[f"{stage} rows"] = sorted(map(str, kept))
            garbage = {row["address"] for row in rows if str(row.get("address", "")).startswith("data/x/")}
            result[f"{stage} garbage"] = bool(garbage) and garbage == self._expected
        return result

    # -- cases

    def try_case(self, case: Case) -> Outcome:
        """Try one case. No exception leaves it but ``KeyboardInterrupt``."""
        began = time.monotonic()
        hit: list[StoreRequest] = []
        try:
            result, detail = self._try(case, hit)
        except LakeFSGCError as error:
            result, detail = (CLEAR_ERROR if hit else WRONG), f"{type(error).__name__}: {error.message}"
            if case.fault in _ONCE:
                result = WRONG
        except Exception as error:  # any other end is a finding, and the next case still runs
            result, detail = WRONG, f"{type(error).__name__}: {str(error)[:2000]}"
        self._proxy.heal()
        existing = self._scene.repository.objects()
        if lost := self._scene.live.keys() - existing:
            result, detail = WRONG, f"live objects were deleted: {sorted(lost)}; {detail}"
        if (gone := self._garbage - existing) - {self._target}:
            result, detail = WRONG, f"objects were deleted that the mark does not have: {sorted(gone)}; {detail}"
        self._garbage -= gone
        return Outcome(case, result, _name(hit[0]) if hit else "", detail, round(time.monotonic() - began, 1))

    def _try(self, case: Case, hit: list[StoreRequest]) -> tuple[str, str]:
        step = STEPS.index(case.stage)
        collector, mark = self._run.collector, None
        self._restore(MARK if case.stage == SWEEP else case.stage)  # the sweep's mark is one of its own
        self._target = ""
        self._expected = frozenset(self._garbage) if case.stage == STAGES[0] else self._run.garbage
        if case.stage in (MARK, SWEEP):
            self._narrow(collector)
        if case.stage == SWEEP:
            mark = collector.mark()
        self._spoil(case, hit)
        for following in STEPS[step:]:
            mark = self._take(following, collector, mark)
            if following == case.stage and not hit:
                return NOT_REACHED, ""
            if following == SWEEP:
                break
            with self._without_faults():
                if not self._comes_again(hit[0], case, following) and self._is_as_recorded(following, collector, mark):
                    return ENDED_RIGHT, following
                if following == STAGES[-1]:
                    assert collector.addresses(following) == self._expected
                    self._narrow(collector)
                if mark is not None:
                    assert marked(self._scene.repository, mark) == {self._target}
        self._proxy.heal()
        outcomes = list(collector.swept.values())
        exists = self._target in self._scene.repository.objects()
        if exists and outcomes not in [[o] for o in _OUTCOMES_DESPITE_OBJECT.get(case.fault, ())]:
            return WRONG, f"the garbage exists, and the sweep says {collector.swept}"
        return ENDED_RIGHT, f"{SWEEP}: {outcomes}"

    def _comes_again(self, request: StoreRequest, case: Case, done: str) -> bool:
        """Return whether the failed request may fail again after a step."""
        if case.fault in _ONCE:
            return False
        later = STEPS[STEPS.index(done) + 1 :]
        return any(_name(request) in self._run.requests[step] for step in later)

    def _is_as_recorded(self, step: str, collector: Collector, mark: Mark | None) -> bool:
        result, recorded = self._result(step, collector, mark), self._run.results[step]
        return result.keys() == recorded.keys() and all(
            result[path] == recorded[path] for path in self._run.stable[step]
        )

    @contextmanager
    def _without_faults(self) -> Iterator[None]:
        """Look at what the run did: nothing that is asked meanwhile is a request of the run."""
        faults = list(self._proxy.faults)
        self._proxy.heal()
        yield
        self._proxy.faults += faults

    def _spoil(self, case: Case, hit: list[StoreRequest]) -> None:
        at = len(self._proxy.requests) + case.call

        def fault(request: StoreRequest) -> StoreAnswer | None:
            if not hit and len(self._proxy.requests) >= at:
                hit.append(request)
            elif not hit or case.fault in _ONCE or request.operation != hit[0].operation:
                return None
            return FAULTS[self.kind][case.fault]()

        self._proxy.faults.append(fault)

    # -- the workspace and the store as they were before a step

    def _copy(self, step: str) -> None:
        copy = self._copies / step
        shutil.rmtree(copy, ignore_errors=True)
        if self._work.exists():
            shutil.copytree(self._work, copy / "work")
        else:
            copy.mkdir(parents=True)
        (copy / "keys").write_text("\n".join(keys_below(self._scene.repository.store, _RETENTION)))

    def _restore(self, step: str) -> None:
        copy = self._copies / step
        shutil.rmtree(self._work, ignore_errors=True)
        if (copy / "work").exists():
            shutil.copytree(copy / "work", self._work)
        store, kept = self._scene.repository.store, set((copy / "keys").read_text().splitlines())
        store.delete_many([key for key in keys_below(store, _RETENTION) if key not in kept])


def _name(request: StoreRequest) -> str:
    """Return a request, with a * for each id that another run does not have."""
    return _IDS.sub(lambda found: found[1] or "*", " ".join(request.operation))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}")
    else:
        yield path, value
