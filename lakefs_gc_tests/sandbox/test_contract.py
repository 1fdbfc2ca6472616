"""The sandbox gives the recorded answers of a real lakeFS server, and leaves the same garbage."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import httpx
import pytest

from lakefs_gc.formats.addresses import relative_address
from lakefs_gc.formats.candidate_addresses import is_candidate_address
from lakefs_gc.formats.commits_csv import read_active_commits
from lakefs_gc.formats.entry import AddressType
from lakefs_gc.formats.ranges import read_metarange, read_range
from lakefs_gc.formats.uncommitted_parquet import read_uncommitted
from lakefs_gc.sandbox.differences import CHOSEN, like_lakefs
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc_tests.golden import golden_file
from lakefs_gc_tests.support.fake_clock import FakeClock
from lakefs_gc_tests.support.recorded_exchanges import Replay
from lakefs_gc_tests.support.sandbox_place import StartSandbox

INSIDE = "physical address is inside the storage namespace: copy or link the object instead"
UNSIGNED = "address is not signed: link address invalid"
USED = "link address already used: link address invalid"
NO_TIME = "invalid continuation token"
# Requests that the sandbox rejects by choice: difference, beginnings of the exchanges, message.
REFUSED_BY_CHOICE: dict[str, list[tuple[str, str, str]]] = {
    "no-rules": [("stage_inside_namespace", "None (PUT", INSIDE)],
    "old-layout": [("stage_inside_namespace", "staged root object (PUT", INSIDE)] * 4,
    "slices-and-copies": [
        ("stage_inside_namespace", "shallow copy (stageObject of the same address) of sh3/src", INSIDE),
        ("stage_inside_namespace", "shallow copy (stageObject of the same address) of an uncommitted", INSIDE),
        ("single_use_links", "link_physical_address: same token again, same path", USED),
        ("stage_inside_namespace", "link_physical_address: address inside the namespace but not under", UNSIGNED),
        ("stage_inside_namespace", "stageObject of an address under data/", INSIDE),
        ("stage_inside_namespace", "stageObject inside the namespace, not under data/", INSIDE),
        ("stage_inside_namespace", "None (PUT", INSIDE),
        ("stage_inside_namespace", "None (PUT", INSIDE),
        ("stage_inside_namespace", "staged entry whose object does not exist", INSIDE),
        ("shallow_copies", "hand-made continuation token with an invented run id", NO_TIME),
        ("shallow_copies", "hand-made continuation token behind the last branch", NO_TIME),
    ],
}

# The number of compared exchanges, so that a lost exchange is noticed.
COMPARED = {
    "empty": 62,
    "esti-unified": 55,
    "no-rules": 77,
    "old-layout": 54,
    "read-only": 31,
    "retention-graph": 223,
    "slices-and-copies": 175,
}


@pytest.mark.parametrize("scenario", ["empty", "no-rules", "old-layout", "read-only"])
def test_answers_equal_those_of_the_recorded_server(
    scenario: str, start_sandbox: StartSandbox, clock: FakeClock
) -> None:
    replay = Replay(scenario, start_sandbox(options=like_lakefs()), clock).run()
    assert replay.differences == []
    assert replay.compared == COMPARED[scenario], replay.skipped


@pytest.mark.parametrize("scenario", ["esti-unified", "retention-graph", "slices-and-copies"])
def test_answers_and_garbage_equal_those_of_the_recorded_server(
    scenario: str, start_sandbox: StartSandbox, clock: FakeClock
) -> None:
    server = start_sandbox(options=like_lakefs())
    replay = Replay(scenario, server, clock).run()
    assert replay.differences == []
    assert replay.compared == COMPARED[scenario], replay.skipped

    expected = json.loads(golden_file(scenario, "expected.json"))
    clock.now = datetime.fromisoformat(expected["now"])
    retained, garbage = _collect(server, f"golden-{scenario}")
    assert retained == {replay.translate(commit["id"]) for commit in expected["retained_commits"]}
    deleted = [item["address"] for item in expected["delete"]]
    # Requests through the recorded server's S3 gateway showed no address, so no address is translated.
    known = {replay.translate(address) for address in deleted if replay.translate(address) != address}
    unchanged = {address for address in deleted if not address.startswith("data/ft")}
    assert garbage >= known | unchanged
    assert len(garbage) == len(deleted)
    assert len(known) + len(unchanged) >= len(deleted) - 3
    assert garbage.isdisjoint(replay.translate(item["address"]) for item in expected["keep"])


@pytest.mark.parametrize("scenario", sorted(COMPARED))
def test_only_chosen_differences_from_the_recorded_server_occur(
    scenario: str, start_sandbox: StartSandbox, clock: FakeClock
) -> None:
    replay = Replay(scenario, start_sandbox(), clock).run()
    expected = REFUSED_BY_CHOICE.get(scenario, [])
    assert len(replay.differences) == len(expected), replay.differences
    for difference, (_, about, message) in zip(replay.differences, expected, strict=True):
        assert difference.startswith(about)
        assert f'400 {{"message":"{message}"}} instead of 20' in difference
    assert replay.compared == COMPARED[scenario], replay.skipped


def test_every_chosen_difference_occurs_in_a_recording() -> None:
    chosen = {option for refusals in REFUSED_BY_CHOICE.values() for option, _, _ in refusals}
    assert chosen == {difference.option for difference in CHOSEN}


def _collect(server: SandboxServer, repository: str) -> tuple[set[str], set[str]]:
    """Return the active commits and the unreferenced addresses, from the two preparations of the API."""
    namespace = f"local://golden/{repository}/"
    store = server.sandbox.namespaces.store(namespace)
    listed = {key for batch in store.list() for key in batch.column("address").to_pylist()}
    listed = {key for key in listed if is_candidate_address(key)}
    url = f"{server.endpoint_url}/api/v1/repositories/{repository}/gc"
    auth = (server.access_key_id, server.secret_access_key)
    page = httpx.post(f"{url}/prepare_uncommited", json={}, auth=auth).json()
    for file in _files(store, page["gc_uncommitted_location"].removeprefix(namespace)):
        addresses = read_uncommitted(store.read(file), file).column("address").to_pylist()
        listed -= set(addresses)
    commits_url = httpx.post(f"{url}/prepare_commits", auth=auth).json()["gc_commits_location"]
    commits_file = commits_url.removeprefix(namespace)
    commits = read_active_commits(store.read(commits_file), commits_file).to_pylist()
    for commit in commits:
        listed -= set(_addresses(store, commit["metarange_id"], namespace))
    return {commit["commit_id"] for commit in commits}, listed


def _files(store: ObjectStore, folder: str) -> list[Any]:
    return [key for batch in store.list(folder) for key in batch.column("address").to_pylist()] if folder else []


def _addresses(store: ObjectStore, metarange_id: str, namespace: str) -> list[str | None]:
    if not metarange_id:
        return []
    metarange = read_metarange(store.read(f"_lakefs/{metarange_id}"), metarange_id)
    return [
        relative_address(row["address"], AddressType(row["address_type"]), namespace)
        for range_id in metarange.column("range_id").to_pylist()
        for row in read_range(store.read(f"_lakefs/{range_id}"), range_id).to_pylist()
    ]
