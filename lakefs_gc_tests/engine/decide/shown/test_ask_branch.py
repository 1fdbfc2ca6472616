"""Pages of a branch's list answer as the lookups of single paths do."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.decide.shown.ask_branch import Budget, BudgetExceededError, Lookup, ask
from lakefs_gc.engine.run import GCRun
from lakefs_gc.errors import IncompleteAnswerError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.collector import Collector, LakeRepository

_CHARACTERS = "ab/\x01 \ue000\ud7ff\U0010ffff%+\N{REPLACEMENT CHARACTER}"


class Counts(LakeFSClient):
    """Counts pages and single paths. ``omits`` are paths that its pages lack."""

    def __init__(self, repository: LakeRepository) -> None:
        super().__init__(repository.lake.credentials)
        self.pages, self.paths = list[int](), list[str]()
        self.omits = set[str]()
        self.is_stale = False

    def shown_objects(
        self, repository: str, branch: str, amount: int, *, prefix: str = "", after: str = ""
    ) -> dict[str, str]:
        if prefix:  # of a path that the server does not find
            return super().shown_objects(repository, branch, amount, prefix=prefix)
        shown = super().shown_objects(repository, branch, amount, after="" if self.is_stale else after)
        self.pages.append(len(shown))
        return {path: url for path, url in shown.items() if path not in self.omits}

    def shown_address(self, repository: str, branch: str, path: str) -> str:
        self.paths.append(path)
        return super().shown_address(repository, branch, path)


@pytest.fixture
def server(repository: LakeRepository) -> Counts:
    return Counts(repository)


@pytest.fixture
def run(spark: SparkSession, repository: LakeRepository) -> GCRun:
    repository.branch("dev")
    return Collector(spark, repository).begin()


def lookups(paths: Iterable[str | bytes]) -> list[Lookup]:
    named = sorted(path.encode() if isinstance(path, str) else path for path in paths)
    return [Lookup("dev", path, 1, "") for path in named]


def answers(wanted: list[Lookup], server: LakeFSClient, run: GCRun, most: float | None = None) -> dict[bytes, object]:
    found = ask(wanted, server, run, Budget(most))
    assert len(found) == len(wanted)
    return {lookup.path: addresses for lookup, addresses in found}


def stage(repository: LakeRepository, paths: Iterable[str]) -> dict[bytes, object]:
    """Stage an address of its own at each path. Returns the answers to expect."""
    for number, path in enumerate(paths):
        repository.stage(path, f"data/s/{number}", branch="dev")
    return {path.encode(): (f"data/s/{number}",) for number, path in enumerate(paths)}


def test_pages_show_what_single_paths_show(repository: LakeRepository, server: Counts, run: GCRun) -> None:
    draw = random.Random(1)
    paths = {"".join(draw.choices(_CHARACTERS, k=draw.randint(1, 5))) for _ in range(400)}
    expected = stage(repository, sorted(paths))
    missing = {"".join(draw.choices(_CHARACTERS, k=6)) for _ in range(50)}
    for number in (1, 2, 20, 300):
        wanted = lookups({*draw.sample(sorted(paths), number), *draw.sample(sorted(missing), number // 10)})
        for lookup, addresses in ask(wanted, server, run, Budget(None)):
            unnamed = None if "\N{REPLACEMENT CHARACTER}" in lookup.path.decode() else ()
            assert addresses == expected.get(lookup.path, unnamed)
    assert server.pages


def test_near_paths_are_answered_by_few_pages_and_distant_ones_alone(
    repository: LakeRepository, server: Counts, run: GCRun
) -> None:
    expected = stage(repository, [f"{number:04}" for number in range(1500)])
    near = lookups(f"{number:04}" for number in range(300, 700, 2))
    assert answers(near, server, run) == {lookup.path: expected[lookup.path] for lookup in near}
    assert (server.pages, server.paths) == ([400], [])
    server.pages.clear()
    distant = lookups(f"{number:04}" for number in range(100, 1500, 200))
    assert answers(distant, server, run) == {lookup.path: expected[lookup.path] for lookup in distant}
    assert sum(server.pages) <= 300, "a page with one of them is followed by a smaller one"
    assert len(server.pages) + len(server.paths) == len(distant)


def test_a_path_that_a_page_lacks_is_asked_for_alone(repository: LakeRepository, server: Counts, run: GCRun) -> None:
    expected = stage(repository, [f"{number:04}" for number in range(20)])
    server.omits = {"0003", "0019"}
    assert answers(lookups(path for path in expected), server, run) == expected
    assert sorted(server.paths) == ["0003", "0019"]


def test_a_path_that_the_api_cannot_name_is_unknown(repository: LakeRepository, server: Counts, run: GCRun) -> None:
    expected = stage(repository, ["a", "b"])
    assert answers(lookups([b"a", b"\xff", b"b"]), server, run) == {**expected, b"\xff": None}


def test_the_page_of_another_question_is_no_answer(repository: LakeRepository, server: Counts, run: GCRun) -> None:
    stage(repository, [f"{number:04}" for number in range(20)])
    server.is_stale = True
    with pytest.raises(IncompleteAnswerError, match="the answer is not what follows"):
        ask(lookups(["0010", "0011"]), server, run, Budget(None))


def test_a_deleted_branch_shows_nothing(repository: LakeRepository, server: Counts, run: GCRun) -> None:
    stage(repository, ["a", "b", "c"])
    repository.delete_branch("dev")
    assert answers(lookups("abc"), server, run) == dict.fromkeys([b"a", b"b", b"c"], ())
    assert server.absences == {("lake", "dev"): 1}


def test_a_budget(repository: LakeRepository, server: Counts, run: GCRun) -> None:
    """A page of 100 counts as three lookups."""
    stage(repository, [f"{number:04}" for number in range(100)])
    wanted = lookups(f"{number:04}" for number in range(0, 100, 5))
    assert len(answers(wanted, server, run, most=3)) == 20
    with pytest.raises(BudgetExceededError):
        ask(wanted, server, run, Budget(2.9))
    server.omits = {"0005"}
    with pytest.raises(BudgetExceededError):
        ask(wanted, server, run, Budget(3.5))
