"""The heads that a look sees and searches (rules 6 and 12)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakefs_gc.engine.sweep.look_heads import LookHeads
from lakefs_gc_tests.support.denied_branch import DenyingClient
from lakefs_gc_tests.support.lake import LakeRepository


class Lacking(DenyingClient):
    """Its next lists lack ``dev``, which exists."""

    lists = 0

    def branch_heads(self, repository: str) -> Iterator[tuple[str, str]]:
        self.lists -= 1
        return ((name, head) for name, head in super().branch_heads(repository) if name != "dev" or self.lists < 0)


@pytest.fixture
def server(repository: LakeRepository) -> Lacking:
    repository.put("a")
    repository.commit()
    repository.branch("dev")
    return Lacking(repository, "dev")


def test_what_no_search_had_is_unsearched(server: Lacking) -> None:
    heads = LookHeads(server, "lake")
    first = server.heads_of("lake")
    assert heads.unsearched() == [first]
    with heads.searching() as searched:
        searched.add(("main", first["main"]))
    assert heads.unsearched() == [{"dev": first["dev"]}]


def test_heads_of_a_branch_are_in_several_parts(server: Lacking, repository: LakeRepository) -> None:
    heads = LookHeads(server, "lake")
    lists = [server.heads_of("lake")]
    repository.put("b")
    repository.commit()
    lists.append(server.heads_of("lake"))
    first, second = heads.unsearched()
    assert first.keys() == {"main", "dev"}
    assert second.keys() == {"main"}
    assert {first["main"], second["main"]} == {each["main"] for each in lists}


def test_a_branch_that_was_denied_was_not_searched(server: Lacking) -> None:
    heads = LookHeads(server, "lake")
    seen = server.heads_of("lake")
    with heads.searching() as searched, server.denying():
        searched.update(seen.items())
        assert not server.is_change("lake", "dev", "a")
    assert heads.unsearched() == [{"dev": seen["dev"]}]
    with heads.searching() as searched:
        searched.update(seen.items())
    assert not heads.unsearched()


def test_a_search_that_fails_does_not_count(server: Lacking) -> None:
    heads = LookHeads(server, "lake")
    seen = server.heads_of("lake")

    def search() -> None:
        with heads.searching() as searched:
            searched.update(seen.items())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        search()
    assert heads.unsearched() == [seen]


def test_a_deleted_branch_is_not_searched(server: Lacking, repository: LakeRepository) -> None:
    heads = LookHeads(server, "lake")
    seen = server.heads_of("lake")
    repository.delete_branch("dev")
    for _ in range(2):
        server.heads_of("lake")
    assert heads.unsearched() == [seen], "two 404s prove nothing"
    server.heads_of("lake")
    assert heads.unsearched() == [{"main": seen["main"]}]


def test_heads_of_a_list_that_is_not_accepted(
    server: Lacking, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lacks a branch that exists. The list that replaces it has other heads."""
    server.heads_of("lake")
    heads = LookHeads(server, "lake")
    listed = server.branch_heads

    def moving(name: str) -> Iterator[tuple[str, str]]:
        for branch in ("main", "dev"):
            repository.put("b", f"{server.lists}", branch=branch)
            repository.commit(branch=branch)
        return listed(name)

    monkeypatch.setattr(server, "branch_heads", moving)
    server.lists = 1
    new = server.heads_of("lake")
    seen = {item for part in heads.unsearched() for item in part.items()}
    assert new.items() < seen
    assert len(seen) == 4, "main of the first list, dev when it was asked for, and both of the next list"


def test_heads_of_an_earlier_look(server: Lacking, repository: LakeRepository) -> None:
    LookHeads(server, "lake")
    server.heads_of("lake")
    repository.put("b")
    repository.commit()
    heads = LookHeads(server, "lake")
    assert heads.unsearched() == []
    seen = server.heads_of("lake")
    assert heads.unsearched() == [seen]
