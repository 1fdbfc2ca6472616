"""Concurrent writers and committers on many branches, through HTTP, on a sandbox that is killed in between.

They write for a few seconds by default, and for a minute with ``LAKEFS_GC_TESTS_LOAD_SECONDS=60``.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lakefs_sdk
import pytest
import urllib3.exceptions
from lakefs_sdk.client import LakeFSClient as SDKClient
from lakefs_sdk.exceptions import ApiException

from lakefs_gc_tests.support.sandbox_place import REPOSITORY

logger = logging.getLogger(__name__)

_SECONDS = float(os.environ.get("LAKEFS_GC_TESTS_LOAD_SECONDS", "3"))
_WRITERS, _COMMITTERS, _BRANCHES, _BUSY_BRANCHES = 8, 2, 100, 4
Key = tuple[str, str]
"""Branch and path."""


class SandboxProcess:
    """``lakefs-gc sandbox`` as a separate process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]

    def start(self) -> None:
        """Start the server on the same folder and port, and wait until it answers."""
        command = [sys.executable, "-m", "lakefs_gc", "sandbox", "--folder", str(self.folder), "--port"]
        log = (self.folder.parent / "log").open("a")
        with log:
            self._process = subprocess.Popen(
                [*command, str(self._port)], stdout=subprocess.PIPE, stderr=log, text=True, env=_plain_environment()
            )
        assert self._process.stdout is not None
        output = "".join(self._process.stdout.readline() for _ in range(3))
        settings = dict(re.findall(r"(LAKECTL_\w+)=(\S+)", output))
        assert settings, (self.folder.parent / "log").read_text()
        self._configuration = {
            "host": settings["LAKECTL_SERVER_ENDPOINT_URL"] + "/api/v1",
            "username": settings["LAKECTL_CREDENTIALS_ACCESS_KEY_ID"],
            "password": settings["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"],
        }
        deadline = time.monotonic() + 30
        while True:
            try:
                self.client().health_check_api.health_check()
                return
            except urllib3.exceptions.HTTPError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def client(self) -> SDKClient:
        configuration = lakefs_sdk.Configuration(**self._configuration)
        configuration.retries = False
        return SDKClient(configuration)

    def kill(self) -> None:
        """Send SIGKILL, so that the server cannot finish anything."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def stop(self) -> int:
        """Send SIGTERM, and return the exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(30)


def _plain_environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}


@pytest.fixture
def process(tmp_path: Path) -> Iterator[SandboxProcess]:
    process = SandboxProcess(tmp_path / "sandbox")
    process.start()
    try:
        yield process
    finally:
        process.kill()


@dataclass
class Ledger:
    """The acknowledged and the unacknowledged writes. ``None`` stands for a deleted object."""

    written: dict[Key, str | None] = field(default_factory=dict)
    in_flight: dict[Key, str | None] = field(default_factory=dict)
    addresses: Counter[str] = field(default_factory=Counter)
    commits: list[tuple[str, str]] = field(default_factory=list)
    unfinished: int = 0
    failures: list[str] = field(default_factory=list)

    def allowed(self, key: Key) -> set[str | None]:
        """Return the permitted contents of a path: for a write in progress, before or after it."""
        return {self.written.get(key)} | ({self.in_flight[key]} if key in self.in_flight else set())


class Load:
    """Writers with separate paths, and committers, which run for a time or until the server dies."""

    def __init__(self, process: SandboxProcess, seconds: float, phase: int) -> None:
        self._process, self._phase = process, phase
        self._deadline = time.monotonic() + seconds
        self._stop = threading.Event()

    def run(self, ledgers: list[Ledger], committers: list[Ledger], *, during: Callable[[], None]) -> None:
        with ThreadPoolExecutor(_WRITERS + _COMMITTERS) as pool:
            running = [pool.submit(self._work, self._write, n, ledger) for n, ledger in enumerate(ledgers)]
            running += [pool.submit(self._work, self._commit, 100 + n, ledger) for n, ledger in enumerate(committers)]
            during()
            wait(running)
        for future in running:
            future.result()

    def kill_server(self) -> None:
        """Kill the server during the load."""
        time.sleep(max(self._deadline - time.monotonic(), 0))
        self._process.kill()

    def _work(self, step: Callable[..., None], number: int, ledger: Ledger) -> None:
        client, choose = self._process.client(), random.Random(f"{self._phase} {number}")
        count = 0
        while not self._stop.is_set() and (self._phase == 0 or time.monotonic() < self._deadline):
            count += 1
            try:
                step(client, choose, f"w{number:03}/{self._phase}-{count:05}", ledger)
            except urllib3.exceptions.HTTPError:
                self._stop.set()  # the server is dead
            except ApiException as error:
                ledger.failures.append(f"{error.status} {error.body}")

    def _write(self, client: SDKClient, choose: random.Random, path: str, ledger: Ledger) -> None:
        key, content = (_branch(choose), path), f"{path} {choose.random()}"
        kind = choose.random()
        earlier = [key for key in list(ledger.written)[-20:] if ledger.written[key] is not None]
        if kind < 0.25 and earlier:
            key = choose.choice(earlier)
        wanted = None if kind < 0.1 and earlier else content
        ledger.in_flight[key] = wanted
        if wanted is None:
            client.objects_api.delete_object(REPOSITORY, key[0], key[1])
        else:
            stats = client.objects_api.upload_object(REPOSITORY, key[0], key[1], content=wanted.encode())
            ledger.addresses[stats.physical_address] += 1
        ledger.written[key] = ledger.in_flight.pop(key)

    def _commit(self, client: SDKClient, choose: random.Random, message: str, ledger: Ledger) -> None:
        branch = _branch(choose)
        ledger.unfinished += 1
        try:
            commit = client.commits_api.commit(REPOSITORY, branch, lakefs_sdk.CommitCreation(message=message))
            ledger.commits.append((branch, commit.id))
        except ApiException as error:
            if json.loads(error.body)["message"] != "commit: no changes":
                raise
        ledger.unfinished -= 1


