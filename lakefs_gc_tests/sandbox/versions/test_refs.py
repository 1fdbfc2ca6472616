"""Ids of commits, and ref expressions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakefs_gc.sandbox.problems import ApiError, NotFound
from lakefs_gc.sandbox.state.database import Database
from lakefs_gc.sandbox.versions.branches import new_branch
from lakefs_gc.sandbox.versions.commit_id import commit_id
from lakefs_gc.sandbox.versions.refs import (
    CommitRecord,
    Refs,
    is_branch_name,
    is_repository_name,
    is_tag_name,
)
from lakefs_gc_tests.golden import golden_file, scenarios


@pytest.mark.parametrize("scenario", scenarios())
def test_commit_ids_equal_those_of_the_recorded_server(scenario: str) -> None:
    commits = json.loads(golden_file(scenario, "api/all_commits.json"))
    assert commits
    for commit in commits:
        content = ("committer", "message", "meta_range_id", "creation_date", "metadata", "parents")
        assert commit_id(**{name: commit[name] for name in content}) == commit["id"]


def record(letter: str, *parents: str, generation: int = 1) -> CommitRecord:
    return CommitRecord(letter * 64, tuple(p * 64 for p in parents), "", "", 0, "", {}, generation)


@pytest.fixture
def refs(tmp_path: Path) -> Iterator[Refs]:
    """a <- b <- d, a <- c <- d (a merge), d <- main; the tag v1 at b; "bb" is a branch too."""
    database = Database(tmp_path / "refs.sqlite")
    refs = Refs(database)
    for commit in (record("a"), record("b", "a"), record("c", "a"), record("d", "b", "c")):
        refs.add_commit("repo", commit)
    refs.put_branch("repo", new_branch("main", "d" * 64))
    refs.put_branch("repo", new_branch("bb", "c" * 64))
    refs.put_tag("repo", "v1", "b" * 64)
    yield refs
    database.close()


@pytest.mark.parametrize(
    ("expression", "commit"),
    [
        ("main", "d"),
        ("main@", "d"),
        ("main~", "b"),
        ("main~2", "a"),
        ("main^", "b"),
        ("main^2", "c"),
        ("main^2~1", "a"),
        ("main^0", "d"),
        ("main~0", "d"),
        ("v1", "b"),
        ("v1~1", "a"),
        ("c" * 64, "c"),
        ("ccc", "c"),
        ("bb", "c"),  # a branch takes precedence over the prefix of an id
        ("bbb", "b"),
    ],
)
def test_expressions_resolve_to_commits(refs: Refs, expression: str, commit: str) -> None:
    assert refs.resolve("repo", expression).commit_id == commit * 64


def test_only_a_bare_branch_shows_its_staging_area(refs: Refs) -> None:
    assert refs.resolve("repo", "main").branch is not None
    assert refs.resolve("repo", "main$").staging_only
    for expression in ("main@", "main~0", "v1", "d" * 64):
        assert refs.resolve("repo", expression).branch is None
    with pytest.raises(ApiError, match="staging area"):
        refs.resolve_commit("repo", "main$")


@pytest.mark.parametrize("expression", ["none", "main~9", "a" * 63 + "b", "f"])
def test_a_missing_ref_is_not_found(refs: Refs, expression: str) -> None:
    with pytest.raises(NotFound):
        refs.resolve("repo", expression)


@pytest.mark.parametrize("expression", ["", "~1", "main^3", "main~x", "main@1", "main@@", "v1@", "v1$", "a b"])
def test_an_invalid_expression_is_rejected(refs: Refs, expression: str) -> None:
    with pytest.raises(ApiError) as caught:
        refs.resolve("repo", expression)
    assert caught.value.status == 400


def test_an_ambiguous_prefix_of_ids_is_not_found(refs: Refs) -> None:
    refs.add_commit("repo", CommitRecord("c" * 63 + "0", (), "", "", 0, "", {}, 1))
    with pytest.raises(NotFound):
        refs.resolve("repo", "ccc")


def test_names_are_validated_like_in_lakefs() -> None:
    assert all(map(is_repository_name, ("abc", "a-1", "0" * 63)))
    assert not any(map(is_repository_name, ("ab", "Abc", "-abc", "a_b", "a" * 64, "a/b", "abc\n")))
    assert all(map(is_branch_name, ("main", "_x", "a-b", "A1")))
    assert not any(map(is_branch_name, ("", "-a", "a/b", "a.b", "ä", "a b", "a\n")))
    assert all(map(is_tag_name, ("v1.0", "a~b", "ä")))
    assert not any(map(is_tag_name, ("@", "a.", "a.lock", "a..b", "a/b", "a@{b", "a b", "a:b", "a\tb")))


def statements_of(database: Database, work: Callable[[], object]) -> int:
    """Return the number of SQL statements of some work."""
    statements: list[str] = []
    database.connection.set_trace_callback(statements.append)
    work()
    database.connection.set_trace_callback(None)
    return len(statements)


def test_a_commit_is_read_from_the_database_once(tmp_path: Path) -> None:
    database = Database(tmp_path / "refs.sqlite")
    refs = Refs(database)
    refs.add_commit("repo", record("a"))
    assert statements_of(database, lambda: [refs.commit("repo", "a" * 64) for _ in range(3)]) == 1
    database.close()


def test_no_commit_outlives_its_repository(refs: Refs) -> None:
    assert refs.commit("repo", "d" * 64).parents == ("b" * 64, "c" * 64)
    refs.delete_repository("repo")
    with pytest.raises(NotFound):
        refs.commit("repo", "d" * 64)


def test_a_commit_that_was_rolled_back_does_not_exist(tmp_path: Path) -> None:
    database = Database(tmp_path / "refs.sqlite")
    refs = Refs(database)

    def fail_after_a_commit() -> None:
        with database.write():
            refs.add_commit("repo", record("a"))
            assert refs.commit("repo", "a" * 64).id == "a" * 64
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_a_commit()
    with pytest.raises(NotFound):
        refs.commit("repo", "a" * 64)
    database.close()
