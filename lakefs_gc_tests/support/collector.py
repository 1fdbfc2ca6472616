"""A lake to collect, and a collector that a test drives stage by stage.

The lake is an embedded sandbox server on a local folder (or any store), used through the unmodified SDK.  Objects are
made old as they are written, so that the default safety parameters hold in every test.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import lakefs_sdk
from lakefs_sdk.client import LakeFSClient as SDKClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakefs_gc.config import SafetyParameters, ServerCredentials, Settings, SweepSettings
from lakefs_gc.engine.collect.listing.listing_counts import FIRST_SLICE
from lakefs_gc.engine.collect.listing.store_listing import store_listing
from lakefs_gc.engine.collect.references.active_ranges import active_ranges
from lakefs_gc.engine.collect.references.committed import committed
from lakefs_gc.engine.collect.references.foreign_references import foreign_references
from lakefs_gc.engine.collect.references.uncommitted import uncommitted
from lakefs_gc.engine.decide.candidates import candidates
from lakefs_gc.engine.decide.kept import kept
from lakefs_gc.engine.decide.marking.checks import evaluate
from lakefs_gc.engine.decide.marking.evidence import gather_evidence
from lakefs_gc.engine.decide.marking.write_mark import write_mark
from lakefs_gc.engine.decide.matching.unmatched import unmatched
from lakefs_gc.engine.decide.missing import missing
from lakefs_gc.engine.records.approval import approve
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_parts import read_part
from lakefs_gc.engine.records.stored_marks import read_mark
from lakefs_gc.engine.run import GCRun, RunContext, begin_run, new_run_key
from lakefs_gc.engine.scope import Scope
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.sweep.outcomes import SweepResult
from lakefs_gc.engine.sweep.second_look import Accepted, SecondLook, any_size_at_mark, second_look_at
from lakefs_gc.engine.sweep.sweep import Look, sweep
from lakefs_gc.engine.workspace.dataset_manifest import DatasetManifest
from lakefs_gc.engine.workspace.workspace import Clock, Dataset, StageOutput, Workspace, utc_now
from lakefs_gc.formats.addresses import has_unrecognized_name
from lakefs_gc.formats.ids import new_reversed_id
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.sandbox_place import sdk_client
from lakefs_gc_tests.support.scaled_spark import ScaledSpark

OLD_HOURS = 48.0
"""Older than the grace period of a day."""

STAGES = (
    "store_listing",
    "uncommitted",
    "active_ranges",
    "committed",
    "foreign_references",
    "unmatched",
    "missing",
    "kept",
    "candidates",
)
CORES = 1
"""As the stages see it: few tasks for little data."""

MakeOld = Callable[[ObjectStore, str, float], None]
"""Makes an object of a store look as if it was written so many hours ago."""


class Lake:
    """A running sandbox and the repositories in it: ``with Lake(folder) as lake``.

    Without ``store`` the objects are files, and ``local://<name>`` is a folder of them. Those of another store are as
    new as they are, unless there is ``make_old``.
    """

    def __init__(
        self,
        folder: Path,
        store: StoreLocation | None = None,
        options: SandboxOptions | None = None,
        make_old: MakeOld | None = None,
    ) -> None:
        self.folder, self.make_old = folder, make_old
        self.location = store or StoreLocation((folder / "objects").as_uri())
        self.is_local = store is None
        # Tests stage what lies in the namespace, as a lakeFS server lets anybody do.
        options = replace(options or SandboxOptions(), stage_inside_namespace=True)
        self._sandbox = SandboxServer(folder / "state", self.location, options=options)

    def __enter__(self) -> Lake:
        self._sandbox.__enter__()
        self.client = sdk_client(self._sandbox)
        return self

    def __exit__(self, *failure: object) -> None:
        self._sandbox.__exit__(None, None, None)

    @property
    def credentials(self) -> ServerCredentials:
        return ServerCredentials(
            endpoint_url=self._sandbox.endpoint_url,
            access_key_id=self._sandbox.access_key_id,
            secret_access_key=self._sandbox.secret_access_key,
        )

    @property
    def settings(self) -> Settings:
        mounts = {"local://": self.location.folder_url} if self.is_local else {}
        # No commit outlasts a call of the sandbox, and no test has ten minutes.
        safety = SafetyParameters(longest_commit_minutes=0)
        return Settings(mounts=mounts, work_url=(self.folder / "work").as_uri(), safety=safety)

    def repository(self, name: str = "lake", namespace: str = "") -> LakeRepository:
        """Create a repository; its namespace is ``local://<name>`` unless given."""
        namespace = namespace or (f"local://{name}" if self.is_local else f"{self.location.folder_url}{name}")
        request = lakefs_sdk.RepositoryCreation(name=name, storage_namespace=namespace, default_branch="main")
        self.client.repositories_api.create_repository(request)
        return LakeRepository(self, name, namespace)


