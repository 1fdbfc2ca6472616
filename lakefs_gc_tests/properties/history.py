"""A repository with a random history, and concurrent collectors, driven by a state machine."""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import lakefs_sdk
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from dagster import DagsterInstance, Failure
from lakefs_sdk.exceptions import ApiException
from pyspark.sql import SparkSession

from lakefs_gc.engine.collect.references.active_ranges import METADATA_FOLDER, METADATA_ID
from lakefs_gc.engine.collect.references.commit_graph import CommitGraph
from lakefs_gc.engine.collect.references.committed import live_addresses
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.spark.data_files import footers_of
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.formats.commits_csv import read_active_commits
from lakefs_gc.lakefs.active_commits import active_commits
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.properties.asset_collector import MEANWHILE, AssetCollector
from lakefs_gc_tests.properties.stores import RemoteStore
from lakefs_gc_tests.support.collector import STAGES, marked
from lakefs_gc_tests.support.lake import Lake, keys_below

Operation = Callable[["History"], object]

_STATED_SIZE = 100
"""More than any object of a history has."""
_GONE = ("deleted", "already_gone")
"""The outcomes of objects that do not exist after a sweep."""


class History:
    """One repository, its possible operations, and its invariants.

    ``other`` is a repository that references objects of this one. The objects are local files unless there is a
    ``store``.

    Operations that the server rejects (nothing to commit, a dirty branch, a conflict) do not count.
    """

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        instance: DagsterInstance,
        options: SandboxOptions | None = None,
        store: RemoteStore | None = None,
    ) -> None:
        self._spark, self._instance, self.remote = spark, instance, store
        place = (store.new_location(), store.make_old) if store else (None, None)
        self.lake = Lake(folder, place[0], options or SandboxOptions(slice_seconds=1), place[1]).__enter__()
        self.repository = self.lake.repository()
        self.other = self.lake.repository("other")
        self._outside = open_store(StoreLocation(f"{self.lake.location.folder_url}outside"))
        self.client = self.lake.client
        self.server = LakeFSClient(self.lake.credentials)
        self.commits: list[str] = [head for _, head in self.server.branch_heads("lake")]
        self.branches: list[str] = ["main"]
        self.collectors: list[tuple[AssetCollector, int]] = []
        self.marks: list[tuple[AssetCollector, Mark]] = []
        self.hidden = 0
        """Objects that a branch shows and no list of the server has, when a mark was made."""
        self.resurrected = 0
        self.optimized = 0
        """Whether the run in the end took over a part of the listing of one before."""
        self.outdated = 0
        """Runs that refused to go on, for there was nothing committed when they began, and there is now."""
        self.begun = 0
        self.deleted = 0
        self.marked = 0
        self.swept = 0
        self._content_of: dict[str, set[str]] = {}
        self._shared: set[str] = set()
        self._number = 0
        self._small = itertools.cycle((True, False, False))
        """Whether the next run is small, and so lists all."""
        self._hours_owed: dict[str, int] = {}
        """By run: how much older its objects are than its listing says."""

    def close(self) -> None:
        self.lake.__exit__(None, None, None)

    def do(self, operation: Operation) -> None:
        """Run one operation, and ignore a rejection by the server."""
        with suppress(ApiException):
            operation(self)

    # -- what users do

    def upload(self, branch: str, path: str, content: str, age_hours: float) -> None:
        self.repository.put(path, content, branch=branch, age_hours=age_hours)

    def link(self, branch: str, path: str, content: str) -> None:
        """Upload with a link token, and make the object old after it is linked."""
        staging = self.client.staging_api
        location = staging.get_physical_address("lake", branch, path)
        key = str(location.physical_address).removeprefix(self.repository.namespace).removeprefix(self._folder)
        self.repository.store.put(key, content.encode())
        checksum = hashlib.md5(content.encode()).hexdigest()
        body = lakefs_sdk.StagingMetadata(staging=location, checksum=checksum, size_bytes=len(content))
        staging.link_physical_address("lake", branch, path, body)
        self.repository.age(key, 48)

    def copy(self, branch: str, source: str, path: str) -> None:
        body = lakefs_sdk.ObjectCopyCreation(src_path=source, src_ref=branch)
        self.client.objects_api.copy_object("lake", branch, path, body)

    def stage_garbage(self, branch: str, path: str, number: int) -> None:
        """Stage an unreferenced object by its address, which a lakeFS server permits."""
        keys = sorted(self.repository.objects() - self.reachable())
        if keys:
            key = keys[number % len(keys)]
            data = self.repository.store.read(key)
            checksum = hashlib.md5(data).hexdigest()
            self.repository.stage(path, key, branch=branch, size_bytes=len(data), checksum=checksum)

    def stage_with_wrong_size(self, branch: str, path: str, number: int) -> None:
        """Refer to an unreferenced object, with a size and a checksum that are always the same."""
        keys = sorted(self.repository.objects() - self.reachable())
        if keys:
            key = keys[number % len(keys)]
            self.repository.stage(path, key, branch=branch, size_bytes=_STATED_SIZE, checksum="stated")

    def stage_by_folder(self, branch: str, path: str, number: int) -> None:
        """Stage any object by the server's folder, as a lakeFS server with a local store does.

        In other stores, by another spelling of the namespace that a lakeFS server reads as the same, if there is one.
        """
        keys = sorted(self.repository.objects())
        if keys:
            key = keys[number % len(keys)]
            data = self.repository.store.read(key)
            checksum = hashlib.md5(data).hexdigest()
            url = self._folder + key
            self.repository.stage(path, url, branch=branch, size_bytes=len(data), checksum=checksum)

    @property
    def _folder(self) -> str:
        if self.remote:
            return self.remote.other_spelling(self.repository.namespace)
        return f"local://{self.repository.folder}/"

    def commit(self, branch: str, age_days: float) -> None:
        self.commits.append(self.repository.commit(branch=branch, age_days=age_days))

    def merge(self, source: str, destination: str) -> None:
        self.commits.append(self.repository.merge(source, destination))

    def revert(self, branch: str, commit: str) -> None:
        self.repository.revert(commit, branch=branch)

    def cherry_pick(self, branch: str, commit: str) -> None:
        made = self.client.branches_api.cherry_pick("lake", branch, lakefs_sdk.CherryPickCreation(ref=commit))
        self.commits.append(made.id)

    def import_outside(self, branch: str, path: str) -> None:
        """Import objects from outside every namespace, in a separate commit."""
        self._outside.put(path, b"imported")
        url = f"{self.lake.location.folder_url}outside/" if self.remote else "local://outside/"
        source = lakefs_sdk.ImportLocation(type="common_prefix", path=url, destination="imported/")
        body = lakefs_sdk.ImportCreation(paths=[source], commit=lakefs_sdk.CommitCreation(message="import"))
        imports = self.client.import_api
        started = imports.import_start("lake", branch, body)
        while not (status := imports.import_status("lake", branch, started.id)).completed and not status.error:
            time.sleep(0.01)
        if status.commit:
            self.commits.append(status.commit.id)

    def share(self, branch: str, number: int) -> None:
        """Reference an object of this repository by its full address in a commit of another repository."""
        keys = sorted(self._shown(branch))
        if keys:
            key = keys[number % len(keys)]
            self._number += 1
            self.other.stage(f"shared-{self._number}", self.repository.namespace + key)
            self.other.commit()
            self._shared.add(key)

    def reset(self, branch: str) -> None:
        self.client.branches_api.reset_branch("lake", branch, lakefs_sdk.ResetCreation(type="reset"))

    def create_branch(self, source: str) -> None:
        self._number += 1
        self.repository.branch(f"b{self._number}", source)
        self.branches.append(f"b{self._number}")

    def delete_branch(self, branch: str) -> None:
        if branch != "main":
            self.repository.delete_branch(branch)
            self.branches.remove(branch)

    def tag(self, ref: str) -> None:
        self._number += 1
        self.repository.tag(f"t{self._number}", ref)

    def drop_rules(self) -> None:
        self.client.repositories_api.delete_gc_rules("lake")

    def litter(self) -> None:
        """Upload and delete an object without a commit."""
        self.upload("main", "litter", "litter", 48)
        self.repository.delete("litter")

    def upload_again(self, branch: str, number: int) -> None:
        """Upload the content of a path at the head again. The server does not list that as uncommitted."""
        head = dict(self.server.branch_heads("lake"))[branch]
        page = self.client.objects_api.list_objects("lake", head, amount=1000)
        if page.results:
            entry = page.results[number % len(page.results)]
            path = str(entry.path)
            if entry.size_bytes == _STATED_SIZE:  # it cannot be read: the answer ends before its stated size
                self.stage_with_wrong_size(branch, path, number)
                return
            self.upload(branch, path, self.repository.read(path, head).decode(), 48)

    def pass_time(self, hours: int = 24) -> None:
        """Make every object older in the store and in listings, except in the listings of running runs."""
        for key, info in self.repository.store.stat_many(sorted(self.repository.objects())).items():
            age_hours = (datetime.now(UTC) - info.last_modified).total_seconds() / 3600
            self.repository.age(key, age_hours + hours)
        under_way = {collector.run_key for collector, _ in self.collectors}
        for run_key in self._hours_owed:
            self._hours_owed[run_key] += hours
            if run_key not in under_way:
                self._age_listing(run_key)

    def _age_listing(self, run_key: str) -> None:
        hours, self._hours_owed[run_key] = self._hours_owed[run_key], 0
        for file in (self.lake.folder / "work" / run_key / "store_listing" / "data").glob("*.parquet"):
            table = pq.read_table(file)
            column = table.schema.get_field_index("last_modified")
            aged = pc.subtract(table.column(column), pa.scalar(timedelta(hours=hours), pa.duration("us")))
            pq.write_table(table.set_column(column, table.schema.field(column), aged), file)
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum, if Spark wrote it
        # The manifest contains the sizes of its files, a checksum of their footers, and a digest.
        manifest = self.lake.folder / "work" / run_key / "store_listing" / "manifest.json"
        if manifest.exists():
            made = DatasetManifest.from_json(manifest.read_bytes(), str(manifest))
            data = manifest.parent / "data"
            sizes = {name: (data / name).stat().st_size for name in made.files}
            _, footers = footers_of(open_store(StoreLocation(data.as_uri())), sizes)
            written = manifest.stat()
            manifest.write_bytes(replace(made, files=sizes, footers=footers).sealed().to_json())
            os.utime(manifest, ns=(written.st_atime_ns, written.st_mtime_ns))  # distinguishes the runs

    # -- what collectors do

    def begin(self) -> None:
        self.collectors.append((self._collector(), 0))
        self.begun += 1

    def _collector(self, mode: str = "auto", objects_per_look: int = 4) -> AssetCollector:
        small = next(self._small)
        collector = AssetCollector(self._spark, self.repository, self._instance, mode, objects_per_look, small=small)
        self._hours_owed[collector.run_key] = 0
        return collector

    def step(self, number: int, stages: int) -> None:
        """Run the next stages of one of the collectors, and the mark after the last stage."""
        if not self.collectors:
            return
        number %= len(self.collectors)
        collector, done = self.collectors.pop(number)
        if done < len(STAGES):
            try:
                collector.materialize(*STAGES[done : done + stages])
            except Failure as failure:
                # Correct if the objects that a branch shows are newer than the run. The final run must not report this.
                if done <= STAGES.index("active_ranges") or "No committed object was read" not in str(failure):
                    raise
                self.outdated += 1
                self._age_listing(collector.run_key)
                return
            if not done:
                self._hours_owed[collector.run_key] = 0  # the run has just listed
        if done + stages <= len(STAGES):
            self.collectors.append((collector, done + stages))
        else:
            self.marks.append((collector, collector.mark()))
            self._count_hidden(collector)
            self._age_listing(collector.run_key)

    def interrupt(self) -> None:
        if self.collectors:
            collector, _ = self.collectors.pop()
            self._age_listing(collector.run_key)

    def sweep(self, number: int, before_looks: Iterable[Operation]) -> None:
        """Sweep one of the marks, early, late or again, during other operations."""
        if not self.marks:
            return
        collector, mark = self.marks[number % len(self.marks)]
        operations = iter(before_looks)
        seen: list[tuple[set[str], set[str]]] = []

        def check_round() -> None:
            if seen:
                reachable, there = seen.pop()
                lost = reachable & (there - self.repository.objects())
                assert not lost, f"reachable at the second look, but deleted: {sorted(lost)}"

        def before_look() -> None:
            check_round()
            for operation in operations:
                self.do(operation)
                break
            seen.append((self.reachable(), self.repository.objects()))

        collector.sweep_mark(mark, before_look)
        check_round()
        self._count_swept(collector)

    def _count_swept(self, collector: AssetCollector) -> None:
        """Count the outcomes of a sweep, and assert that each is what the store says."""
        outcomes = list(collector.swept.values())
        there = self.repository.objects()
        wrong = {key: outcome for key, outcome in collector.swept.items() if (outcome in _GONE) == (key in there)}
        assert not wrong, f"outcomes that the store contradicts: {wrong}"
        self.swept += 1
        self.deleted += outcomes.count("deleted")
        self.resurrected += outcomes.count("resurrected")

    def _count_hidden(self, collector: AssetCollector) -> None:
        self.marked += 1
        self.hidden += collector.manifest("kept").rows

    # -- what must be true

    def reachable(self) -> set[str]:
        """Return the keys that a branch, an active commit or another repository references."""
        heads = dict(self.server.branch_heads("lake"))
        refs = self._active(heads)
        shown = {key for branch in heads for key in self._shown(branch)} | self._shared
        for commit in refs:
            if commit not in self._content_of:
                self._content_of[commit] = self._shown(commit)
            shown |= self._content_of[commit]
        return shown

    def _active(self, heads: dict[str, str]) -> set[str]:
        rules = self.server.retention_rules("lake")
        if rules is None:
            return {*self.commits, *heads.values()}
        graph = CommitGraph(10_000)
        graph.add_history_of(self.server, "lake", [*heads.values()])
        by_definition = active_commits(graph.commits.values(), heads, rules, datetime.now(UTC))
        prepared = self.server.prepare_commits("lake", timeout_seconds=60)
        file = prepared.location.removeprefix(self.repository.namespace)
        listed = read_active_commits(self.repository.store.read(file), file)
        return {*by_definition, *listed.column("commit_id").to_pylist()}

    def _shown(self, ref: str) -> set[str]:
        page = self.client.objects_api.list_objects("lake", ref, amount=1000)
        return {key for entry in page.results for key in self._files(str(entry.physical_address))}

    def _files(self, url: str) -> set[str]:
        """Return the keys that a full address may stand for, as the file system resolves its path."""
        if self.remote:
            root = self.remote.path(self.repository.namespace)
            path = self.remote.path(url)
            readings = {path, unquote(path), path.partition("?")[0], unquote(path.partition("?")[0])}
            return {reading.removeprefix(root) for reading in readings if reading.startswith(root)}
        root, base = os.path.realpath(self.repository.folder), os.path.realpath(self.lake.folder / "objects")
        below = url.partition("://")[2]
        readings = {below, unquote(below), below.partition("?")[0], unquote(below.partition("?")[0])}
        paths = {os.path.realpath(f"{base}/{r}") for r in readings if not r.startswith("/")}
        for rooted in (r for r in readings if r.startswith("/")):
            paths |= {os.path.realpath("/" + rooted.lstrip("/")), os.path.realpath(f"{base}/{rooted}")}
        return {os.path.relpath(path, root) for path in paths if path.startswith(root + "/")}

    def finish(self, *, both_modes: bool) -> None:
        """Assert that a final run leaves no garbage. In ``both_modes``, a full listing has the same result."""
        while self.collectors:
            self.interrupt()
        self.pass_time(hours=48)
        collector = self._collector(objects_per_look=1000)
        mark = collector.collect_and_mark()
        assert not {check.name for check in mark.checks if not check.passed} & MEANWHILE
        self._count_hidden(collector)
        self.optimized += collector.manifest("store_listing").facts["mode"] == "optimized"
        if both_modes:
            clean = self._collector("clean")
            clean.materialize(*STAGES)
            found = collector.addresses("candidates"), clean.addresses("candidates")
            assert found[0] == found[1], f"only optimized: {found[0] - found[1]}, only clean: {found[1] - found[0]}"
        reachable = self.reachable()
        there = self.repository.objects()
        # The server lists recent copies for a while, even if they were deleted.
        garbage = there - reachable - collector.addresses("uncommitted")
        if self.server.retention_rules("lake") is None:  # then every reference in a file of the namespace counts
            garbage -= self._named_by_metadata()
        decided = marked(self.repository, mark)
        assert decided == garbage, (
            f"live, but marked: {self._seen_by(collector, decided - garbage)}; "
            f"garbage, but not marked: {self._seen_by(collector, garbage - decided)}"
        )
        collector.sweep_mark(mark)
        self._count_swept(collector)
        now = self.repository.objects()
        assert there - now == garbage, f"kept: {sorted(garbage & now)}, lost: {sorted(there - now - garbage)}"
        assert collector.manifest("kept").facts["shielded"] == 0

    def _seen_by(self, collector: AssetCollector, keys: set[str]) -> dict[str, list[str]]:
        """Return the stages that contain each of the objects, for a message."""
        mode = str(collector.manifest("store_listing").facts["mode"])
        having = {stage: collector.addresses(stage) for stage in STAGES if stage not in ("active_ranges", "missing")}
        return {
            key: [mode, collector.swept.get(key, "not marked"), *(stage for stage in having if key in having[stage])]
            for key in sorted(keys)
        }

    def _named_by_metadata(self) -> set[str]:
        store = self.repository.store
        named: set[str] = set()
        for key in keys_below(store, METADATA_FOLDER):
            if METADATA_ID.fullmatch(key.removeprefix(METADATA_FOLDER)):
                for batch in live_addresses(store.read(key), key, (self.repository.namespace, self._folder), None):
                    named.update(batch.column("address").to_pylist())
        return named
