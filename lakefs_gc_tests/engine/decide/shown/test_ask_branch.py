"""Pages of a branch's list answer as the lookups of single paths do."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from pyspark.sql import SparkSession

from lakefs_gc.engine.decide.shown.ask_branch import Budget, BudgetExceededError, Lookup, ask
from lakefs_gc.engine.run import GCRun
from lakefs_gc.errors import ServerUnavailableError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import LakeRepository

_CHARACTERS = "ab/\x01 \ue000\ud7ff\U0010ffff%+\N{REPLACEMENT CHARACTER}"


class Counts(LakeFSClient):
    """Counts pages and single paths. ``omits`` are paths that its pages lack."""

    def __init__(self, repository: LakeRepository) -> None:
        super().__init__(repository.lake.credentials)
        self.pages, self.paths = list[int](), list[str]()
        self.omits = set[str]()
        self.shows_besides = dict[str, str]()
        self.is_stale = self.fails = False
        self.most = 1000

    def shown_page(
        self, repository: str, branch: str, amount: int, *, prefix: str = "", after: str = ""
    ) -> tuple[dict[str, str], bool]:
        if prefix:  # of a path that the server does not find
            return super().shown_page(repository, branch, amount, prefix=prefix)
        if self.fails:
            raise ServerUnavailableError("an address cannot be read", remedy="")
        amount = min(amount, self.most)
        shown, has_more = super().shown_page(repository, branch, amount, after="" if self.is_stale else after)
        self.pages.append(len(shown))
        return {path: url for path, url in shown.items() if path not in self.omits} | self.shows_besides, has_more

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
    found = ask(wanted, server, run, Budget(most), {})[0]
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
        for lookup, addresses in ask(wanted, server, run, Budget(None), {})[0]:
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
    assert (server.pages, len(server.paths)) == ([100, 50, 25, 12], 3)
    server.pages.clear()
    server.most = 50  # of a proxy
    assert answers(near, server, run) == {lookup.path: expected[lookup.path] for lookup in near}
    assert server.pages == [50] * 8


def test_a_path_that_a_page_lacks_is_asked_for_alone(repository: LakeRepository, server: Counts, run: GCRun) -> None:
    expected = stage(repository, [f"{number:04}" for number in range(20)])
    server.omits = {"0003", "0019"}
    assert answers(lookups(path for path in expected), server, run) == expected
    assert sorted(server.paths) == ["0003", "0019"]


def test_a_page_answers_for_no_name_that_may_be_another(repository: LakeRepository, server: Counts, run: GCRun) -> None:
    """The server shows a path with a byte that is not UTF-8 in this way."""
    expected = stage(repository, ["a", "b"])
    name = "b\N{REPLACEMENT CHARACTER}"
    server.shows_besides = {name: repository.namespace + "data/s/of-another-path"}
    assert answers(lookups(["a", "b", name]), server, run) == {**expected, name.encode(): None}


def test_a_path_that_the_api_cannot_name_is_unknown(repository: LakeRepository, server: Counts, run: GCRun) -> None:
    expected = stage(repository, ["a", "b"])
    assert answers(lookups([b"a", b"\xff", b"b"]), server, run) == {**expected, b"\xff": None}


@pytest.mark.parametrize("why", ["another question", "an error"])
def test_a_page_that_is_no_answer_answers_nothing(
    repository: LakeRepository, server: Counts, run: GCRun, why: str
) -> None:
    """The server fails for the whole page if it cannot read one address in it."""
    expected = stage(repository, [f"{number:04}" for number in range(20)])
    server.is_stale, server.fails = why == "another question", why == "an error"
    wanted = lookups(["0010", "0011", "0015"])
    assert answers(wanted, server, run) == {lookup.path: expected[lookup.path] for lookup in wanted}
    assert server.paths == ["0010", "0011", "0015"]


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
        ask(wanted, server, run, Budget(2.9), {})
    server.omits = {"0005"}
    with pytest.raises(BudgetExceededError):
        ask(wanted, server, run, Budget(3.5), {})


def test_other_paths_are_answered_on_the_way(repository: LakeRepository, server: Counts, run: GCRun) -> None:
    expected = stage(repository, [*(f"{number:03}" for number in range(120)), "z\N{REPLACEMENT CHARACTER}"])
    riders = {
        lookup.path.decode(): lookup for lookup in lookups(["000", "050", "119", "x", "z\N{REPLACEMENT CHARACTER}"])
    }
    found, on_the_way = ask(lookups(["010", "020"]), server, run, Budget(None), riders)
    assert [addresses for _, addresses in found] == [expected[b"010"], expected[b"020"]]
    assert {lookup.path: addresses for lookup, addresses in on_the_way} == {b"050": expected[b"050"]}
    assert server.pages == [100]
