"""An object that is moved once during a second look is found, whatever the look is about to ask (rule 6)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import RLock
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.references import uncommitted
from lakefs_gc.engine.sweep import second_look
from lakefs_gc.engine.sweep.at_mark import Accepted
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import Repository, UncommittedPage
from lakefs_gc_tests.support.collector import Collector
from lakefs_gc_tests.support.lake import Lake, LakeRepository

SAME_NUMBER = (
    ("hidden main", "over dev"),
    ("hidden dev", "over main"),
    ("hidden main", "hidden dev"),
    ("hidden dev", "hidden main"),
    ("omitted main", "over dev"),
    ("omitted dev", "over main"),
    ("omitted main", "hidden dev"),
    ("omitted dev", "hidden main"),
    ("omitted dev", "imported"),
    ("commit", "over main"),
    ("commit", "hidden dev"),
    ("imported", "over dev"),
    ("imported", "hidden main"),
)
"""After these moves the branches have as many changes as the server's list had rows."""
OTHERS = (
    ("staged main", "staged dev"),
    ("staged dev", "staged main"),
    ("staged main", "hidden dev"),
    ("staged dev", "over main"),
    ("staged main", "commit"),
    ("staged dev", "imported"),
    ("hidden main", "staged dev"),
    ("hidden dev", "omitted main"),
    ("hidden dev", "commit"),
    ("omitted main", "staged dev"),
    ("omitted dev", "omitted main"),
    ("omitted main", "commit"),
    ("omitted main", "new head"),
    ("commit", "staged main"),
    ("commit", "commit"),
    ("commit", "imported"),
    ("imported", "omitted main"),
    ("imported", "commit"),
)


@dataclass(frozen=True)
class Movable:
    """An object that is somewhere in a repository, and can be moved elsewhere once."""

    repository: LakeRepository
    number: int
    source: str
    destination: str

    @property
    def key(self) -> str:
        return f"data/s/{self.number}"

    @property
    def content(self) -> bytes:
        return b"x" * (100 + self.number)

    def prepare(self) -> None:
        """Commit entries that may hide the object, and have it at its first place."""
        repository, lake = self.repository, self.repository.lake
        repository.put_stray(self.key, self.content)
        if "imported" in (self.source, self.destination):
            other = lake.repository(f"other-{self.number}")
            other.put("a")
            other.commit()
        if self.destination == "new head":
            repository.branch(self.destination.replace(" ", "-"))
        if "commit" in (self.source, self.destination):
            for side in ("source", "destination"):
                repository.branch(f"{side}-{self.number}")
        for branch in ("main", "dev"):
            repository.put(f"over-{self.number}", "another", branch=branch)
        self._put(self.source, "source")

    def move(self) -> None:
        self._put(self.destination, "destination")
        place, _, branch = self.source.partition(" ")
        if place == "hidden":
            # Another hidden twin takes its place. A reset of the path would find nothing changed there.
            self.repository.put(f"hidden-{self.number}", self.content.decode(), branch=branch)
        elif place == "commit":
            self.repository.delete_branch(f"source-{self.number}")
        elif place == "imported":
            self.repository.lake.client.repositories_api.delete_repository(f"other-{self.number}")
        else:
            self.repository.delete(f"{place}-{self.number}", branch=branch)

    def _put(self, where: str, side: str) -> None:
        place, _, branch = where.partition(" ")
        repository, size_bytes = self.repository, len(self.content)
        if place == "imported":
            other = LakeRepository(repository.lake, f"other-{self.number}", f"local://other-{self.number}")
            other.stage("imported", repository.namespace + self.key, size_bytes=size_bytes)
            other.commit()
            return
        if where == "new head":
            branch = "new-head"
            repository.put(f"new-{self.number}", self.content.decode(), branch=branch)
            repository.commit(branch=branch)
        checksum = hashlib.md5(self.content).hexdigest() if place in ("hidden", "new") else ""
        branch = branch or f"{side}-{self.number}"
        repository.stage(f"{place}-{self.number}", self.key, branch=branch, size_bytes=size_bytes, checksum=checksum)
        if place == "commit":
            repository.commit(branch=branch)