class LakeRepository:
    """What users do in one repository; keys are relative to its namespace."""

    def __init__(self, lake: Lake, name: str, namespace: str) -> None:
        self.lake, self.name, self.namespace = lake, name, namespace.rstrip("/") + "/"
        self.location = lake.settings.locate(self.namespace)
        self.store: ObjectStore = open_store(self.location)
        self._client: SDKClient = lake.client

    @property
    def folder(self) -> Path:
        return Path(self.location.url.removeprefix("file://"))

    def put(self, path: str, content: str = "", *, branch: str = "main", age_hours: float = OLD_HOURS) -> str:
        """Upload; the key of the object, which is ``age_hours`` old."""
        stats = self._client.objects_api.upload_object(self.name, branch, path, content=(content or path).encode())
        key = str(stats.physical_address).removeprefix(self.namespace)
        self.age(key, age_hours)
        return key

    def put_stray(self, key: str, content: bytes = b"stray", *, age_hours: float = OLD_HOURS) -> str:
        """An object that no lakeFS call made."""
        self.store.put(key, content)
        self.age(key, age_hours)
        return key

    def age(self, key: str, hours: float) -> None:
        """Make an object look as if it was written so long ago."""
        if self.lake.is_local:
            os.utime(self.folder / key, (time.time() - hours * 3600,) * 2)
        elif self.lake.make_old:
            self.lake.make_old(self.store, key, hours)

    def commit(self, *, branch: str = "main", age_days: float = 0, allow_empty: bool = False) -> str:
        """Commit what is staged, with a date in the past; the commit id."""
        date = int((datetime.now(UTC) - timedelta(days=age_days)).timestamp())
        body = lakefs_sdk.CommitCreation(message="commit", date=date, allow_empty=allow_empty)
        return str(self._client.commits_api.commit(self.name, branch, body).id)

    def branch(self, name: str, source: str = "main") -> None:
        self._client.branches_api.create_branch(self.name, lakefs_sdk.BranchCreation(name=name, source=source))

    def tag(self, name: str, ref: str) -> None:
        self._client.tags_api.create_tag(self.name, lakefs_sdk.TagCreation(id=name, ref=ref))

    def merge(self, source: str, destination: str) -> str:
        """The id of the merge commit."""
        merged = self._client.refs_api.merge_into_branch(self.name, source, destination, lakefs_sdk.Merge())
        return str(merged.reference)

    def delete_tag(self, name: str) -> None:
        self._client.tags_api.delete_tag(self.name, name)

    def delete_branch(self, name: str) -> None:
        self._client.branches_api.delete_branch(self.name, name)

    def delete(self, path: str, *, branch: str = "main") -> None:
        self._client.objects_api.delete_object(self.name, branch, path)

    def revert(self, ref: str, *, branch: str = "main") -> None:
        body = lakefs_sdk.RevertCreation(ref=ref, parent_number=1)
        self._client.branches_api.revert_branch(self.name, branch, body)

    def stage(
        self, path: str, key_or_url: str, *, branch: str = "main", size_bytes: int = 1, checksum: str = ""
    ) -> None:
        """Refer to an object that is in the store already: a key of this namespace, or a whole URL."""
        url = key_or_url if "://" in key_or_url else self.namespace + key_or_url
        body = lakefs_sdk.ObjectStageCreation(
            physical_address=url, checksum=checksum or f"of-{url}", size_bytes=size_bytes
        )
        with warnings.catch_warnings():  # the SDK says that the call is deprecated; servers have it all the same
            warnings.simplefilter("ignore", DeprecationWarning)
            self._client.internal_api.stage_object(self.name, branch, path, body)

    def keep_days(self, days: int, **branches: int) -> None:
        """Set the retention rules."""
        rules = [lakefs_sdk.GarbageCollectionRule(branch_id=b, retention_days=d) for b, d in branches.items()]
        body = lakefs_sdk.GarbageCollectionRules(default_retention_days=days, branches=rules)
        self._client.repositories_api.set_gc_rules(self.name, body)

    def read(self, path: str, ref: str = "main") -> bytes:
        """An object through lakeFS."""
        return bytes(self._client.objects_api.get_object(self.name, ref, path))

    def objects(self) -> set[str]:
        """Keys of everything in the namespace but lakeFS's own metadata."""
        keys = (key for batch in self.store.list() for key in batch.column("address").to_pylist())
        return {key for key in keys if not key.startswith("_lakefs/")}

    def metadata_file(self, metarange_or_range_id: str) -> str:
        return f"_lakefs/{metarange_or_range_id}"

    def metarange_of(self, commit_id: str) -> str:
        return str(self._client.commits_api.get_commit(self.name, commit_id).meta_range_id)


