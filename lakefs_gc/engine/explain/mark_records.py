"""What marks, sweeps and restores record about objects, read without Spark.

A mark is sorted by address, and so is a ledger within one pass of a sweep. So the footers of a mark's files show which
file may name an object, and a ledger of many files is searched by halves.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.approval import Approval
from lakefs_gc.engine.records.mark import Mark, MarkPart, MarkPaths
from lakefs_gc.engine.records.mark_parts import part_keys, read_part
from lakefs_gc.engine.records.restore_log import RESTORED
from lakefs_gc.engine.records.stored_marks import mark_folders, read_mark
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.spark.data_files import read_footer
from lakefs_gc.errors import CorruptFileError, LakeFSGCError, MarkError, ObjectNotFoundError
from lakefs_gc.formats.report import find_report_layouts
from lakefs_gc.storage.base import ObjectStore, written_at
from lakefs_gc.storage.concurrency import map_unordered

_READS_AT_ONCE = 16
_FEW_FILES, _FEW_ADDRESSES = 128, 16
"""Up to so many files of a ledger are all read; for up to so many addresses, a longer ledger is searched."""
_RECORD = re.compile(r"(?P<sequence>.+)-(?P<shard>\d{5})-[0-9a-f]{12}-(?P<chunk>\d{6})-(?P<kind>[a-z]+)\.parquet")
_EARLIER_MARKS = "_lakefs/retention/gc/addresses/"


@dataclass(frozen=True)
class Outcome:
    """What the last sweep recorded about an object: an outcome of the ledger, and when it was written.

    ``approved_by`` is empty if the approval cannot be read.
    """

    outcome: str
    recorded_at: datetime
    error: str = ""
    approved_by: str = ""


@dataclass(frozen=True)
class Marking:
    """A mark that names an object. ``reason`` is None in a mark that records none, ``outcome`` None before a sweep.

    ``restored_at``: a restore has brought the object back since.
    """

    mark_id: str
    created_at: datetime
    reason: str | None
    outcome: Outcome | None = None
    restored_at: datetime | None = None

    @property
    def is_deleted(self) -> bool:
        """Whether a sweep deleted the object, if it no longer exists: an intent counts, as in the ledger."""
        deleted = self.outcome is not None and self.outcome.outcome in (ledger.DELETED, ledger.INTENT)
        return deleted and self.restored_at is None

    @property
    def is_pending(self) -> bool:
        """Whether a sweep of this mark may still delete the object."""
        return self.outcome is None or self.outcome.outcome not in (ledger.DELETED, ledger.ALREADY_GONE)


@dataclass(frozen=True)
class Markings:
    """The marks that name each address, newest first, and what could not be read."""

    of: dict[str, list[Marking]]
    marks: tuple[Mark, ...]
    unread: tuple[str, ...]


def find_markings(store: ObjectStore, repository: str, namespace: str, addresses: Collection[str]) -> Markings:
    """Return every mark in the namespace that names one of ``addresses``, and what its sweeps did."""
    wanted = pa.array(sorted(addresses), pa.string())
    of: dict[str, list[Marking]] = {address: [] for address in addresses}
    marks, unread = [], []
    for mark_id in mark_folders(store):
        paths = MarkPaths.of(mark_id)
        try:
            if not _has_mark(store, mark_id):
                continue  # a run that was killed before its mark was complete: no sweep can follow
            mark = read_mark(store, repository, namespace, mark_id)
            marks.append(mark)
            reasons = _reasons(store, mark, wanted)
            outcomes = _outcomes(store, mark, reasons.keys()) if reasons else {}
            restores = _restores(store, paths.restores, wanted) if reasons else {}
        except (MarkError, CorruptFileError, ObjectNotFoundError) as error:
            unread.append(f"mark {mark_id}: {error.message}")
            continue
        for address, reason in reasons.items():
            outcome, restored_at = outcomes.get(address), restores.get(address)
            if restored_at and outcome and restored_at < outcome.recorded_at:
                restored_at = None  # it was swept again after the restore
            of[address].append(Marking(mark_id, mark.created_at, reason, outcome, restored_at))
    folders, files = store.list_level(_EARLIER_MARKS)
    if folders or files.num_rows:
        unread.append(f"marks of lakeFS's Spark client before 0.10 ({_EARLIER_MARKS}): they have no ledger")
    return Markings(of, tuple(marks), tuple(unread))


def _has_mark(store: ObjectStore, mark_id: str) -> bool:
    """Return whether a folder of records has a mark, also in the layout of an earlier program of lakeFS's client."""
    layouts = find_report_layouts(mark_id)
    summaries = [layout.summary for layout in layouts if layout.summary]
    if store.stat_many([MarkPaths.of(mark_id).manifest, *summaries]):
        return True
    return any(part_keys(store, layout) for layout in layouts if not layout.summary)


