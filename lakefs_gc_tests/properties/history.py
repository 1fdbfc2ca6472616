"""A repository with a random past, and collectors that work on it at the same time, for a state machine to drive."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import lakefs_sdk
from lakefs_sdk.exceptions import ApiException
from pyspark.sql import DataFrame, SparkSession

from lakefs_gc.engine.commit_graph import CommitGraph
from lakefs_gc.engine.marks import Mark
from lakefs_gc.formats.commits_csv import read_active_commits
from lakefs_gc.retention.active_commits import active_commits
from lakefs_gc.server import LakeFSServer
from lakefs_gc_tests.collector import STAGES, Collector, Lake

Operation = Callable[["History"], object]


class History:
    """One repository, what may happen to it, and what must be true of it at any time.

    Operations that the server refuses (nothing to commit, a dirty branch, a conflict) are no operations.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._lake = Lake(folder).__enter__()
        self.repository = self._lake.repository()
        self.client = self._lake.client
        self.server = LakeFSServer(self._lake.credentials)
        self.commits: list[str] = [head for _, head in self.server.branch_heads("lake")]
        self.branches: list[str] = ["main"]
        self.collectors: list[tuple[Collector, int]] = []
        self.marks: list[tuple[Collector, Mark]] = []
        self.hidden = 0
        """How many times a sweep was asked to spare an object that no list of the server has."""
        self.deleted = 0
        self._content_of: dict[str, set[str]] = {}
        self._number = 0

    def close(self) -> None:
        self._lake.__exit__(None, None, None)

    def do(self, operation: Operation) -> None:
        """One operation, unless the server refuses it."""
        with suppress(ApiException):
            operation(self)

    # -- what users do

    def upload(self, branch: str, path: str, content: str, age_hours: float) -> None:
        self.repository.put(path, content, branch=branch, age_hours=age_hours)

    def link(self, branch: str, path: str, content: str) -> None:
        """Upload by a link token, and let the object grow old once it is linked."""
        staging = self.client.staging_api
        location = staging.get_physical_address("lake", branch, path)
        key = str(location.physical_address).removeprefix(self.repository.namespace)
        self.repository.store.put(key, content.encode())
        checksum = hashlib.md5(content.encode()).hexdigest()
        body = lakefs_sdk.StagingMetadata(staging=location, checksum=checksum, size_bytes=len(content))
        staging.link_physical_address("lake", branch, path, body)
        self.repository.age(key, 48)

    def copy(self, branch: str, source: str, path: str) -> None:
        body = lakefs_sdk.ObjectCopyCreation(src_path=source, src_ref=branch)
        self.client.objects_api.copy_object("lake", branch, path, body)

    def stage_garbage(self, branch: str, path: str, number: int) -> None:
        """Refer to an object that nobody refers to, as its content: what a lakeFS server lets anybody do."""
        keys = sorted(self.repository.objects() - self.reachable())
        if keys:
            key = keys[number % len(keys)]
            data = self.repository.store.read(key)
            checksum = hashlib.md5(data).hexdigest()
            self.repository.stage(path, key, branch=branch, size_bytes=len(data), checksum=checksum)

    def commit(self, branch: str, age_days: float) -> None:
        self.commits.append(self.repository.commit(branch=branch, age_days=age_days))

    def merge(self, source: str, destination: str) -> None:
        self.commits.append(self.repository.merge(source, destination))

    def revert(self, branch: str, commit: str) -> None:
        self.repository.revert(commit, branch=branch)

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

    # -- what collectors do

    def begin(self) -> None:
        self.collectors.append((Collector(self._spark, self.repository), 0))

    def step(self, number: int) -> None:
        """The next stage of one of the collectors; the last one makes the mark."""
        if not self.collectors:
            return
        number %= len(self.collectors)
        collector, stage = self.collectors.pop(number)
        if stage < len(STAGES):
            collector.materialize(STAGES[stage])
            self.collectors.append((collector, stage + 1))
        else:
            self.marks.append((collector, collector.mark()))

    def interrupt(self) -> None:
        if self.collectors:
            self.collectors.pop()

    def sweep(self, number: int, before_looks: Iterable[Operation]) -> None:
        """Sweep one of the marks, early, late or again, while other things happen."""
        if not self.marks:
            return
        collector, mark = self.marks[number % len(self.marks)]
        operations = iter(before_looks)
        look = collector.second_look(collector.begin(), mark)
        seen: list[tuple[set[str], set[str]]] = []

        def check_round() -> None:
            if seen:
                reachable, there = seen.pop()
                lost = reachable & (there - self.repository.objects())
                assert not lost, f"reachable when the look was taken, and gone: {sorted(lost)}"

        def interleaved(suspects: DataFrame) -> DataFrame:
            check_round()
            for operation in operations:
                self.do(operation)
                break
            seen.append((self.reachable(), self.repository.objects()))
            return look(suspects)

        collector.sweep(mark, look=interleaved, objects_per_look=4)
        check_round()
        self.deleted += sum(outcome == "deleted" for outcome in collector.swept.values())

    # -- what must be true

    def reachable(self) -> set[str]:
        """Keys that some branch shows, or some active commit."""
        heads = dict(self.server.branch_heads("lake"))
        refs = self._active(heads)
        shown = {key for branch in heads for key in self._shown(branch)}
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
        prefix = self.repository.namespace
        return {str(e.physical_address).removeprefix(prefix) for e in page.results}

    def finish(self) -> None:
        """Once all is quiet, a run leaves no garbage."""
        for key in self.repository.objects():
            self.repository.age(key, 48)
        collector = Collector(self._spark, self.repository)
        mark = collector.collect_and_mark()
        self.hidden += collector.manifest("kept").rows
        reachable = self.reachable()
        there = self.repository.objects()
        collector.sweep(mark)
        now = self.repository.objects()
        assert not reachable & (there - now), f"reachable, and gone: {sorted(reachable & (there - now))}"
        assert now <= reachable, f"garbage, and still there: {sorted(now - reachable)}"
        assert collector.manifest("kept").facts["shielded"] == 0