def _branch(choose: random.Random) -> str:
    """Return a branch, in half of the calls one of a few, so that commits and writes coincide."""
    return f"b{choose.randrange(choose.choice((_BUSY_BRANCHES, _BRANCHES))):03}"


@pytest.mark.of_ci
def test_a_kill_loses_no_acknowledged_write(process: SandboxProcess) -> None:
    client = process.client()
    body = lakefs_sdk.RepositoryCreation(name=REPOSITORY, storage_namespace=f"local://{REPOSITORY}")
    client.repositories_api.create_repository(body)
    for number in range(_BRANCHES):
        branch = lakefs_sdk.BranchCreation(name=f"b{number:03}", source="main")
        client.branches_api.create_branch(REPOSITORY, branch)
    ledgers, committers = [Ledger() for _ in range(_WRITERS)], [Ledger() for _ in range(_COMMITTERS)]
    load = Load(process, _SECONDS, phase=0)
    load.run(ledgers, committers, during=load.kill_server)
    assert sum(ledger.unfinished for ledger in committers) <= _COMMITTERS

    process.start()
    check(process, ledgers, committers)
    settle(process, ledgers)
    Load(process, _SECONDS / 4, phase=1).run(ledgers, committers, during=lambda: None)
    check(process, ledgers, committers)
    for number in range(_BRANCHES):
        body = lakefs_sdk.CommitCreation(message="the rest", allow_empty=True)
        process.client().commits_api.commit(REPOSITORY, f"b{number:03}", body)
    check(process, ledgers, committers)
    assert process.stop() == 0
    written = sum(len(ledger.written) for ledger in ledgers)
    commits = sum(len(ledger.commits) for ledger in committers)
    uploads = sum(len(ledger.addresses) for ledger in ledgers)
    logger.info("load seconds=%s paths=%d uploads=%d commits=%d", _SECONDS * 1.25, written, uploads, commits)
    assert written > 50 * _SECONDS / 4
    assert commits > 5


def check(process: SandboxProcess, ledgers: list[Ledger], committers: list[Ledger]) -> None:
    """Assert that every acknowledged object exists once with its bytes, and nothing else."""
    assert [failure for ledger in ledgers + committers for failure in ledger.failures] == []
    client = process.client()
    contents: dict[Key, Any] = {}
    for number in range(_BRANCHES):
        branch = f"b{number:03}"
        for stats in listed(client, branch):
            assert (branch, stats.path) not in contents, "listed twice"
            contents[branch, stats.path] = stats
    expected = {key: ledger for ledger in ledgers for key in ledger.written.keys() | ledger.in_flight.keys()}
    assert contents.keys() <= expected.keys(), "an object that was not written"
    for key, ledger in expected.items():
        content = content_of(process, contents[key].physical_address) if key in contents else None
        assert content in ledger.allowed(key), key
    addresses = Counter(stats.physical_address for stats in contents.values())
    assert set(addresses.values()) <= {1}, "two objects at one address"
    acknowledged = Counter[str]()
    for ledger in ledgers:
        acknowledged += ledger.addresses
    assert set(acknowledged.values()) == {1}
    lost = [address for address in acknowledged if not file_of(process, address).exists()]
    assert lost == []
    check_commits(client, committers)


def check_commits(client: SDKClient, committers: list[Ledger]) -> None:
    """Assert that every acknowledged commit is in its branch's log once, and has the previous commit as its parent."""
    acknowledged = [commit for ledger in committers for commit in ledger.commits]
    for branch in {branch for branch, _ in acknowledged}:
        log = list(logged(client, branch))
        ids = [commit.id for commit in log]
        assert [parent for commit in log for parent in commit.parents] == ids[1:], branch
        assert len(set(ids)) == len(ids)
        assert {commit for name, commit in acknowledged if name == branch} <= set(ids)


def settle(process: SandboxProcess, ledgers: list[Ledger]) -> None:
    """Read the results of writes that were in progress at the kill, and expect them from now on."""
    client = process.client()
    for ledger in ledgers:
        for branch, path in list(ledger.in_flight):
            del ledger.in_flight[branch, path]
            try:
                stats = client.objects_api.stat_object(REPOSITORY, branch, path)
                ledger.written[branch, path] = content_of(process, stats.physical_address)
            except ApiException as error:
                if error.status != 404:
                    raise
                ledger.written[branch, path] = None


def listed(client: SDKClient, ref: str) -> Iterator[Any]:
    objects = client.objects_api
    return pages(lambda after: objects.list_objects(REPOSITORY, ref, after=after, amount=1000))


def logged(client: SDKClient, branch: str) -> Iterator[Any]:
    return pages(lambda after: client.refs_api.log_commits(REPOSITORY, branch, after=after))


def pages(get: Callable[[str], Any]) -> Iterator[Any]:
    after = ""
    while True:
        page = get(after)
        yield from page.results
        if not page.pagination.has_more:
            return
        after = page.pagination.next_offset


def file_of(process: SandboxProcess, address: str) -> Path:
    return process.folder / "objects" / address.removeprefix("local://")


def content_of(process: SandboxProcess, address: str) -> str:
    return file_of(process, address).read_text()