def _reasons(store: ObjectStore, mark: Mark, wanted: pa.StringArray) -> dict[str, str | None]:
    """Return the reason of each wanted address that a mark names. Reads only the files that may name one."""
    reasons: dict[str, str | None] = {}
    ordered = sorted(address.encode() for address in wanted.to_pylist())
    possible = [
        part
        for part, may_name in map_unordered(lambda p: _may_name(store, p, ordered), mark.parts, _READS_AT_ONCE)
        if may_name
    ]
    for _, rows in map_unordered(lambda part: read_part(store, part), possible, _READS_AT_ONCE):
        named = rows.filter(pc.is_in(rows["address"], wanted)).select(["address", "reason"]).to_pylist()
        reasons |= {row["address"]: row["reason"] for row in named}
    return reasons


def _may_name(store: ObjectStore, part: MarkPart, ordered: list[bytes]) -> bool:
    """Return whether the statistics of a file of a mark permit one of the addresses."""
    footer = read_footer(store, part.key)
    column = footer.schema.to_arrow_schema().get_field_index("address")
    if column < 0:
        return True  # reading the file reports it
    for group in (footer.row_group(number) for number in range(footer.num_row_groups)):
        statistics = group.column(column).statistics
        if statistics is None or not statistics.has_min_max:
            return True
        first, last = (_bytes(value) for value in (statistics.min, statistics.max))
        if any(first <= address <= last for address in ordered):
            return True
    return False


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _outcomes(store: ObjectStore, mark: Mark, addresses: Collection[str]) -> dict[str, Outcome]:
    """Return what the sweeps of a mark recorded about addresses, by the rule of ``ledger.read_ledger``."""
    folder = MarkPaths.of(mark.mark_id).ledger
    written = {
        key: at for batch in store.list(folder) for key, at in written_at(batch).items() if key.endswith(".parquet")
    }
    if not written:
        return {}
    best: dict[str, tuple[tuple[int, str], Outcome]] = {}
    approvers: dict[Scope, str] = {}
    for key, rows in _records(store, list(written), addresses):
        only = ledger.scope_of(key)
        if only not in approvers:
            approvers[only] = _approver(store, mark, only)
        for row in rows.to_pylist():
            rank = (ledger.rank_of(row["outcome"]), key)
            if row["address"] not in best or best[row["address"]][0] < rank:
                outcome = Outcome(row["outcome"], written[key], row["error"], approvers[only])
                best[row["address"]] = rank, outcome
    return {address: outcome for address, (_, outcome) in best.items()}


def _approver(store: ObjectStore, mark: Mark, only: Scope) -> str:
    key = MarkPaths.of(mark.mark_id).approval_of(only)
    try:
        return Approval.from_json(store.read(key), key).approved_by
    except LakeFSGCError:  # an approval proves nothing about the delete, which the ledger records
        return ""


def _records(store: ObjectStore, keys: list[str], addresses: Collection[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the records about addresses, with the file of each."""
    wanted = pa.array(sorted(addresses), pa.string())

    def about(key: str) -> pa.Table:
        rows = ledger.read_records(key, store.read(key))
        return rows.filter(pc.is_in(rows["address"], wanted))

    if len(keys) <= _FEW_FILES or len(addresses) > _FEW_ADDRESSES:
        yield from map_unordered(about, keys, _READS_AT_ONCE)
        return
    parsed = [(match, key) for key in sorted(keys) if (match := _RECORD.fullmatch(key)) is not None]
    found = set(keys) - {key for _, key in parsed}
    parsed.sort(key=_pass_of)
    for _, of_pass in groupby(parsed, key=_pass_of):
        chunks: dict[tuple[str, str], list[str]] = {}
        for match, key in of_pass:
            chunks.setdefault((match["shard"], match["chunk"]), []).append(key)
        ordered = [files for _, files in sorted(chunks.items())]
        for address in addresses:
            found |= set(_search(store, ordered, address.encode()))
    yield from map_unordered(about, found, _READS_AT_ONCE)


def _pass_of(parsed: tuple[re.Match[str], str]) -> tuple[str, str]:
    match, _ = parsed
    return match["sequence"], match["kind"]


def _search(store: ObjectStore, chunks: list[list[str]], address: bytes) -> Iterable[str]:
    """Return the files of the chunk that may have an address. ``chunks`` are sorted by their addresses.

    A chunk without records says nothing about the order. Then all files may have the address.
    """
    low, high = 0, len(chunks)
    while low < high:
        middle = (low + high) // 2
        rows = [row for key in chunks[middle] for row in _addresses(store, key)]
        if not rows:
            return [key for files in chunks for key in files]
        if address < min(rows):
            high = middle
        elif address > max(rows):
            low = middle + 1
        else:
            return chunks[middle]
    return []


def _addresses(store: ObjectStore, key: str) -> list[bytes]:
    return [address.encode() for address in ledger.read_records(key, store.read(key))["address"].to_pylist()]


def _restores(store: ObjectStore, folder: str, wanted: pa.StringArray) -> dict[str, datetime]:
    """Return when each wanted address was last restored, from the log of a mark's restores."""
    restored: dict[str, datetime] = {}
    for batch in store.list(folder):
        for key, at in written_at(batch).items():
            if not key.endswith(".parquet"):
                continue
            rows = ledger.read_records(key, store.read(key))
            named = rows.filter(pc.and_(pc.is_in(rows["address"], wanted), pc.equal(rows["outcome"], RESTORED)))
            for address in named["address"].to_pylist():
                restored[address] = max(at, restored.get(address, at))
    return restored
