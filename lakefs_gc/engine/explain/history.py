"""Which commits show an object, at which paths: read from the metadata files of the namespace, in this process.

Unlike ``collect.references.commit_paths``, which needs Spark, this reads for one or a few thousand objects. Every range
is read, because an object may have several paths, in commits of any age. A file that is missing or damaged is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.engine.collect.references.active_ranges import METADATA_FOLDER, METADATA_ID
from lakefs_gc.engine.collect.references.commit_graph import CommitGraph
from lakefs_gc.engine.workspace.fingerprints import Prints, fingerprints
from lakefs_gc.engine.workspace.history_index import Bounds, HistoryIndex
from lakefs_gc.engine.workspace.named_files import read_named_file
from lakefs_gc.errors import CorruptFileError, NamespaceError, ObjectNotFoundError, RepositoryNotFoundError
from lakefs_gc.formats.gc_rules import GCRules
from lakefs_gc.formats.ranges import TableKind, known_kind, read_metarange, read_range
from lakefs_gc.formats.sstable.reader import TableData, read_properties
from lakefs_gc.lakefs.active_commits import Commit
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.known_folders import KnownFolders
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.concurrency import map_unordered

_READS_AT_ONCE = 8  # of up to 20 MB each
_METARANGES_AT_ONCE = 32  # of some kB each: a store answers after 10 to 50 ms, and there is one for each commit

T = TypeVar("T")


@dataclass(frozen=True)
class Sighting:
    """An entry of a range: an object at a path. ``path`` is as the API writes it, with replacement characters."""

    address: str
    path: str
    range_id: str


@dataclass
class History:
    """The commits of a repository that a client can see, and the ranges of each.

    ``unread`` names what could not be read, and why: then more commits may show an object. ``unreachable`` are the
    metadata files that no commit in ``commits`` names.
    """

    store: ObjectStore
    known: KnownFolders
    commits: Mapping[str, Commit]
    heads: Mapping[str, str]
    tags: Mapping[str, str]
    rules: GCRules | None
    index: HistoryIndex
    unread: list[str] = field(default_factory=list)
    outside: list[tuple[str, str]] = field(default_factory=list)
    """What was found outside the namespace at paths: the paths, and the URLs of their objects."""
    ranges_not_read: int = 0
    """How many ranges ``objects_at`` did not read, because their metarange states that the paths are not in them."""
    ranges: list[str] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)
    _numbers_of: dict[str, np.ndarray] = field(default_factory=dict)
    """Metarange id to the numbers of its ranges in ``ranges``."""
    _files: set[str] = field(default_factory=set)

    @classmethod
    def read(
        cls,
        server: LakeFSClient,
        repository: str,
        store: ObjectStore,
        known: KnownFolders,
        index: HistoryIndex,
        max_commits: int,
        listed_commits: Collection[str] = (),
        known_commits: Mapping[str, Commit] = MappingProxyType({}),
    ) -> History:
        """Read the commits and their metaranges.

        ``listed_commits`` are commits that the server listed as active for a run: those of deleted branches are in no
        other list. ``known_commits`` need not be read. Raises the errors of ``LakeFSClient`` and of the store.
        """
        heads, tags = server.heads_of(repository), dict(server.tags(repository))
        graph = CommitGraph(max_commits, dict(known_commits))
        graph.add_history_of(server, repository, chain(heads.values(), tags.values()))
        unread = []
        try:
            graph.add_history_of(server, repository, sorted(set(listed_commits) - graph.commits.keys()))
        except RepositoryNotFoundError as error:
            unread.append(f"commits of deleted branches that the server listed for the last run: {error.message}")
        if not graph.complete:
            unread.append(f"all commits: there are more than safety.max_commits ({max_commits:,})")
        rules = server.retention_rules(repository)
        commits = graph.reached_from([*heads.values(), *tags.values(), *listed_commits])
        history = cls(store, known, commits, heads, tags, rules, index, unread)
        history._read_metaranges()
        return history

    def _read_metaranges(self) -> None:
        self._files = files = set(self._metadata_files())
        metaranges = {c.meta_range_id: c.id for c in self.commits.values() if c.meta_range_id}
        missing = [(metarange, "it does not exist") for metarange in sorted(metaranges.keys() - files)]
        unknown = sorted(metaranges.keys() & files - self.index.ranges_of.keys())
        for metarange, ranges in self.each(unknown, _ranges_of, at_once=_METARANGES_AT_ONCE):
            if isinstance(ranges, str):
                missing.append((metarange, ranges))
            else:
                self.index.add_metarange(metarange, ranges)
        known = sorted(metaranges.keys() & files & self.index.ranges_of.keys())
        named, lengths = _joined(self.index.ranges_of[metarange] for metarange in known)
        used, numbers = np.unique(named, return_inverse=True)
        names = self.index.ranges.names
        self.ranges = [names[number] for number in used.tolist()]
        self._numbers_of = dict(zip(known, np.split(numbers, np.cumsum(lengths)[:-1]), strict=False))
        self.unreachable = sorted(files - set(self.ranges) - metaranges.keys())
        self.unread += [
            f"commit {metaranges[metarange]}: its metarange {METADATA_FOLDER}{metarange}: {why}"
            for metarange, why in missing
        ]
        absent = [range_id for range_id in self.ranges if range_id not in files]
        self.unread += [f"range {METADATA_FOLDER}{range_id}: it does not exist" for range_id in absent]

    def sightings(self, addresses: Collection[str]) -> list[Sighting]:
        """Return every path at which a range has one of ``addresses``.

        Reads the ranges that the index does not exclude, and adds those that it does not have.
        """
        wanted = pa.array(sorted(addresses), pa.string())
        prints = fingerprints(wanted)
        new: dict[str, Prints] = {}

        def entries_of(data: TableData, key: str) -> list[tuple[str, str]]:
            file_id = key.removeprefix(METADATA_FOLDER)
            if not self._is_range(data, key):
                new[file_id] = fingerprints(pa.array([], pa.string()))
                return []
            if file_id not in self.index.prints:
                found = self.known.entries(read_range(data, key)).column("address")
                new[file_id] = fingerprints(found)
                if not pc.any(pc.is_in(found, wanted)).as_py():
                    return []
            entries = self.known.entries(read_range(data, key, keys=True))
            return _pairs(entries.filter(pc.is_in(entries.column("address"), wanted)))

        if not len(wanted):
            return []
        possible = [each for each in (*self.ranges, *self.unreachable) if self.index.may_have(each, prints)]
        sightings = self._sightings(possible, entries_of)
        self.index.add(new)
        self.index.write(self._files)
        return sightings

    def objects_at(self, paths: Collection[str]) -> list[Sighting]:
        """Return every object that a range has at one of ``paths``, or below one that ends in a slash.

        Does not read the ranges whose first and last path, as their metarange states them, exclude all of ``paths``.
        """
        wanted = [path.encode() for path in paths]
        # Without paths nothing is read. Files that no known commit names have no bounds, and are read.
        possible = [each for each in (*self.ranges, *self.unreachable) if self.index.may_have_path(each, wanted)]
        self.ranges_not_read = len(self.ranges) + len(self.unreachable) - len(possible)
        return self._objects_at(paths, possible if paths else [])

    def new_objects_at(self, paths: Collection[str]) -> list[Sighting]:
        """Return every object at ``paths`` in metadata files that are new since they were listed, as ``objects_at``.

        ``outside`` grows with those outside the namespace.
        """
        new = sorted(set(self._metadata_files()) - self._files)
        return self._objects_at(paths, new)

    def _objects_at(self, paths: Collection[str], file_ids: list[str]) -> list[Sighting]:
        exact = pa.array([path.encode() for path in paths if not path.endswith("/")], pa.binary())
        prefixes = [path.encode() for path in paths if path.endswith("/")]
        outside: set[tuple[str, str]] = set()

        def entries_of(data: TableData, key: str) -> list[tuple[str, str]]:
            if not self._is_range(data, key):
                return []
            entries = read_range(data, key, keys=True)
            keys = entries.column("key")
            matching = pc.is_in(keys, exact)
            for prefix in prefixes:
                matching = pc.or_(matching, pc.starts_with(keys, prefix))
            there = entries.filter(matching)
            inside = self.known.entries(there)
            paths_inside = pc.is_in(there.column("key"), inside.column("key"))
            outside.update(_pairs(there.filter(pc.invert(paths_inside))))
            return _pairs(inside)

        found = self._sightings(file_ids, entries_of)
        self.outside = sorted({*self.outside, *((path, url) for url, path in outside)})
        return found

    def branches_of_ranges(self) -> dict[str, set[str]]:
        """Return the ranges of the heads, and the branches that have each."""
        branches_of: dict[str, set[str]] = {}
        for branch, head in self.heads.items():
            for number in self._numbers_of.get(self.commits[head].meta_range_id, ()):
                branches_of.setdefault(self.ranges[number], set()).add(branch)
        return branches_of

    def paths_with_sizes(
        self, range_ids: Collection[str], sizes: Collection[int]
    ) -> Iterator[tuple[str, list[str] | str]]:
        """Yield for each range the paths whose entries have one of ``sizes``, or why it could not be read."""
        wanted = pa.array(sorted(sizes), pa.int64())

        def paths_of(data: TableData, key: str) -> list[str]:
            entries = read_range(data, key, keys=True)
            return texts(entries.filter(pc.is_in(entries.column("size"), wanted)).column("key"))

        return self.each(range_ids, paths_of)

    def showing(self, range_ids: Collection[str]) -> dict[str, list[Commit]]:
        """Return, for each range, the commits that have it. Empty for a range that no known commit has."""
        asked = set(range_ids)
        wanted = np.array([number for number, range_id in enumerate(self.ranges) if range_id in asked], np.int64)
        numbers, lengths = _joined(self._numbers_of.values())
        places = np.flatnonzero(np.isin(numbers, wanted))
        metaranges, owners = list(self._numbers_of), np.repeat(np.arange(len(lengths)), lengths)
        ranges_of: dict[str, set[str]] = {}
        for owner, number in zip(owners[places].tolist(), numbers[places].tolist(), strict=True):
            ranges_of.setdefault(metaranges[owner], set()).add(self.ranges[number])
        shown: dict[str, list[Commit]] = {range_id: [] for range_id in range_ids}
        for commit in self.commits.values():
            for range_id in ranges_of.get(commit.meta_range_id, ()):
                shown[range_id].append(commit)
        return shown

    def ranges_of(self, commit: Commit) -> list[str]:
        """Return the ranges of a commit; none if its metarange could not be read."""
        return [self.ranges[number] for number in self._numbers_of.get(commit.meta_range_id, ())]

    def _is_range(self, data: TableData, key: str) -> bool:
        # Files that no known commit names may be of any kind. lakeFS's dumps of refs are among them.
        return known_kind(read_properties(data, key), key) is TableKind.RANGE

    def _sightings(
        self, range_ids: list[str], entries_of: Callable[[TableData, str], list[tuple[str, str]]]
    ) -> list[Sighting]:
        found = []
        for range_id, entries in self.each(range_ids, entries_of):
            if isinstance(entries, str):
                problem = f"range {METADATA_FOLDER}{range_id}: {entries}"
                if problem not in self.unread:
                    self.unread.append(problem)
                continue
            found += [Sighting(address, path, range_id) for address, path in entries]
        return sorted(set(found), key=lambda one: (one.address, one.path, one.range_id))

    def each(
        self, file_ids: Iterable[str], read: Callable[[TableData, str], T], *, at_once: int = _READS_AT_ONCE
    ) -> Iterator[tuple[str, T | str]]:
        """Yield the result of ``read`` for each metadata file, or why it could not be read."""

        def attempt(file_id: str) -> T | str:
            key = METADATA_FOLDER + file_id
            try:
                return read(read_named_file(self.store, key), key)
            except ObjectNotFoundError:
                return "it does not exist"
            except CorruptFileError as error:
                return str(error.facts["reason"])
            except NamespaceError as error:  # an address in an unknown folder may be that of the object
                return error.message

        return map_unordered(attempt, file_ids, at_once)

    def _metadata_files(self) -> Iterator[str]:
        _, files = self.store.list_level(METADATA_FOLDER)
        names = (key.removeprefix(METADATA_FOLDER) for key in files.column("address").to_pylist())
        return (name for name in names if METADATA_ID.fullmatch(name))


def _joined(each: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return arrays of numbers in one, and the length of each."""
    arrays = list(each)
    joined = np.concatenate([np.empty(0, np.int64), *arrays])
    return joined, np.array([len(array) for array in arrays], np.int64)


def _ranges_of(data: TableData, key: str) -> dict[str, Bounds]:
    ranges = read_metarange(data, key)
    range_ids, first, last = (ranges.column(name).to_pylist() for name in ("range_id", "min_key", "max_key"))
    return dict(zip(range_ids, zip(first, last, strict=True), strict=True))


def _pairs(entries: pa.RecordBatch) -> list[tuple[str, str]]:
    return list(zip(entries.column("address").to_pylist(), texts(entries.column("key")), strict=True))


def texts(paths: pa.BinaryArray) -> list[str]:
    """Return paths as text. The API cannot name one that is not valid UTF-8; a person can still recognize it."""
    return [path.decode(errors="replace") for path in paths.to_pylist()]
