"""The server's part of garbage collection: retention rules, and the lists of committed and uncommitted objects.

The files are in ``_lakefs/retention/gc/`` of the namespace, in the formats of ``lakefs_gc.formats``.
"""

from __future__ import annotations

import base64
import binascii
import json
import random
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice

import pyarrow as pa

from lakefs_gc.errors import ConfigurationError, ObjectNotFoundError
from lakefs_gc.formats.addresses import relative_address
from lakefs_gc.formats.commits_csv import write_active_commits
from lakefs_gc.formats.gc_rules import RULES_KEY, GCRules, decode_rules, encode_rules
from lakefs_gc.formats.ids import new_reversed_id, new_xid, reversed_id_time
from lakefs_gc.formats.uncommitted_parquet import UNCOMMITTED_FILE_SCHEMA, write_uncommitted
from lakefs_gc.lakefs.active_commits import Commit, active_commits
from lakefs_gc.sandbox.context import Sandbox, writable
from lakefs_gc.sandbox.problems import ApiError, NotFound
from lakefs_gc.sandbox.state.records import Difference
from lakefs_gc.sandbox.versions.branches import uncommitted
from lakefs_gc.sandbox.versions.refs import Branch, Repository

_FOLDER = "_lakefs/retention/gc/"
_BATCH_ROWS = 8192
_BRANCHES_AHEAD = 8

_Here = tuple[str, str, str]
"""Branch, path and copy, as in ``Position``."""


@dataclass(frozen=True)
class PreparedCommits:
    """The location of the list of active commits; both locations are whole URLs."""

    run_id: str
    commits_location: str
    addresses_location: str


@dataclass(frozen=True)
class PreparedPage:
    """A page of uncommitted addresses. ``location`` is empty for an empty page, and the token on the last page."""

    run_id: str
    location: str
    continuation_token: str


@dataclass(frozen=True)
class Position:
    """The start of the next page: a branch, and a path in it (empty for the first path).

    With ``copy`` all staged entries are done, and the next page begins with this address of the tracked copies.
    """

    run_id: str
    branch: str
    path: str
    copy: str = ""


def rules(sandbox: Sandbox, repository: Repository) -> GCRules:
    """Return the retention rules. Raise ``NotFound`` if none are set."""
    try:
        stored = decode_rules(sandbox.namespaces.store(repository.folder).read(RULES_KEY))
    except ObjectNotFoundError:
        stored = None
    if stored is None:
        raise NotFound
    return stored


def set_rules(sandbox: Sandbox, repository: Repository, new_rules: GCRules | None) -> None:
    """Replace the retention rules, or with None delete them by writing an empty file, as lakeFS does."""
    writable(repository)
    sandbox.namespaces.store(repository.folder).put(RULES_KEY, encode_rules(new_rules))


def prepare_commits(sandbox: Sandbox, repository: Repository) -> PreparedCommits:
    """Write the list of the commits that the rules keep active now."""
    writable(repository)
    try:
        current_rules = rules(sandbox, repository)
    except NotFound:
        raise ApiError(404, "get gc rules: not found") from None
    records = list(sandbox.refs.commits(repository.name))
    # Branches are read after commits, because the commit that a new branch points to must be among the commits.
    heads = {branch.name: branch.commit_id for branch in sandbox.refs.branches(repository.name)}
    known = {record.id for record in records}
    records += [sandbox.refs.commit(repository.name, head) for head in set(heads.values()) - known]
    active = active_commits(
        [
            Commit(
                record.id,
                record.parents,
                datetime.fromtimestamp(record.creation_date, UTC),
                record.meta_range_id,
                record.version,
            )
            for record in records
        ],
        heads,
        current_rules,
        sandbox.clock(),
    )
    rows = [(record.id, record.meta_range_id) for record in records if record.id in active]
    random.shuffle(rows)  # as the real server does, so that no client relies on an order
    run_id = new_reversed_id(sandbox.clock())
    key = f"{_FOLDER}commits/run_id={run_id}/commits.csv"
    sandbox.namespaces.store(repository.folder).put(key, write_active_commits(rows))
    return PreparedCommits(run_id, repository.folder + key, f"{repository.folder}{_FOLDER}addresses/")


def prepare_uncommitted(sandbox: Sandbox, repository: Repository, position: Position | None = None) -> PreparedPage:
    """Write the next page of addresses that a branch references without having committed them.

    The tracked copies are always read after all staged entries. If they were read first, a rename could move an address
    from an unread part of the staging area to a part that was already read, and be missed. Raise ``ApiError`` 400 if
    the run began so long ago that copies since then may have been forgotten.
    """
    writable(repository)
    if position is None:
        sandbox.copies.forget_old()
    run_id = position.run_id if position else new_reversed_id(sandbox.clock())
    rows = _Rows()
    next_token = ""
    deadline = time.monotonic() + sandbox.options.uncommitted_page_seconds
    rows_from_here = _referenced_addresses(sandbox, repository, position or Position(run_id, "", ""))
    for (branch, path, copy), address, date in rows_from_here:
        is_full = rows.size_bytes > sandbox.options.uncommitted_page_bytes or time.monotonic() > deadline
        # A page has at least one row, so that even a page size of zero makes progress.
        if rows.size_bytes and is_full:
            next_token = _encode_position(Position(run_id, branch, path, copy))
            break
        rows.append(address, date)
    if not rows.size_bytes:
        return PreparedPage(run_id, "", "")
    folder = f"{_FOLDER}uncommitted/{run_id}/uncommitted/"
    file = new_xid(sandbox.clock())
    sandbox.namespaces.store(repository.folder).put(folder + file, write_uncommitted(rows.batch()))
    return PreparedPage(run_id, repository.folder + folder, next_token)


