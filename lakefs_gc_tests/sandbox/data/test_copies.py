"""Copies that share an address: no preparation misses a renamed object."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefs_gc.errors import ObjectNotFoundError
from lakefs_gc.formats.uncommitted_parquet import read_uncommitted
from lakefs_gc.sandbox.context import Sandbox, SandboxOptions
from lakefs_gc.sandbox.data import garbage, objects
from lakefs_gc.sandbox.data.garbage import PreparedPage
from lakefs_gc.sandbox.data.objects import Replacing, Upload
from lakefs_gc.sandbox.problems import ApiError
from lakefs_gc.sandbox.state.records import Record
from lakefs_gc.sandbox.versions import branches, commits
from lakefs_gc.sandbox.versions.commits import CommitParameters
from lakefs_gc.sandbox.versions.refs import Repository
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.fake_clock import FakeClock

NAMESPACE = "local://demo"
DAY_SECONDS = 86_400


class Lake:
    """A sandbox with a repository whose preparations have a row on each page."""

    def __init__(self, folder: Path, clock: FakeClock, options: SandboxOptions) -> None:
        location = StoreLocation((folder / "objects").as_uri())
        self.sandbox = Sandbox(folder / "state", location, options=options, clock=clock)
        self.repository = Repository("demo", NAMESPACE, "main", self.sandbox.now_seconds(), read_only=False)
        self.sandbox.refs.add_repository(self.repository)
        self.first = commits.first_commit(self.sandbox)
        self.sandbox.refs.add_commit("demo", self.first)
        self.branch("main")
        self.seen: set[str] = set()

    def branch(self, name: str, *, hidden: bool = False) -> None:
        self.sandbox.refs.put_branch("demo", branches.new_branch(name, self.first.id, hidden=hidden))

    def put(self, path: str, branch: str = "main") -> str:
        with (self.sandbox_file(path)).open("rb") as content:
            return objects.upload(self.sandbox, self.repository, branch, Upload(path), content).entry.address

    def sandbox_file(self, path: str) -> Path:
        file = Path(self.sandbox.namespaces.root.url.removeprefix("file://")).parent / "upload"
        file.write_text(path)
        return file

    def copy(self, source: str, path: str, source_ref: str = "", replacing: Replacing | None = None) -> Record:
        return objects.copy(self.sandbox, self.repository, "main", path, source_ref, source, replacing=replacing)

    def delete(self, path: str, branch: str = "main") -> None:
        objects.delete(self.sandbox, self.repository, branch, [path])

    def rename(self, source: str, path: str) -> None:
        self.copy(source, path)
        self.delete(source)

    def page(self, token: str = "") -> tuple[list[str], PreparedPage]:
        """Return the addresses that the next page of a preparation adds, and the page."""
        position = garbage.decode_position(token) if token else None
        page = garbage.prepare_uncommitted(self.sandbox, self.repository, position)
        if not page.location:
            return [], page
        store = self.sandbox.namespaces.store(NAMESPACE)
        folder = page.location.removeprefix(NAMESPACE + "/")
        files = {key for batch in store.list(folder) for key in batch.column("address").to_pylist()}
        [new] = files - self.seen
        self.seen |= files
        return read_uncommitted(store.read(new), new).column("address").to_pylist(), page

    def prepare(self, token: str = "") -> list[str]:
        """Return the addresses of all pages that follow."""
        addresses, page = self.page(token)
        while page.continuation_token:
            more, page = self.page(page.continuation_token)
            addresses += more
        return addresses

    def tracked(self) -> list[str]:
        return [address for address, _ in self.sandbox.copies.addresses("demo")]


@pytest.fixture
def lake(tmp_path: Path, clock: FakeClock) -> Iterator[Lake]:
    opened = Lake(tmp_path, clock, SandboxOptions(uncommitted_page_bytes=0))
    yield opened
    opened.sandbox.close()


def test_a_copy_of_a_staged_object_within_its_branch_shares_the_address(lake: Lake) -> None:
    address = lake.put("a")
    assert lake.copy("a", "b").entry.address == address
    assert lake.copy("a", "c", "main").entry.address == address
    changed = lake.copy("a", "d", replacing=Replacing("text/csv", {"k": "v"})).entry
    assert (changed.address, changed.content_type, changed.metadata) == (address, "text/csv", {"k": "v"})
    assert lake.tracked() == [address]


def test_every_other_copy_is_a_new_object(lake: Lake) -> None:
    lake.branch("dev")
    committed, elsewhere = lake.put("committed"), lake.put("x", "dev")
    commits.commit(lake.sandbox, lake.repository, "main", CommitParameters("one"))
    lake.put("x")  # the same path, staged on the branch of the copy
    copies = [
        lake.copy("committed", "1").entry.address,
        lake.copy("committed", "2", "main").entry.address,
        lake.copy("x", "3", "dev").entry.address,
    ]
    assert len({committed, elsewhere, *copies}) == 5
    assert lake.tracked() == []
    store = lake.sandbox.namespaces.store(NAMESPACE)
    assert [store.read(address) for address in copies] == [b"committed", b"committed", b"x"]
    lake.delete("committed")
    with pytest.raises(ApiError, match="not found"):
        lake.copy("committed", "4")


def test_a_rejected_copy_is_not_tracked(lake: Lake) -> None:
    lake.put("a")
    with pytest.raises(ApiError, match="above maximum length"):
        lake.copy("a", "x" * 2000)
    assert lake.tracked() == []


def test_a_rename_between_pages_loses_nothing(lake: Lake) -> None:
    addresses = [lake.put(path) for path in ("b", "c", "z")]
    first, page = lake.page()
    assert first == addresses[:1]
    lake.rename("z", "a")  # from an unread part to a part that was already read
    assert set(first + lake.prepare(page.continuation_token)) == set(addresses)


def test_copies_are_read_after_all_staged_entries_in_separate_pages(lake: Lake) -> None:
    addresses = [lake.put(f"p/{i}") for i in range(3)]
    for i in range(3):
        lake.rename(f"p/{i}", f"q/{i}")
    assert lake.prepare() == addresses + sorted(addresses)
    addresses.append(lake.put("z"))
    pages, page = lake.page()
    while not garbage.decode_position(page.continuation_token).copy:
        more, page = lake.page(page.continuation_token)
        pages += more
    lake.rename("z", "a")  # all staged entries have been read
    assert set(pages) == set(addresses)
    lake.prepare(page.continuation_token)


def test_no_order_of_renames_and_pages_loses_an_object(tmp_path: Path, clock: FakeClock) -> None:
    for seed in range(5):
        chance = random.Random(seed)
        lake = Lake(tmp_path / str(seed), clock, SandboxOptions(uncommitted_page_bytes=0))
        live = {f"{chance.random():.6f}": "" for _ in range(12)}
        for path in live:
            live[path] = lake.put(path)
        expected = set(live.values())
        found, page = lake.page()
        while page.continuation_token:
            for _ in range(chance.randrange(3)):
                source, target = chance.choice(sorted(live)), f"{chance.random():.6f}"
                lake.rename(source, target)
                live[target] = live.pop(source)
            more, page = lake.page(page.continuation_token)
            found += more
        assert expected <= set(found), f"seed {seed}"
        lake.sandbox.close()


def test_a_copy_is_tracked_for_longer_than_the_grace_period(lake: Lake, clock: FakeClock) -> None:
    address = lake.put("a")
    lake.rename("a", "b")
    lake.delete("b")
    clock.advance(seconds=DAY_SECONDS + 1)
    assert lake.prepare() == [address]
    clock.advance(seconds=DAY_SECONDS - 1)
    other = lake.put("other")
    lake.rename("other", "another")
    assert lake.tracked() == sorted([address, other])
    clock.advance(seconds=1)
    lake.prepare()
    assert lake.tracked() == [other]


def test_another_copy_renews_the_tracking(lake: Lake, clock: FakeClock) -> None:
    address = lake.put("a")
    lake.rename("a", "b")
    clock.advance(seconds=DAY_SECONDS)
    lake.rename("b", "c")
    clock.advance(seconds=2 * DAY_SECONDS)
    lake.sandbox.copies.forget_old()
    assert lake.tracked() == [address]


def test_a_preparation_that_outlasts_the_records_is_rejected(lake: Lake, clock: FakeClock) -> None:
    lake.put("a")
    lake.put("b")
    _, page = lake.page()
    clock.advance(seconds=2 * DAY_SECONDS + 1)
    with pytest.raises(ApiError, match="start a new one") as caught:
        lake.page(page.continuation_token)
    assert caught.value.status == 400


def test_records_survive_a_restart_but_not_the_deletion_of_their_repository(
    lake: Lake, tmp_path: Path, clock: FakeClock
) -> None:
    address = lake.put("a")
    lake.copy("a", "b")
    again = Sandbox(tmp_path / "state", StoreLocation((tmp_path / "objects").as_uri()), clock=clock)
    assert [tracked for tracked, _ in again.copies.addresses("demo")] == [address]
    again.refs.delete_repository("demo")
    assert list(again.copies.addresses("demo")) == []
    again.close()


def test_branches_deleted_or_committed_between_pages(lake: Lake) -> None:
    for name in ("dev", "gone", "hid"):
        lake.branch(name, hidden=name == "hid")
    addresses = {f"{branch}{i}": lake.put(f"p/{i}", branch) for branch in ("dev", "gone", "hid") for i in range(3)}
    found, page = lake.page()
    commits.commit(lake.sandbox, lake.repository, "dev", CommitParameters("one"))
    while garbage.decode_position(page.continuation_token).branch != "gone":
        more, page = lake.page(page.continuation_token)
        found += more
    lake.sandbox.refs.delete_branch("demo", "gone")
    found += lake.prepare(page.continuation_token)
    head = lake.sandbox.refs.commit("demo", lake.sandbox.refs.branch("demo", "dev").commit_id)
    committed = {record.entry.address for record in lake.sandbox.committed(lake.repository).records(head.meta_range_id)}
    live = {address for name, address in addresses.items() if not name.startswith("gone")}
    assert live <= set(found) | committed
    assert set(found) >= {address for name, address in addresses.items() if name.startswith("hid")}


def test_the_bytes_of_a_shared_address_are_not_copied(lake: Lake) -> None:
    address = lake.put("a")
    store = lake.sandbox.namespaces.store(NAMESPACE)
    before = {key for batch in store.list("data/") for key in batch.column("address").to_pylist()}
    lake.rename("a", "b")
    after = {key for batch in store.list("data/") for key in batch.column("address").to_pylist()}
    assert before == after == {address}
    with pytest.raises(ObjectNotFoundError):
        store.read("data/none")
