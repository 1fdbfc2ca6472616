"""The repository that is written through the API has its shape, and exactly its garbage is garbage."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc_tests.benchmarks.written_repository import WrittenShape, plan, write_repository
from lakefs_gc_tests.support.lake import Lake

SHAPE = WrittenShape(objects=120, branches=12, commits=26, staged=24, garbage=17)
ROOT = "local://compared"
DAY_SECONDS = 86_400


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, str]]:
    with Lake(tmp_path_factory.mktemp("lake")) as lake:
        yield lake, write_repository(lake.credentials, SHAPE, "written", ROOT)


def shown(lake: Lake, name: str, ref: str) -> set[str]:
    """Return the addresses at a commit, or on a branch with its staged changes."""
    found: set[str] = set()
    after = ""
    while True:
        page = lake.client.objects_api.list_objects(name, ref, after=after)
        found |= {item.physical_address.removeprefix(f"{ROOT}/{name}/") for item in page.results}
        if not page.pagination.has_more:
            return found
        after = page.pagination.next_offset


def test_the_store_has_the_objects_and_the_server_the_commits(written: tuple[Lake, str]) -> None:
    lake, name = written
    client = LakeFSClient(lake.credentials)
    heads = dict(client.branch_heads(name))
    assert len(heads) == SHAPE.branches
    commits = {commit.id for head in heads.values() for commit in lake.client.refs_api.log_commits(name, head).results}
    assert len(commits) == SHAPE.commits + 1, "with the first commit of each repository"
    assert len(objects_of(lake, name)) == SHAPE.objects
    # An expired object is deleted by a commit, so each change is a staged object.
    assert sum(len(list(client.changes(name, branch))) for branch in heads) == SHAPE.staged


def test_exactly_the_garbage_is_garbage(written: tuple[Lake, str]) -> None:
    lake, name = written
    heads = dict(LakeFSClient(lake.credentials).branch_heads(name))
    live = set().union(*(shown(lake, name, branch) for branch in heads))
    log = [commit for head in heads.values() for commit in lake.client.refs_api.log_commits(name, head).results]
    old = {commit.id for commit in log if commit.creation_date < time.time() - 30 * DAY_SECONDS}
    for commit in log:
        live |= shown(lake, name, commit.id) if commit.id not in old else set()
    garbage = objects_of(lake, name) - live
    assert len(garbage) == SHAPE.garbage
    expired = garbage & set().union(*(shown(lake, name, commit) for commit in old))
    assert len(expired) == SHAPE.garbage // 2
    assert LakeFSClient(lake.credentials).retention_rules(name) == GCRules(30, {})


def objects_of(lake: Lake, name: str) -> set[str]:
    folder = lake.folder / "objects" / "compared" / name
    return {str(file.relative_to(folder)) for file in folder.glob("data/**/*") if file.is_file()}


def test_a_complete_repository_is_used_again_and_an_unfinished_one_refused(written: tuple[Lake, str]) -> None:
    lake, name = written
    before = objects_of(lake, name)
    notes: list[str] = []
    assert write_repository(lake.credentials, SHAPE, "written", ROOT, note=notes.append) == name
    assert (objects_of(lake, name), notes) == (before, [])
    other = WrittenShape(objects=5, branches=1, commits=1, staged=0, garbage=1)
    lake.repository(other.name("unfinished"))
    with pytest.raises(ConfigurationError, match="not written completely"):
        write_repository(lake.credentials, other, "unfinished", ROOT)


@pytest.mark.parametrize(
    "shape",
    [
        WrittenShape(197, 3, 30, 20, 20),
        WrittenShape(103_000, 1_000, 2_000, 25_000, 13_000),
        WrittenShape(10, 1, 1, 0, 9),
        WrittenShape(50, 2, 2, 3, 5),
    ],
)
def test_the_plan_has_the_numbers_of_the_shape(shape: WrittenShape) -> None:
    branches = plan(shape, 1_800_000_000)
    commits = [commit for branch in branches for commit in branch.commits]
    uploads = sum(len(commit.uploads) + len(commit.overwritten) for commit in commits)
    garbage = sum(len(commit.deletes) + len(commit.overwritten) for commit in commits)
    staged = sum(len(branch.staged) for branch in branches)
    assert (len(branches), len(commits)) == (shape.branches, shape.commits)
    assert (uploads + staged, staged, garbage) == (shape.objects, shape.staged, shape.garbage)
    assert all(commit.uploads for commit in commits), "an empty commit is refused"
    for branch in branches:
        dates = [commit.at_seconds for commit in branch.commits]
        assert dates == sorted(set(dates))


def test_an_impossible_shape_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Impossible shape"):
        WrittenShape(objects=10, branches=5, commits=4, staged=0, garbage=0)
    with pytest.raises(ConfigurationError, match="Impossible shape"):
        WrittenShape(objects=10, branches=1, commits=1, staged=5, garbage=5)