class _Rows:
    """The rows of a page. They become Arrow batches, which take a fifth of the memory of Python objects."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._addresses: list[str] = []
        self._dates: list[int] = []
        self._batches: list[pa.RecordBatch] = []

    def append(self, address: str, date: int) -> None:
        """Append a row."""
        self._addresses.append(address)
        self._dates.append(date)
        self.size_bytes += len(address) + 8
        if len(self._addresses) == _BATCH_ROWS:
            self._pack()

    def batch(self) -> pa.RecordBatch:
        """Return all rows."""
        self._pack()
        return pa.concat_batches(self._batches)

    def _pack(self) -> None:
        columns = {"physical_address": self._addresses, "creation_date": self._dates}
        self._batches.append(pa.RecordBatch.from_pydict(columns, schema=UNCOMMITTED_FILE_SCHEMA))
        self._addresses, self._dates = [], []


def _referenced_addresses(
    sandbox: Sandbox, repository: Repository, start: Position
) -> Iterator[tuple[_Here, str, int]]:
    """Yield position, address below the namespace and date in seconds of staged entries, then of tracked copies."""
    if not start.copy:
        yield from _staged_addresses(sandbox, repository, start)
    is_tracking = sandbox.options.shallow_copies
    if is_tracking and _age_seconds(sandbox, start.run_id) > sandbox.copies.lifetime_seconds:
        raise ApiError(400, "the preparation took too long, copies since its start may be forgotten: start a new one")
    for address, date in sandbox.copies.addresses(repository.name, start.copy):
        yield ("", "", address), address, date


def _age_seconds(sandbox: Sandbox, run_id: str) -> float:
    try:
        return (sandbox.clock() - reversed_id_time(run_id)).total_seconds()
    except ConfigurationError:
        raise ApiError(400, "invalid continuation token") from None


def _staged_addresses(sandbox: Sandbox, repository: Repository, position: Position) -> Iterator[tuple[_Here, str, int]]:
    """Yield position, address and date of the uncommitted entries of each branch, including hidden branches.

    As in lakeFS, a record with the identity of the committed record is not a change, so its address is omitted.
    """
    for branch, begun in _begun_ahead(sandbox, repository, position):
        try:
            for difference in begun.result():
                if difference.right is None:
                    continue
                entry = difference.right.entry
                address = relative_address(entry.address, entry.address_type, repository.folder)
                if address is not None:
                    yield (branch, difference.right.path, ""), address, entry.last_modified_ns // 1_000_000_000
        except NotFound:  # the branch was deleted meanwhile, so its entries are garbage
            continue


def _begun_ahead(
    sandbox: Sandbox, repository: Repository, position: Position
) -> Iterator[tuple[str, Future[Iterator[Difference]]]]:
    """Yield the branches from a position on, each with its changes, of which the first was read by a thread.

    To read the metaranges of 1,000 heads one after the other takes 35 s in a store that answers after 30 ms.
    """

    def begin(branch: Branch) -> Iterator[Difference]:
        start = position.path.encode() if branch.name == position.branch else b""
        changes = uncommitted(sandbox, repository, branch, start)
        return chain(list(islice(changes, 1)), changes)

    branches = (each for each in sandbox.refs.branches(repository.name) if each.name >= position.branch)
    begun = deque((each.name, sandbox.readers.submit(begin, each)) for each in islice(branches, _BRANCHES_AHEAD))
    try:
        while begun:
            yield begun.popleft()
            begun.extend((each.name, sandbox.readers.submit(begin, each)) for each in islice(branches, 1))
    finally:
        for _, future in begun:
            future.cancel()


def _encode_position(position: Position) -> str:
    fields = {"branch": position.branch, "path": position.path, "run_id": position.run_id, "key": position.copy}
    return base64.b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode()


def decode_position(token: str) -> Position:
    """Return the position in a continuation token. Raise ``ApiError`` 400 if the token is invalid."""
    try:
        fields = json.loads(base64.b64decode(token, validate=True))
        copy = str(fields.get("key", ""))
        position = Position(str(fields["run_id"]), str(fields["branch"]), str(fields.get("path", "")), copy)
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError):
        raise ApiError(400, "invalid continuation token") from None
    if not position.run_id.isalnum():  # it becomes part of a key
        raise ApiError(400, "invalid continuation token")
    return position
