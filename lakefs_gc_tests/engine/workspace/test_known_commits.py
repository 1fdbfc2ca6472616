"""The commits that are kept for what is shown to people save requests, and never change an answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakefs_gc.engine.collect.references.commit_graph import CommitGraph
from lakefs_gc.engine.explain.history import History
from lakefs_gc.engine.workspace import known_commits
from lakefs_gc.engine.workspace.history_index import HistoryIndex
from lakefs_gc.engine.workspace.known_commits import keep_commits, read_commits
from lakefs_gc.formats.addresses import spellings
from lakefs_gc.lakefs.active_commits import Commit
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.lake import Lake

NAMESPACE = "s3://bucket/lake/"
FIRST = Commit("first", (), datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=UTC))
SECOND = Commit("second", ("first",), datetime(2021, 1, 1, tzinfo=UTC), "metarange", 0)
MERGE = Commit("merge", ("second", "first"), datetime(1969, 1, 1, tzinfo=UTC), "other")
COMMITS = {commit.id: commit for commit in (FIRST, SECOND, MERGE)}


@pytest.fixture
def workspace(tmp_path: Path) -> ObjectStore:
    (tmp_path / "work").mkdir()
    return open_store(StoreLocation((tmp_path / "work").as_uri()))


def file_of(workspace: ObjectStore) -> Path:
    [key] = [key for batch in workspace.list("_history_index/") for key in batch.column("address").to_pylist()]
    return Path(workspace.location.url.removeprefix("file://"), key)


def test_commits_are_kept_as_they_are(workspace: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_commits(workspace, NAMESPACE) == {}
    keep_commits(workspace, NAMESPACE, COMMITS)
    assert read_commits(workspace, NAMESPACE) == COMMITS
    assert read_commits(workspace, "s3://bucket/lake-2/") == {}
    before = file_of(workspace).stat().st_ino
    keep_commits(workspace, NAMESPACE, {"first": FIRST})
    assert (read_commits(workspace, NAMESPACE), file_of(workspace).stat().st_ino) == (COMMITS, before), "nothing is new"
    monkeypatch.setattr(known_commits, "_MOST_COMMITS", 3)
    keep_commits(workspace, NAMESPACE, COMMITS | {"third": Commit("third", (), FIRST.creation_date)})
    assert read_commits(workspace, NAMESPACE) == COMMITS, "too many are not kept"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"PAR1",
        lambda data: data.replace(b"metarange", b"netarange"),
    ],
    ids=["cut", "no file", "a flipped bit"],
)
def test_what_is_damaged_is_not_used(
    workspace: ObjectStore, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    keep_commits(workspace, NAMESPACE, COMMITS)
    file = file_of(workspace)
    file.write_bytes(damage(file.read_bytes()))
    assert read_commits(workspace, NAMESPACE) == {}
    assert "is damaged" in caplog.text


def test_a_history_without_an_ancestor_is_not_used(workspace: ObjectStore) -> None:
    keep_commits(workspace, NAMESPACE, {"second": SECOND})
    assert read_commits(workspace, NAMESPACE) == {}


def test_a_question_reads_only_new_commits_and_shows_none_that_is_gone(
    tmp_path: Path, workspace: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Lake(tmp_path / "lake") as lake:
        repository = lake.repository()
        for number in range(30):
            repository.put("path", str(number))
            kept = repository.commit()
        repository.branch("work")
        repository.put("other", branch="work")
        of_branch = repository.commit(branch="work")
        server = LakeFSClient(lake.credentials)
        pages: list[str] = []
        read_page = server.log_page

        def counted(name: str, start: str, **options: object) -> object:
            pages.append(start)
            return read_page(name, start, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(server, "log_page", counted)
        folders = spellings(repository.namespace, repository.location.url)
        known = KnownFolders(repository.namespace, repository.location, folders, (), ())
        store = open_store(repository.location)

        def history() -> History:
            pages.clear()
            index = HistoryIndex.read(workspace, known)
            commits = read_commits(workspace, NAMESPACE)
            read = History.read(server, repository.name, store, known, index, 1000, known_commits=commits)
            keep_commits(workspace, NAMESPACE, read.commits)
            return read

        first = history()
        assert {kept, of_branch} <= first.commits.keys()
        assert len(pages) > 2
        assert (history().commits, pages) == (first.commits, [])
        repository.put("new")
        new = repository.commit()
        repository.delete_branch("work")
        now = history()
        assert pages == [new]
        assert (new in now.commits, of_branch in now.commits) == (True, False)
        graph = CommitGraph(1000)
        graph.add_history_of(server, repository.name, now.heads.values())
        assert now.commits == graph.commits