class MovesBefore(LakeFSClient):
    """Calls ``move`` before the call of this ``number`` of the ``method``; ``_call`` is any request."""

    def __init__(self, repository: LakeRepository, method: str, number: int) -> None:
        super().__init__(repository.lake.credentials)
        self.calls, self.has_moved, self.list_omits = 0, False, False
        self.move: Callable[[], None] = lambda: None
        called, one = getattr(self, method), RLock()

        def moving(*arguments: Any, **options: Any) -> Any:
            with one:
                if self.calls == number:
                    self.move()
                    self.has_moved = True
                self.calls += 1
                if method != "_call":  # one after the other
                    return called(*arguments, **options)
            return called(*arguments, **options)

        setattr(self, method, moving)

    def prepare_uncommitted(self, repository: str, token: str = "") -> UncommittedPage:
        page = super().prepare_uncommitted(repository, token)
        self.list_omits = not self.has_moved
        return page


@pytest.fixture
def repository(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> LakeRepository:
    """Its server lists what is staged as servers with other stores do: not path by path."""
    monkeypatch.setattr(uncommitted, "_shown_uncommitted", lambda *_: [])
    repository = lake.repository()
    repository.keep_days(10)
    return repository


@dataclass
class Moving:
    """Objects to move, and a mark of them."""

    spark: SparkSession
    repository: LakeRepository
    moves: Sequence[tuple[str, str]]

    def __post_init__(self) -> None:
        repository = self.repository
        self.objects = [Movable(repository, place, *move) for place, move in enumerate(self.moves)]
        for movable in self.objects:
            repository.put(f"hidden-{movable.number}", movable.content.decode())
        repository.put("a")
        repository.commit()
        repository.branch("dev")
        for movable in self.objects:
            movable.prepare()
        self.collector = Collector(self.spark, repository)
        self.mark = self.collector.mark_objects(*(movable.key for movable in self.objects))

    def not_seen(self, server: MovesBefore, monkeypatch: pytest.MonkeyPatch) -> set[str]:
        """Return which moves a look has not seen. Its list of uncommitted data has no omitted entry."""

        def omitted(side: str) -> list[str]:
            return ["", *(each.key for each in self.objects if getattr(each, side).startswith("omitted"))]

        def listed(*arguments: Any, **options: Any) -> StageOutput:
            output = uncommitted.uncommitted(*arguments, **options)
            omits = F.col("address").isin(omitted("source" if server.list_omits else "destination"))
            rows, without = output.dataframe, output.dataframe.where(omits).count()
            return replace(
                output, dataframe=rows.where(~omits), facts={**output.facts, "listed": output.facts["listed"] - without}
            )

        monkeypatch.setattr(second_look, "uncommitted", listed)
        self.collector.server = server
        server.move = self.move_all
        collector, accepted = self.collector, Accepted.of(self.mark, ())
        # No entry states a wrong size: sizes decide what is looked up.
        look = second_look.second_look_at(collector.context, collector.begin(), self.mark, accepted, None)
        server.calls = 0
        suspects = [(movable.key, len(movable.content)) for movable in self.objects]
        rows = self.spark.createDataFrame(suspects, "address string, size long").localCheckpoint()
        found = {row["address"] for row in look(rows).collect()}
        return {f"{each.source} > {each.destination}" for each in self.objects if each.key not in found}

    def move_all(self) -> None:
        for movable in self.objects:
            movable.move()


@pytest.mark.parametrize(
    ("method", "number", "moves"),
    [
        # After the list and before all lookups: the number of changes stays the same.
        ("metaranges_of", 0, [("hidden main", "over dev")]),
        ("metaranges_of", 0, [("hidden main", "over dev"), ("omitted main", "over dev")]),
        ("metaranges_of", 0, [("commit", "over main"), ("imported", "over dev")]),
        # Between the lookups of the two branches.
        ("shown_page", 1, [("hidden main", "hidden dev"), ("hidden dev", "hidden main")]),
        ("shown_page", 1, [("omitted main", "hidden dev"), ("omitted dev", "hidden main")]),
        # Between the second lookups of the two branches.
        ("shown_page", 3, [("omitted main", "hidden dev"), ("omitted dev", "hidden main")]),
        # After the heads were read, and before all lookups: to a path that no head had.
        ("shown_page", 0, [("omitted main", "new head")]),
        # Before the changes are read.
        ("changes", 0, [("omitted main", "hidden dev"), ("omitted dev", "hidden main")]),
        # Between the changes of the two branches.
        ("changes", 1, [("omitted main", "omitted dev"), ("omitted dev", "omitted main")]),
    ],
)
def test_a_single_move_is_seen(
    spark: SparkSession,
    repository: LakeRepository,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    number: int,
    moves: Sequence[tuple[str, str]],
) -> None:
    server = MovesBefore(repository, method, number)
    assert not Moving(spark, repository, moves).not_seen(server, monkeypatch)
    assert server.has_moved, server.calls


@pytest.mark.parametrize(("staged", "stated_bytes"), [(10, 100), (3, 3)], ids=["too many alike", "wrong size"])
def test_a_change_that_was_not_there_at_the_first_count_is_looked_up(
    spark: SparkSession, repository: LakeRepository, staged: int, stated_bytes: int
) -> None:
    """The first count shows that the server's list is whole, and the second that something is staged since.

    ``staged`` paths are in the list, with the size of the object. It is at a path of another size, or of one that too
    many paths have.
    """
    content = "x" * 100
    repository.put("hidden", content)
    repository.commit()
    repository.branch("dev")
    for number in range(staged):
        repository.put(f"staged-{number}", "y" * 100)
    key = repository.put_stray("data/s/object", content.encode())
    server = MovesBefore(repository, "metaranges_of", 0)
    safety = repository.lake.settings.safety.model_copy(update={"max_twin_lookups": 5})
    collector = Collector(spark, repository, server=server, safety=safety)
    mark = collector.collect_and_mark()
    checksum = hashlib.md5(content.encode()).hexdigest()
    repository.stage("hidden", key, size_bytes=len(content), checksum=checksum)

    def move() -> None:
        repository.stage("moved", key, branch="dev", size_bytes=stated_bytes)
        repository.put("hidden", content)

    server.calls, server.has_moved, server.move = 0, False, move
    collector.sweep(mark)
    assert server.has_moved
    assert collector.swept == {key: "resurrected"}


@pytest.mark.of_ci
@pytest.mark.parametrize("quarter", range(4))
@pytest.mark.parametrize("moves", [SAME_NUMBER, OTHERS], ids=["same number", "others"])
def test_single_moves_before_any_request_are_seen(
    spark: SparkSession,
    repository: LakeRepository,
    monkeypatch: pytest.MonkeyPatch,
    moves: Sequence[tuple[str, str]],
    quarter: int,
) -> None:
    moving = Moving(spark, repository, moves)
    counting = MovesBefore(repository, "_call", -1)
    assert not moving.not_seen(counting, monkeypatch)
    server = MovesBefore(repository, "_call", counting.calls * (2 * quarter + 1) // 8)
    assert not moving.not_seen(server, monkeypatch)
    assert server.has_moved


def test_a_move_from_a_repository_that_the_first_list_lacks_is_seen(
    spark: SparkSession, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that is behind does not have it. It is gone when it would be read again, after the branches."""
    server = MovesBefore(repository, "other_repositories", 1)
    listed, lists = server.other_repositories, list[int]()

    def without(name: str) -> list[Repository]:
        others = listed(name)
        lists.append(len(others))
        return [] if len(lists) == 2 else others

    monkeypatch.setattr(server, "other_repositories", without)
    moving = Moving(spark, repository, [("imported", "hidden main"), ("imported", "over dev")])
    assert not moving.not_seen(server, monkeypatch)
    assert lists[:3] == [2, 2, 0], "at the beginning of the run, of the look, and after the search of branches"


def test_a_repository_that_is_there_after_all_is_missed_again(spark: SparkSession, repository: LakeRepository) -> None:
    """One that both readings of a look lack is deleted."""
    collector = Collector(spark, repository)
    run = replace(collector.begin(), repositories=("other",))
    mark = collector.mark_objects(repository.put_stray("data/s/garbage"))
    look = second_look.SecondLook(collector.context, run, None, Accepted.of(mark, ()), None)

    def lacks(*names_and_again: str, switched_off: bool = False) -> bool:
        first, again = (
            SimpleNamespace(
                manifest=SimpleNamespace(
                    facts={"repositories": dict.fromkeys(names.split()), "switched_off": switched_off}
                )
            )
            for names in names_and_again
        )
        return look._lacks_repositories(cast(Dataset, first), cast(Dataset, again))

    assert not lacks("other", "other")
    assert not lacks("", "", switched_off=True)
    assert lacks("", "other")
    assert lacks("", "other")
    assert lacks("", "")
    assert not lacks("", "")
    assert not lacks("other", "other")
    assert lacks("", ""), "it was there again"
    assert not lacks("new", "new")
    assert lacks("", "new"), "the run did not know it"