class Collector:
    """One run over a repository, stage by stage; each stage is kept in the workspace, as in production.

    ``server`` is a client of the sandbox itself, or of a proxy before it.
    """

    runs_are_small: ClassVar[bool] = True
    """Whether this process does the work of few objects, as in the runs of users. Tests marked ``executors``: false."""

    def __init__(
        self,
        spark: SparkSession,
        repository: LakeRepository,
        *,
        server: LakeFSClient | None = None,
        safety: SafetyParameters | None = None,
        settings: Settings | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self.spark, self.repository, self.clock = spark, repository, clock
        self.server = server or LakeFSClient(repository.lake.credentials)
        self.settings = settings or repository.lake.settings
        self.safety = safety or self.settings.safety
        self.workspace = Workspace(
            self.settings.resolved_work_url(), max_range_cache_bytes=self.settings.max_range_cache_bytes
        )
        self.run_key = new_run_key(repository.name, utc_now())
        self.only = Scope.all
        """Which candidates the next run marks."""
        self.swept: dict[str, str] = {}
        """Address to outcome, of the last sweep."""
        self.errors: dict[str, str] = {}
        """Address to error, of the last sweep."""

    # -- the stages

    def begin(self) -> GCRun:
        """The run, begun anew."""
        return begin_run(self.context, self.run_key, self.only)

    @property
    def context(self) -> RunContext:
        """What the stages work with."""
        return self.context_with()

    def context_with(self, **changes: object) -> RunContext:
        """The same with other settings."""
        return RunContext(
            compute=ScaledSpark(self.spark, CORES, self.runs_are_small),
            connect=lambda: self.server,
            settings=self.settings.model_copy(update={"safety": self.safety, **changes}),
            workspace=self.workspace,
            clock=self.clock,
            open_store=open_store,
        )

    @property
    def run(self) -> GCRun:
        """The run that the listing began."""
        return GCRun.of(self.workspace.manifest(self.run_key, "store_listing"))

    def output(self, stage: str) -> StageOutput:
        """A stage, not computed yet, from what is in the workspace."""
        context = self.context
        if stage == "store_listing":
            return store_listing(context, self.begin())
        if stage == "uncommitted":
            return uncommitted(context, self.run)
        if stage == "active_ranges":
            return active_ranges(context, self.run, self.dataset("uncommitted"))
        if stage == "committed":
            return committed(context, self.run, self.dataset("active_ranges"))
        if stage == "foreign_references":
            return foreign_references(context, self.run)
        if stage == "unmatched":
            return unmatched(
                context,
                self.run,
                listing=self.dataset("store_listing"),
                uncommitted=self.dataset("uncommitted"),
                active_ranges=self.dataset("active_ranges"),
                committed=self.dataset("committed"),
                foreign_references=self.dataset("foreign_references"),
            )
        if stage == "missing":
            return missing(
                context,
                self.run,
                listing=self.dataset("store_listing"),
                uncommitted=self.dataset("uncommitted"),
                committed=self.dataset("committed"),
                unmatched=self.dataset("unmatched"),
            )
        if stage == "kept":
            return kept(
                context,
                self.run,
                uncommitted=self.dataset("uncommitted"),
                unmatched=self.dataset("unmatched"),
                missing=self.dataset("missing"),
            )
        return candidates(
            context,
            self.run,
            listing=self.dataset("store_listing"),
            active_ranges=self.dataset("active_ranges"),
            unmatched=self.dataset("unmatched"),
            kept=self.dataset("kept"),
        )

    def materialize(self, *stages: str) -> None:
        """Compute stages and keep them."""
        for stage in stages:
            self.workspace.write(self.spark, self.run_key, stage, self.output(stage))

    def collect(self, *, until: str = "candidates", before: Mapping[str, Callable[[], object]] | None = None) -> None:
        """All stages in order; ``before`` has what else happens just before a stage begins."""
        for stage in STAGES[: STAGES.index(until) + 1]:
            if before and stage in before:
                before[stage]()
            self.materialize(stage)

    def dataset(self, stage: str) -> Dataset:
        return self.workspace.read(self.spark, self.run_key, stage, schemas.BY_STAGE[stage])

    def manifest(self, stage: str) -> DatasetManifest:
        return self.workspace.manifest(self.run_key, stage)

    def addresses(self, stage: str) -> set[str]:
        """The addresses of a stage that is kept."""
        return {row["address"] for row in self.dataset(stage).dataframe.select("address").collect()}

    # -- the mark and what comes after

    def mark(self) -> Mark:
        """Write the mark of the candidates that are there."""
        mark_id = str(self.manifest("uncommitted").facts["run_id"])
        stages = set(STAGES) - {"store_listing", "unmatched"}
        evidence = gather_evidence(
            self.context,
            self.run,
            **{stage: self.dataset(stage) for stage in stages},
            listing=self.dataset("store_listing"),
            mark_id=mark_id,
        )
        foreign = self.manifest("foreign_references").facts
        mark = write_mark(
            self.run,
            candidates=self.dataset("candidates"),
            counts={stage: self.manifest(stage).rows for stage in STAGES[:4]},
            mark_id=mark_id,
            checks=evaluate(evidence, self.safety),
            rules=self.manifest("active_ranges").facts.get("rules"),
            repositories={*self.run.repositories, *foreign["repositories"]},
            unreadable=foreign["unreadable"],
            not_asked=foreign["not_asked"],
            mounts=foreign["mounts"],
            protections=evidence.protections,
            first_slice=str(self.manifest("store_listing").facts.get(FIRST_SLICE) or ""),
        )
        self.workspace.record_mark(self.run_key, mark.mark_id, mark.digest)
        return mark

    def collect_and_mark(self) -> Mark:
        self.collect()
        return self.mark()

    def mark_objects(self, *keys: str) -> Mark:
        """A mark of these objects, without the stages that find them; any names at the root are the repository's."""
        run = self.begin()
        found = self.repository.store.stat_many(keys)
        rows = [(key, found[key].size_bytes, found[key].last_modified, schemas.NEVER_COMMITTED) for key in keys]
        output = StageOutput(
            self.spark.createDataFrame(rows, schemas.CANDIDATES),
            self.clock(),
            {
                "cutoff": run.cutoff.isoformat(),
                "expired": 0,
                "expired_bytes": 0,
                "named_at_root": next(filter(has_unrecognized_name, keys), ""),
            },
            {"size_bytes": F.sum("size")},
        )
        self.workspace.write(self.spark, self.run_key, "candidates", output)
        mark_id = new_reversed_id(utc_now())
        return write_mark(run, candidates=self.dataset("candidates"), counts={}, mark_id=mark_id)

    def approve(self, mark: Mark, only: Scope = Scope.all) -> None:
        approve(
            self.repository.store,
            mark,
            mark.digest,
            by="test",
            via="test",
            now=utc_now(),
            age=timedelta(0),
            safety=self.safety,
            only=only,
        )

    def read_mark(self, mark_id: str) -> Mark:
        return read_mark(self.repository.store, self.repository.name, self.repository.namespace, mark_id)

    def sweep(
        self,
        mark: Mark,
        *,
        live: Iterable[str] | None = None,
        look: Look | None = None,
        known_restores: frozenset[str] = frozenset(),
        sleep: Callable[[float], None] = time.sleep,
        not_backed_up: DataFrame | None = None,
        named_at_root: str = "",
        overrides: Iterable[str] = (),
        only: Scope = Scope.all,
        small: bool | None = None,
        **settings: float,
    ) -> SweepResult:
        """Delete, in a run of its own, as the asset does.  ``swept`` has the outcome of each object.

        Looks again first, unless ``live`` says what is referenced.  ``overrides`` are the checks that the approval
        overrides.  ``settings`` are of ``SweepSettings``.  Whether the sweep is ``small`` is up to the look, if nothing
        is said.
        """
        run = self.begin()
        if live is not None:
            referenced = self._frame(live)
            look = lambda suspects: referenced  # noqa: E731
        if look is None:
            look = self.second_look(run, mark, overrides)
        output, result = sweep(
            self.context_with(sweep=SweepSettings.model_validate({"retry_pause_seconds": 0, **settings})),
            run,
            mark,
            look,
            known_restores=known_restores,
            not_backed_up=not_backed_up,
            named_at_root=named_at_root,
            only=only,
            is_small=isinstance(look, SecondLook) and look.is_small if small is None else small,
            sleep=sleep,
        )
        self.workspace.write(self.spark, self.run_key, "sweep", output)
        rows = self.dataset("sweep").dataframe.collect()
        self.swept = {row["address"]: row["outcome"] for row in rows}
        self.errors = {row["address"]: row["error"] for row in rows}
        if len(self.swept) != len(rows):
            raise ValueError("an object has more than one outcome")
        return result

    def second_look(self, run: GCRun, mark: Mark, overrides: Iterable[str] = ()) -> SecondLook:
        accepted = Accepted.of(mark, set(overrides))
        return second_look_at(self.context, run, mark, accepted, any_size_at_mark(self.context, mark))

    def _frame(self, addresses: Iterable[str]) -> DataFrame:
        return self.spark.createDataFrame([(address,) for address in addresses], schemas.UNCOMMITTED)


def marked(repository: LakeRepository, mark: Mark) -> set[str]:
    """The addresses of a mark."""
    return {address for part in mark.parts for address in read_part(repository.store, part)["address"].to_pylist()}


def counts(result: SweepResult) -> dict[str, int]:
    """Objects by outcome, those that there are."""
    return {name: outcome.objects for name, outcome in result.outcomes.items() if outcome.objects}


def keys_below(store: ObjectStore, prefix: str) -> Iterator[str]:
    """All keys with a prefix."""
    for batch in store.list(prefix):
        yield from batch.column("address").to_pylist()
