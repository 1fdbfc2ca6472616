"""The preparations of the sandbox for collectors, beyond the recordings."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lakefs_gc.formats.commits_csv import read_active_commits
from lakefs_gc.formats.gc_rules import RULES_KEY, GCRules, decode_rules
from lakefs_gc.formats.ids import reversed_id_time
from lakefs_gc.formats.uncommitted_parquet import read_uncommitted
from lakefs_gc.sandbox.context import Sandbox, SandboxOptions
from lakefs_gc.sandbox.data import garbage, objects
from lakefs_gc.sandbox.data.objects import Staged
from lakefs_gc.sandbox.problems import ApiError, NotFound
from lakefs_gc.sandbox.versions import branches, commits
from lakefs_gc.sandbox.versions.commits import CommitParameters
from lakefs_gc.sandbox.versions.refs import Repository
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.fake_clock import FakeClock

NAMESPACE = "local://demo"
MAX_PAGES = 100


@pytest.fixture
def sandbox(tmp_path: Any, clock: FakeClock) -> Iterator[Sandbox]:
    options = SandboxOptions(uncommitted_page_bytes=200, stage_inside_namespace=True)
    opened = Sandbox(tmp_path / "state", StoreLocation((tmp_path / "objects").as_uri()), options=options, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def repository(sandbox: Sandbox) -> Repository:
    repository = Repository("demo", NAMESPACE, "main", sandbox.now_seconds(), read_only=False)
    sandbox.refs.add_repository(repository)
    commit = commits.first_commit(sandbox)
    sandbox.refs.add_commit("demo", commit)
    for name in ("main", "dev", "zz-hidden"):
        branch = branches.new_branch(name, commit.id, hidden=name == "zz-hidden")
        sandbox.refs.put_branch("demo", branch)
    return repository


def stage(sandbox: Sandbox, repository: Repository, branch: str, path: str, address: str = "") -> str:
    relative = address or f"data/slice/{branch}-{path}"
    url = relative if "://" in relative else f"{NAMESPACE}/{relative}"
    objects.stage(sandbox, repository, branch, Staged(path, url, checksum=relative, size_bytes=1))
    return relative


def pages(sandbox: Sandbox, repository: Repository) -> list[list[str]]:
    """Return the addresses of each page. The files of a run share a folder, so a page is the difference to before."""
    store = sandbox.namespaces.store(NAMESPACE)
    listed: list[list[str]] = []
    seen: set[str] = set()
    position: garbage.Position | None = None
    run_id = ""
    for _ in range(MAX_PAGES):
        page = garbage.prepare_uncommitted(sandbox, repository, position)
        assert run_id in ("", page.run_id), "the pages of a run share its id"
        run_id = page.run_id
        if page.location:
            folder = page.location.removeprefix(NAMESPACE + "/")
            assert folder == f"_lakefs/retention/gc/uncommitted/{run_id}/uncommitted/"
            files = {key for batch in store.list(folder) for key in batch.column("address").to_pylist()}
            [new] = files - seen
            seen = files
            listed.append(read_uncommitted(store.read(new), new).column("address").to_pylist())
        if not page.continuation_token:
            assert reversed_id_time(run_id) == sandbox.clock()
            return listed
        position = garbage.decode_position(page.continuation_token)
    raise AssertionError("the pages do not come to an end")


def test_pages_hold_every_staged_address_once(sandbox: Sandbox, repository: Repository) -> None:
    expected = [
        stage(sandbox, repository, branch, f"p/{i:02}") for branch in ("dev", "main", "zz-hidden") for i in range(10)
    ]
    listed = pages(sandbox, repository)
    assert len(listed) > 3
    assert [address for page in listed for address in page] == expected


def test_even_the_smallest_page_makes_progress(sandbox: Sandbox, repository: Repository) -> None:
    long = [stage(sandbox, repository, "main", f"p/{i}", f"data/slice/{i}{'x' * 300}") for i in range(4)]
    assert pages(sandbox, repository) == [[address] for address in long]


def test_even_the_shortest_time_makes_progress(
    sandbox: Sandbox, repository: Repository, tmp_path: Any, clock: FakeClock
) -> None:
    expected = [stage(sandbox, repository, "main", f"p/{i}") for i in range(5)]
    options = SandboxOptions(uncommitted_page_seconds=0, stage_inside_namespace=True)
    location = StoreLocation((tmp_path / "objects").as_uri())
    hurried = Sandbox(tmp_path / "state", location, options=options, clock=clock)
    assert pages(hurried, repository) == [[address] for address in expected]
    hurried.close()


def test_only_changed_entries_inside_the_namespace_are_listed(sandbox: Sandbox, repository: Repository) -> None:
    committed = stage(sandbox, repository, "main", "same")
    stage(sandbox, repository, "main", "deleted")
    commits.commit(sandbox, repository, "main", CommitParameters("one"))
    again = Staged("same", f"{NAMESPACE}/data/slice/other", checksum=committed, size_bytes=1)
    objects.stage(sandbox, repository, "main", again)  # same identity: in no diff, as in lakeFS
    stage(sandbox, repository, "main", "outside", "local://demo-evil/data/x/y")
    inside = stage(sandbox, repository, "main", "inside", "deep/er/object")  # stored with its full address
    objects.delete(sandbox, repository, "main", ["deleted"])
    assert pages(sandbox, repository) == [[inside]]


def test_a_preparation_without_staged_entries_writes_no_file(sandbox: Sandbox, repository: Repository) -> None:
    page = garbage.prepare_uncommitted(sandbox, repository)
    assert (page.location, page.continuation_token) == ("", "")


BAD_POSITIONS: list[Any] = [{}, [], {"run_id": "../up", "branch": "main"}, {"run_id": "", "branch": "main"}]
BAD_TOKENS = ["%%%", base64.b64encode(b"no json").decode()]
BAD_TOKENS += [base64.b64encode(json.dumps(position).encode()).decode() for position in BAD_POSITIONS]


@pytest.mark.parametrize("token", BAD_TOKENS)
def test_an_invalid_token_is_rejected(token: str) -> None:
    with pytest.raises(ApiError) as caught:
        garbage.decode_position(token)
    assert (caught.value.status, caught.value.message) == (400, "invalid continuation token")


def test_active_commits_follow_the_rules_and_the_clock(
    sandbox: Sandbox, repository: Repository, clock: FakeClock
) -> None:
    with pytest.raises(ApiError, match="get gc rules: not found"):
        garbage.prepare_commits(sandbox, repository)
    ids = []
    for i in range(4):
        stage(sandbox, repository, "main", f"p/{i}")
        ids.append(commits.commit(sandbox, repository, "main", CommitParameters(f"c{i}")).id)
        clock.advance(days=10)
    garbage.set_rules(sandbox, repository, GCRules(1, {"main": 15}))
    first = sandbox.refs.branch("demo", "dev").commit_id
    assert active(sandbox, repository) == {first, ids[2], ids[3]}
    clock.advance(days=30)
    assert active(sandbox, repository) == {first, ids[3]}
    branches.hard_reset(sandbox, repository, "main", ids[0])
    assert active(sandbox, repository) == {first, ids[0]}


def active(sandbox: Sandbox, repository: Repository) -> set[str]:
    prepared = garbage.prepare_commits(sandbox, repository)
    key = prepared.commits_location.removeprefix(NAMESPACE + "/")
    assert key == f"_lakefs/retention/gc/commits/run_id={prepared.run_id}/commits.csv"
    rows = read_active_commits(sandbox.namespaces.store(NAMESPACE).read(key), key).to_pylist()
    for row in rows:
        assert row["metarange_id"] == sandbox.refs.commit("demo", row["commit_id"]).meta_range_id
    return {row["commit_id"] for row in rows}


def test_rules_are_stored_at_the_key_of_lakefs(sandbox: Sandbox, repository: Repository) -> None:
    rules = GCRules(7, {"main": 30})
    garbage.set_rules(sandbox, repository, rules)
    store = sandbox.namespaces.store(NAMESPACE)
    assert decode_rules(store.read(RULES_KEY)) == garbage.rules(sandbox, repository) == rules
    garbage.set_rules(sandbox, repository, None)
    assert store.read(RULES_KEY) == b""
    with pytest.raises(NotFound):
        garbage.rules(sandbox, repository)


def test_a_restart_ends_interrupted_tasks(
    sandbox: Sandbox, repository: Repository, tmp_path: Any, clock: FakeClock
) -> None:
    sandbox.tasks.begin("demo", "GCPC-cut-short", {"task_id": "GCPC-cut-short"})
    sandbox.tasks.begin("demo", "GCPC-done", {"task_id": "GCPC-done"})
    sandbox.tasks.complete("demo", "GCPC-done", {"result": {"run_id": "r"}})
    again = Sandbox(tmp_path / "state", StoreLocation((tmp_path / "objects").as_uri()), clock=clock)
    status = again.tasks.status("demo", "GCPC-cut-short")
    assert status["completed"]
    assert "restart" in status["error"]["message"]
    assert "error" not in again.tasks.status("demo", "GCPC-done")
    again.close()


def test_a_commit_is_atomic_during_writes_to_its_branch(sandbox: Sandbox, repository: Repository) -> None:
    """During commits, every staged address is in one of the two lists, read in the order of a collector."""
    garbage.set_rules(sandbox, repository, GCRules(100))
    addresses = {stage(sandbox, repository, "main", f"p/{i:02}") for i in range(20)}
    stop = threading.Event()
    failures: list[str] = []

    def collect() -> None:
        while not stop.is_set():
            expected = set(addresses)
            uncommitted = {address for page in pages(sandbox, repository) for address in page}
            committed = set()
            for commit in active(sandbox, repository):
                tree = sandbox.refs.commit("demo", commit).meta_range_id
                records = sandbox.committed(repository).records(tree)
                committed |= {record.entry.address for record in records}
            failures.extend(expected - uncommitted - committed)

    collector = threading.Thread(target=collect)
    collector.start()
    for i in range(30):
        addresses.add(stage(sandbox, repository, "main", f"q/{i}"))
        if i % 2:
            commits.commit(sandbox, repository, "main", CommitParameters(f"c{i}"))
    stop.set()
    collector.join()
    assert failures == []
