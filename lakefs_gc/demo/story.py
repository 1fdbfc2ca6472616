"""Builds the repository of the demo through lakeFS's API: two months of a data team's work."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lakefs_sdk
from lakefs_sdk.exceptions import ApiException

from lakefs_gc.config import ServerCredentials
from lakefs_gc.storage.base import ObjectStore

REPOSITORY = "lake"
_DAYS_MAIN, _DAYS_DEFAULT = 21, 7
_PARTITIONS_A_DAY = 12
_OBJECT_BYTES = 40_000

_GONE = 410


@dataclass(frozen=True)
class LiveObject:
    """An object that lakeFS serves: a path at a branch or commit, and the checksum of its content."""

    ref: str
    path: str
    sha256: str


class Storyteller:
    """Builds the repository, and reads it as users do."""

    def __init__(self, credentials: ServerCredentials, scratch: Path) -> None:
        """``scratch`` is a file that may be overwritten."""
        self._client = lakefs_sdk.ApiClient(
            lakefs_sdk.Configuration(
                host=credentials.endpoint_url + "/api/v1",
                username=credentials.access_key_id,
                password=credentials.secret_access_key,
            )
        )
        self._repositories = lakefs_sdk.RepositoriesApi(self._client)
        self._branches = lakefs_sdk.BranchesApi(self._client)
        self._commits = lakefs_sdk.CommitsApi(self._client)
        self._objects = lakefs_sdk.ObjectsApi(self._client)
        self._refs = lakefs_sdk.RefsApi(self._client)
        self._imports = lakefs_sdk.ImportApi(self._client)
        self._scratch = scratch
        self._serial = 0

    def tell(self, namespace: str, lake: ObjectStore, landing_key: str, landing_url: str) -> Iterator[str]:
        """Build the repository in ``namespace``, and yield a sentence for each step.

        ``landing_key`` is the key of external data in ``lake``, a store above the namespaces. ``landing_url`` is its
        URL.
        """
        self._repositories.create_repository(
            lakefs_sdk.RepositoryCreation(name=REPOSITORY, storage_namespace=namespace, default_branch="main")
        )
        rules = [lakefs_sdk.GarbageCollectionRule(branch_id="main", retention_days=_DAYS_MAIN)]
        self._repositories.set_gc_rules(
            REPOSITORY,
            lakefs_sdk.GarbageCollectionRules(default_retention_days=_DAYS_DEFAULT, branches=rules),
        )
        yield f"retention rules: {_DAYS_MAIN} days for main, {_DAYS_DEFAULT} days for all other branches"
        self._history_of_main()
        yield "branch main: two months of events, a report that is overwritten daily, old events that are deleted"
        self._branch_that_was_merged()
        yield "branch backfill: rewrites events, is merged, and is deleted"
        self._branch_that_was_abandoned()
        yield "branch experiment: a large table, committed a month ago. The branch is deleted, its objects remain"
        self._unfinished_work()
        yield "branch draft: uploads that are overwritten, deleted or reset, a copy, and uploads that are still staged"
        lake.put(landing_key, self._content())
        self._import(landing_url)
        yield "branch vendor: imports data from outside the namespace, which is never deleted"

    def more_garbage(self) -> None:
        """Create unreferenced objects for a second mark."""
        for hour in range(6):
            self._upload("draft", f"scratch/retry-{hour}.parquet")
            self._upload("draft", f"scratch/retry-{hour}.parquet")

    def live_objects(self) -> Iterator[LiveObject]:
        """Read every object at the head of every branch."""
        for branch in self._branches.list_branches(REPOSITORY, amount=1000).results:
            for stats in self._objects.list_objects(REPOSITORY, branch.id, amount=1000).results:
                yield LiveObject(branch.id, stats.path, self.checksum(branch.id, stats.path))

    def checksum(self, ref: str, path: str) -> str:
        """Read an object through lakeFS, and return its SHA-256."""
        return hashlib.sha256(self._objects.get_object(REPOSITORY, ref, path)).hexdigest()

    def addresses_in_history(self) -> dict[str, tuple[str, str]]:
        """Return (commit, path) by physical address, for every object of every commit that a branch reaches."""
        addresses: dict[str, tuple[str, str]] = {}
        for branch in self._branches.list_branches(REPOSITORY, amount=1000).results:
            for commit in self._refs.log_commits(REPOSITORY, branch.id, amount=1000).results:
                for stats in self._objects.list_objects(REPOSITORY, commit.id, amount=1000).results:
                    addresses[stats.physical_address] = (commit.id, stats.path)
        return addresses

    def is_gone(self, ref: str, path: str) -> bool:
        """Return whether lakeFS answers 410 Gone: the object was deleted permanently."""
        try:
            self._objects.get_object(REPOSITORY, ref, path)
        except ApiException as error:
            return bool(error.status == _GONE)
        return False

    def _history_of_main(self) -> None:
        for age_days in (60, 50, 40, 30, 20, 10, 3):
            for part in range(_PARTITIONS_A_DAY):
                self._upload("main", f"events/day-{age_days:03}/part-{part:02}.parquet")
            self._upload("main", "reports/daily.csv")
            if age_days <= 40:
                for part in range(_PARTITIONS_A_DAY):
                    self._delete("main", f"events/day-{age_days + 20:03}/part-{part:02}.parquet")
            self._commit("main", f"events of the last days ({age_days} days ago)", age_days)

    def _branch_that_was_merged(self) -> None:
        self._branch("backfill")
        for part in range(_PARTITIONS_A_DAY):
            self._upload("backfill", f"events/day-010/part-{part:02}.parquet")
        self._commit("backfill", "rewrite the events of day 10", 2)
        self._refs.merge_into_branch(REPOSITORY, "backfill", "main")
        self._branches.delete_branch(REPOSITORY, "backfill")

    def _branch_that_was_abandoned(self) -> None:
        self._branch("experiment")
        for part in range(_PARTITIONS_A_DAY):
            self._upload("experiment", f"features/wide-{part:02}.parquet", factor=4)
        self._commit("experiment", "a very wide table", 30)
        self._branches.delete_branch(REPOSITORY, "experiment")

    def _unfinished_work(self) -> None:
        self._branch("draft")
        for attempt in range(4):
            self._upload("draft", "model/weights.bin", factor=attempt + 1)
        self._upload("draft", "model/notes.txt")
        self._delete("draft", "model/notes.txt")
        self._objects.copy_object(
            REPOSITORY,
            "draft",
            "model/weights-copy.bin",
            lakefs_sdk.ObjectCopyCreation(src_path="model/weights.bin", src_ref="draft"),
        )
        self._branch("mistake")
        for part in range(_PARTITIONS_A_DAY):
            self._upload("mistake", f"wrong/part-{part:02}.parquet")
        self._branches.reset_branch(REPOSITORY, "mistake", lakefs_sdk.ResetCreation(type="reset"))

    def _import(self, landing_url: str) -> None:
        self._branch("vendor")
        started = self._imports.import_start(
            REPOSITORY,
            "vendor",
            lakefs_sdk.ImportCreation(
                paths=[lakefs_sdk.ImportLocation(type="object", path=landing_url, destination="vendor/prices.csv")],
                commit=lakefs_sdk.CommitCreation(message="import the vendor's prices"),
            ),
        )
        while not self._imports.import_status(REPOSITORY, "vendor", started.id).completed:
            time.sleep(0.1)

    def _branch(self, name: str) -> None:
        self._branches.create_branch(REPOSITORY, lakefs_sdk.BranchCreation(name=name, source="main"))

    def _upload(self, branch: str, path: str, factor: int = 1) -> None:
        # The SDK uploads a file, given its name.
        self._scratch.write_bytes(self._content(factor))
        self._objects.upload_object(REPOSITORY, branch, path, content=str(self._scratch))

    def _delete(self, branch: str, path: str) -> None:
        self._objects.delete_object(REPOSITORY, branch, path)

    def _commit(self, branch: str, message: str, age_days: int) -> None:
        date = datetime.now(UTC) - timedelta(days=age_days)
        self._commits.commit(REPOSITORY, branch, lakefs_sdk.CommitCreation(message=message, date=int(date.timestamp())))

    def _content(self, factor: int = 1) -> bytes:
        self._serial += 1
        seed = hashlib.sha256(str(self._serial).encode()).digest()
        return seed * (_OBJECT_BYTES * factor // len(seed))
