"""A generated namespace as a repository of the sandbox, with its objects in a simulated S3 store.

Commits, branches and staged entries are written directly to the sandbox's database, because this number of requests
would take hours. Each commit except the first has the previous one as its parent. Branches begin at commits across the
whole history, and share the staged entries equally.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from lakefs_gc.config import ServerCredentials
from lakefs_gc.formats.commits_csv import read_active_commits
from lakefs_gc.formats.entry import AddressType, Entry
from lakefs_gc.sandbox.context import Sandbox
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.sandbox.state.records import Change, Record, record_of
from lakefs_gc.sandbox.versions import branches
from lakefs_gc.sandbox.versions.refs import CommitRecord, Repository
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.benchmarks.generated_keys import KeyFile, write_key_file
from lakefs_gc_tests.benchmarks.generator import Namespace, Shape, addresses_of, generate
from lakefs_gc_tests.benchmarks.simulated_store import SimulatedStore

REPOSITORY = "generated"
_BATCH = 10_000
_YEAR_SECONDS = 365 * 86_400


@dataclass(frozen=True)
class GeneratedRepository:
    """The written repository: files below ``_lakefs/``, the keys of the store, and the sandbox's state."""

    namespace: Namespace
    keys: KeyFile
    state: Path

    def store(self, latency_ms: float) -> SimulatedStore:
        """Return the store with all objects."""
        return SimulatedStore(self.keys, latency_ms=latency_ms, files=self.namespace.folder)


def write_repository(folder: Path, shape: Shape, number_of_branches: int) -> GeneratedRepository:
    """Write the repository below ``folder``."""
    namespace = generate(folder / "namespace", shape)
    keys = write_key_file(folder / "keys", shape)
    repository = GeneratedRepository(namespace, keys, folder / "state")
    with repository.store(0) as simulated, simulated.environment():
        sandbox = Sandbox(repository.state, StoreLocation("s3://simulated/"))
        try:
            with sandbox.database.write():
                _write_refs(sandbox, namespace, simulated.location.url, number_of_branches)
                _stage(sandbox, shape)
        finally:
            sandbox.close()
    return repository


def _write_refs(sandbox: Sandbox, namespace: Namespace, url: str, number_of_branches: int) -> None:
    refs, now = sandbox.refs, sandbox.now_seconds()
    refs.add_repository(Repository(REPOSITORY, url.rstrip("/"), "main", now, read_only=False))
    listed = read_active_commits((namespace.folder / namespace.commits_file).read_bytes(), "commits.csv").to_pylist()
    parents: tuple[str, ...] = ()
    for number, commit in enumerate(listed):
        record = CommitRecord(
            id=commit["commit_id"],
            parents=parents,
            committer="generator",
            message=f"commit {number}",
            creation_date=now - _YEAR_SECONDS + number * _YEAR_SECONDS // len(listed),
            meta_range_id=commit["metarange_id"],
            metadata={},
            generation=number + 1,
        )
        refs.add_commit(REPOSITORY, record)
        parents = (record.id,)
    refs.put_branch(REPOSITORY, branches.new_branch("main", listed[-1]["commit_id"]))
    for number in range(1, number_of_branches):
        head = listed[number * len(listed) // number_of_branches]["commit_id"]
        refs.put_branch(REPOSITORY, branches.new_branch(f"branch-{number:05}", head))


def _stage(sandbox: Sandbox, shape: Shape) -> None:
    """Stage entries at new paths, a consecutive part on each branch."""
    tokens = [branch.staging_token for branch in sandbox.refs.branches(REPOSITORY)]
    first = shape.ranges * shape.per_range
    per_branch = -(-shape.staged // len(tokens))
    # The entries differ only in their addresses, which have the same length, so one template is overwritten.
    blank = "a" * len(addresses_of(shape, np.arange(1))[0].as_py())
    entry = Entry(blank, AddressType.RELATIVE, size_bytes=1, last_modified_ns=1_767_225_600 * 10**9, e_tag="e" * 32)
    template = record_of("", entry)
    for number, token in enumerate(tokens):
        end = min((number + 1) * per_branch, shape.staged)
        for begin in range(number * per_branch, end, _BATCH):
            addresses = addresses_of(shape, np.arange(first + begin, first + min(end, begin + _BATCH))).to_pylist()
            changes = []
            for position, address in enumerate(addresses, begin):
                data = template.data.replace(blank.encode(), address.encode())
                key = b"staged/part-%09d" % position
                changes.append(Change(key, Record(key, template.identity, data)))
            sandbox.staging.put(token, changes)


@contextmanager
def sandbox_process(state: Path) -> Iterator[tuple[ServerCredentials, int]]:
    """Run a sandbox in a separate process. Yield its credentials and the id of the process."""
    parent_end, child_end = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(state, child_end), daemon=True)
    process.start()
    child_end.close()
    try:
        yield parent_end.recv(), process.pid or 0
    finally:
        process.kill()
        process.join()


def _serve(state: Path, ready: Connection) -> None:
    with SandboxServer(state, StoreLocation("s3://simulated/")) as server:
        ready.send(
            ServerCredentials(
                endpoint_url=server.endpoint_url,
                access_key_id=server.access_key_id,
                secret_access_key=server.secret_access_key,
            )
        )
        ready.poll(None)  # until the benchmark ends it
