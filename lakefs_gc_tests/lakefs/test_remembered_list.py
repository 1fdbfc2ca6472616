"""The lists of repositories and branches that decide about objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lakefs_gc.errors import IncompleteAnswerError, RepositoryNotFoundError, ServerError
from lakefs_gc.lakefs import remembered_list
from lakefs_gc.lakefs.models import Repository
from lakefs_gc.lakefs.remembered_list import list_of_branches, list_of_repositories


class Server:
    """Has some repositories, and lists some of them."""

    def __init__(self, *names: str) -> None:
        self.existing, self.omitted = set(names), set[str]()
        self.asked: list[str] = []
        self.cached = set[str]()
        self.pauses: list[float] = []
        self.on_pause: Callable[[float], None] = self.pauses.append
        self.list = list_of_repositories(self._read_all, self._read_one, lambda seconds: self.on_pause(seconds))

    def _read_all(self) -> list[Repository]:
        return [_repository(name) for name in sorted(self.existing - self.omitted)]

    def _read_one(self, name: str) -> Repository:
        self.asked.append(name)
        if name not in self.existing | self.cached:
            raise RepositoryNotFoundError(name)
        return _repository(name)

    def others(self) -> list[str]:
        return [name for name in self.list.having("own") if name != "own"]


def _repository(name: str) -> Repository:
    return Repository(name, f"local://{name}", "", "main", read_only=False, created_at=datetime.now(UTC))


def test_what_an_earlier_list_had_is_asked_for() -> None:
    server = Server("own", "a", "b")
    assert server.others() == ["a", "b"]
    assert not server.asked
    server.omitted = {"a"}
    with pytest.raises(IncompleteAnswerError, match=r"does not list them: a\n"):
        server.others()
    assert server.asked == ["a"] * 6
    assert server.pauses == [5, 5] * 2


def test_a_deleted_repository_is_asked_for_three_times() -> None:
    """One 404 may come from a proxy."""
    server = Server("own", "a")
    server.list.expect(["a", "gone"])
    assert server.others() == ["a"]
    assert "gone" in server.list.names
    for _ in range(3):
        server.list.expect(["gone"])
        assert server.others() == ["a"]
    assert server.asked == ["gone"] * 3
    assert server.list.names == {"own", "a"}
    server.existing.add("gone")
    assert server.others() == ["a", "gone"]
    server.omitted = {"gone"}
    with pytest.raises(IncompleteAnswerError):
        server.others()


def test_a_list_without_this_one_tells_nothing() -> None:
    server = Server("own", "a")
    server.omitted = {"own"}
    with pytest.raises(IncompleteAnswerError, match="lists 1 repositories, but not own"):
        server.others()
    server.omitted = set()
    # Refused as a whole: that the server says "not found" at the same moment proves nothing, either.
    server.others()
    server.existing = set()
    for _ in range(remembered_list._ABSENCES):
        with pytest.raises(IncompleteAnswerError, match="lists 0 repositories, but not own"):
            server.others()
    server.existing, server.omitted = {"own", "a"}, {"a"}
    with pytest.raises(IncompleteAnswerError, match="does not list them: a"):
        server.others()


def test_repositories_that_are_deleted_all_the_time() -> None:
    """lakeFS finds a deleted repository for up to 7 s more, and another one is deleted during each pause."""
    server = Server("own", *(f"ci-{number}" for number in range(9)))
    server.others()
    server.cached = {"ci-0"}
    server.existing.remove("ci-0")
    deleted = iter(range(1, 9))

    def another_is_deleted(seconds: float) -> None:
        server.pauses.append(seconds)
        if len(server.pauses) == 2:
            server.cached.discard("ci-0")
        server.existing.remove(name := f"ci-{next(deleted)}")
        server.cached.add(name)

    server.on_pause = another_is_deleted
    assert server.others() == [f"ci-{number}" for number in range(1, 9)]
    assert server.pauses == [5, 5]


@pytest.mark.parametrize("status", [401, 403])
def test_without_the_permission_it_is_unknown_whether_one_exists(status: int) -> None:
    def refuse(name: str) -> Repository:
        raise ServerError(f"read repository {name}: forbidden", remedy="ask", status=status)

    listed = list_of_repositories(lambda: [_repository("own")], refuse, lambda _: None)
    listed.expect(["a"])
    with pytest.raises(IncompleteAnswerError, match="does not list repository a") as raised:
        listed.having("own")
    assert "fs:ReadRepository" in raised.value.remedy


def test_a_repository_in_deletion_exists() -> None:
    answers = [ServerError("in deletion", remedy="doctor", status=410), RepositoryNotFoundError("gone")]

    def read(name: str) -> Repository:
        raise answers.pop(0)

    listed = list_of_repositories(lambda: [_repository("own")], read, lambda _: None)
    listed.expect(["a"])
    assert listed.having("own").keys() == {"own"}
    assert not answers


def test_what_is_gone_is_forgotten_before_the_pause() -> None:
    """Another thread may see a new repository of that name during it."""
    server = Server("own", "cached")
    server.list.expect(["gone"])
    server.others()
    server.list.expect(["gone", "cached"])
    server.existing.remove("cached")
    server.cached = {"cached"}

    def created_again(seconds: float) -> None:
        server.cached.clear()
        server.list.expect(["gone"])

    server.on_pause = created_again
    assert server.others() == []
    server.existing.add("gone")
    server.omitted = {"gone"}
    with pytest.raises(IncompleteAnswerError, match="does not list them: gone"):
        server.others()


def test_a_failure_of_the_server_is_not_an_answer() -> None:
    def fail(name: str) -> Repository:
        raise ServerError("broken", remedy="wait", status=500)

    listed = list_of_repositories(lambda: [_repository("own")], fail, lambda _: None)
    listed.expect(["a"])
    with pytest.raises(ServerError, match="broken"):
        listed.having("own")


class Branches:
    """Has some branches, and lists some of them."""

    def __init__(self, *names: str) -> None:
        self.existing, self.omitted = set(names), set[str]()
        self.list = list_of_branches("lake", self._read_all, self._read_one, _no_pause)

    def _read_all(self) -> list[tuple[str, str]]:
        return [(name, f"head-of-{name}") for name in sorted(self.existing - self.omitted)]

    def _read_one(self, name: str) -> str:
        if name not in self.existing:
            raise RepositoryNotFoundError(name)
        return f"head-of-{name}"


def _no_pause(seconds: float) -> None:
    raise AssertionError(f"lakeFS forgets a deleted branch at once, but the list waited {seconds} s")


def test_a_branch_that_an_earlier_list_had_is_asked_for() -> None:
    branches = Branches("main", "dev", "old")
    branches.list.expect(["gone"])
    assert branches.list.having("main") == {"dev": "head-of-dev", "main": "head-of-main", "old": "head-of-old"}
    branches.existing.remove("old")
    branches.omitted = {"dev"}
    with pytest.raises(IncompleteAnswerError, match="has these branches of lake, but does not list them: dev\n"):
        branches.list.having("main")
    branches.existing.remove("dev")
    assert branches.list.having("main") == {"main": "head-of-main"}
    assert branches.list.names == {"main", "dev"}, "one 404 may come from a proxy"
    branches.existing.add("dev")
    with pytest.raises(IncompleteAnswerError, match="does not list them: dev\n"):
        branches.list.having("main")


def test_each_list_lacks_another_branch_that_was_deleted_and_created_again() -> None:
    branches = Branches("main", *(f"ci-{number}" for number in range(4)))
    every = branches.list.having("main")
    lacking = iter(({"ci-0"}, {"ci-1", "ci-2"}, {"ci-3"}, set[str]()))
    read_all = branches._read_all

    def in_the_middle_of_a_reset() -> list[tuple[str, str]]:
        branches.omitted = next(lacking)
        return read_all()

    listed = replace(branches.list, read=lambda: dict(in_the_middle_of_a_reset()))
    assert listed.having("main") == every
    assert listed.having("main") == every
    lacking = iter(({"ci-0"}, {"ci-1", "ci-0"}))
    with pytest.raises(IncompleteAnswerError, match="does not list them: ci-0, ci-1\n"):
        listed.having("main")


def test_without_the_permission_it_is_unknown_whether_a_branch_exists() -> None:
    def refuse(name: str) -> str:
        raise ServerError(f"read branch {name}: forbidden", remedy="ask", status=401)

    listed = list_of_branches("lake", lambda: [("main", "head")], refuse, _no_pause)
    listed.expect(["dev"])
    with pytest.raises(IncompleteAnswerError, match="does not list branch dev of lake, and whether") as raised:
        listed.having("main")
    assert "fs:ReadBranch on all branches of lake" in raised.value.remedy
