"""The list of repositories that decides about objects."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lakefs_gc.errors import IncompleteAnswerError, RepositoryNotFoundError, ServerError
from lakefs_gc.lakefs.models import Repository
from lakefs_gc.lakefs.repository_list import RepositoryList


class Server:
    """Has some repositories, and lists some of them."""

    def __init__(self, *names: str) -> None:
        self.existing, self.omitted = set(names), set[str]()
        self.asked: list[str] = []
        self.pauses: list[float] = []
        self.list = RepositoryList(self._read_all, self._read_one, self.pauses.append)

    def _read_all(self) -> list[Repository]:
        return [_repository(name) for name in sorted(self.existing - self.omitted)]

    def _read_one(self, name: str) -> Repository:
        self.asked.append(name)
        if name not in self.existing:
            raise RepositoryNotFoundError(name)
        return _repository(name)

    def others(self) -> list[str]:
        return [other.name for other in self.list.without("own")]


def _repository(name: str) -> Repository:
    return Repository(name, f"local://{name}", "", "main", read_only=False, created_at=datetime.now(UTC))


def test_what_an_earlier_list_had_is_asked_for() -> None:
    server = Server("own", "a", "b")
    assert server.others() == ["a", "b"]
    assert not server.asked
    server.omitted = {"a"}
    with pytest.raises(IncompleteAnswerError, match=r"no longer lists them: a\n"):
        server.others()
    assert server.asked == ["a"] * 3
    assert server.pauses == [5, 5]


def test_a_deleted_repository_is_asked_for_only_once() -> None:
    server = Server("own", "a")
    server.list.expect(["a", "gone"])
    assert server.others() == ["a"]
    assert server.others() == ["a"]
    assert server.asked == ["gone"]
    server.existing.add("gone")
    assert server.others() == ["a", "gone"]
    server.omitted = {"gone"}
    with pytest.raises(IncompleteAnswerError):
        server.others()


def test_a_list_without_this_one_tells_what_else_exists() -> None:
    server = Server("own", "a")
    server.omitted = {"own"}
    with pytest.raises(IncompleteAnswerError, match="lists 1 repositories, but not own"):
        server.others()
    server.omitted = {"a"}
    with pytest.raises(IncompleteAnswerError, match="no longer lists them: a"):
        server.others()


@pytest.mark.parametrize("status", [401, 403])
def test_without_the_permission_it_is_unknown_whether_one_exists(status: int) -> None:
    def refuse(name: str) -> Repository:
        raise ServerError(f"read repository {name}: forbidden", remedy="ask", status=status)

    listed = RepositoryList(lambda: [_repository("own")], refuse, lambda _: None)
    listed.expect(["a"])
    with pytest.raises(IncompleteAnswerError, match="no longer lists repository a") as raised:
        listed.without("own")
    assert "fs:ReadRepository" in raised.value.remedy


def test_a_failure_of_the_server_is_not_an_answer() -> None:
    def fail(name: str) -> Repository:
        raise ServerError("broken", remedy="wait", status=500)

    listed = RepositoryList(lambda: [_repository("own")], fail, lambda _: None)
    listed.expect(["a"])
    with pytest.raises(ServerError, match="broken"):
        listed.without("own")
