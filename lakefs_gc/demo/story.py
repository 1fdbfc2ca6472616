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
DAYS_MAIN, DAYS_DEFAULT = 21, 7
_PARTITIONS_A_DAY = 12
_OBJECT_BYTES = 40_000

_GONE = 410


@dataclass(frozen=True)
class Version:
    """An uploaded object: its physical address (a URL), and the checksum of its content."""

    path: str
    address: str
    sha256: str


@dataclass(frozen=True)
class Fate:
    """Objects that must be decided alike, and why. ``decision`` is ``KEPT`` or the reason of a mark."""

    paths: str
    versions: tuple[Version, ...]
    decision: str
    why: str


KEPT, EXPIRED, NEVER_COMMITTED = "kept", "expired", "never_committed"


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
        self._versions: dict[str, list[Version]] = {}

    def tell(self, namespace: str, lake: ObjectStore, landing_key: str, landing_url: str) -> Iterator[tuple[str, str]]:
        """Build the repository in ``namespace``, and yield the name of each branch with what happened on it.

        ``landing_key`` is the key of external data in ``lake``, a store above the namespaces. ``landing_url`` is its
        URL.
        """
        self._repositories.create_repository(
            lakefs_sdk.RepositoryCreation(name=REPOSITORY, storage_namespace=namespace, default_branch="main")
        )
        rules = [lakefs_sdk.GarbageCollectionRule(branch_id="main", retention_days=DAYS_MAIN)]
        self._repositories.set_gc_rules(
            REPOSITORY,
            lakefs_sdk.GarbageCollectionRules(default_retention_days=DAYS_DEFAULT, branches=rules),
        )
        self._history_of_main()
        yield "main", "60 days of events, of which old days are deleted; reports/daily.csv overwritten by each commit"
        self._branch_that_was_merged()
        yield "backfill", "rewrote events/day-010, was merged into main and deleted"
        self._branch_that_was_abandoned()
        yield "experiment", "committed the large table features/ 30 days ago; the branch was deleted"
        self._unfinished_work()
        yield "draft", "nothing committed: model/weights.bin uploaded 4 times and copied, model/notes.txt deleted"
        yield "mistake", "uploaded wrong/, then was reset"
        self._import(lake, landing_key, landing_url)
        yield "vendor", "imported vendor/prices.csv from outside the namespace"

    def fates(self) -> list[Fate]:
        """Return what must happen to each object that was uploaded, by the retention rules."""
        old, current = slice(3), slice(-1, None)
        recent, long_ago = f"less than {DAYS_MAIN} days ago", f"more than {DAYS_MAIN} days ago"
        days_20_to_40 = self._of("events/day-020", "events/day-030", "events/day-040")
        heads = self._of("events/day-003", "events/day-010", "reports/", which=current)
        replaced = self._of("events/day-010", which=slice(1))
        overwritten = "reports/daily.csv, overwritten"
        return [
            Fate(
                "events/day-050, events/day-060",
                self._of("events/day-050", "events/day-060"),
                EXPIRED,
                f"deleted from main {long_ago}",
            ),
            Fate(overwritten, self._of("reports/", which=old), EXPIRED, f"overwritten on main {long_ago}"),
            Fate("features/", self._of("features/"), EXPIRED, f"on a deleted branch, over {DAYS_DEFAULT} days old"),
            Fate(
                "model/weights.bin, overwritten", self._of("model/weights", which=old), NEVER_COMMITTED, "uncommitted"
            ),
            Fate("model/notes.txt", self._of("model/notes"), NEVER_COMMITTED, "uncommitted, deleted from draft"),
            Fate("wrong/", self._of("wrong/"), NEVER_COMMITTED, "uncommitted, branch mistake was reset"),
            Fate("events/day-020 to day-040", days_20_to_40, KEPT, f"deleted from main {recent}"),
            Fate("events/day-010, before the merge", replaced, KEPT, f"replaced on main {recent}"),
            Fate(overwritten, self._of("reports/", which=slice(3, -1)), KEPT, f"overwritten on main {recent}"),
            Fate("events/, reports/, current", heads, KEPT, "on the head of main"),
            Fate("model/weights.bin, current", self._of("model/weights", which=current), KEPT, "staged on draft"),
            Fate("vendor/prices.csv", self._of("vendor/"), KEPT, "outside the namespace, never listed"),
        ]

    def _of(self, *prefixes: str, which: slice = slice(None)) -> tuple[Version, ...]:
        """Return the uploads of paths with these prefixes: of each path all, or those that ``which`` selects."""
        return tuple(v for path, uploads in self._versions.items() if path.startswith(prefixes) for v in uploads[which])

    def branch_from_oldest(self, name: str, path: str) -> tuple[Version, ...]:
        """Create a branch from the oldest commit that shows a path. Return the uploads that it shows."""
        commits = self._refs.log_commits(REPOSITORY, "main", amount=1000).results
        shown = {commit.id: dict(self._shown(commit.id)) for commit in commits}
        oldest = min(
            (commit for commit in commits if path in shown[commit.id].values()), key=lambda commit: commit.creation_date
        )
        self._branches.create_branch(REPOSITORY, lakefs_sdk.BranchCreation(name=name, source=oldest.id))
        return tuple(v for uploads in self._versions.values() for v in uploads if v.address in shown[oldest.id])

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
        branches = self._branches.list_branches(REPOSITORY, amount=1000).results
        logs = (self._refs.log_commits(REPOSITORY, branch.id, amount=1000).results for branch in branches)
        commits = dict.fromkeys(commit.id for log in logs for commit in log)
        return {address: (commit, path) for commit in commits for address, path in self._shown(commit)}

    def places(self) -> dict[str, tuple[str, str]]:
        """Return (ref, path) by physical address, for every object that a commit or a staging area shows."""
        places = self.addresses_in_history()
        for branch in self._branches.list_branches(REPOSITORY, amount=1000).results:
            places |= {address: (branch.id, path) for address, path in self._shown(branch.id)}
        return places

    def _shown(self, ref: str) -> list[tuple[str, str]]:
        objects = self._objects.list_objects(REPOSITORY, ref, amount=1000).results
        return [(stats.physical_address, stats.path) for stats in objects]

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

    def _import(self, lake: ObjectStore, landing_key: str, landing_url: str) -> None:
        content = self._content()
        lake.put(landing_key, content)
        self._record("vendor/prices.csv", landing_url, content)
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
        content = self._content(factor)
        self._scratch.write_bytes(content)
        stats = self._objects.upload_object(REPOSITORY, branch, path, content=str(self._scratch))
        self._record(path, stats.physical_address, content)

    def _record(self, path: str, address: str, content: bytes) -> None:
        self._versions.setdefault(path, []).append(Version(path, address, hashlib.sha256(content).hexdigest()))

    def _delete(self, branch: str, path: str) -> None:
        self._objects.delete_object(REPOSITORY, branch, path)

    def _commit(self, branch: str, message: str, age_days: int) -> None:
        date = datetime.now(UTC) - timedelta(days=age_days)
        self._commits.commit(REPOSITORY, branch, lakefs_sdk.CommitCreation(message=message, date=int(date.timestamp())))

    def _content(self, factor: int = 1) -> bytes:
        self._serial += 1
        seed = hashlib.sha256(str(self._serial).encode()).digest()
        return seed * (_OBJECT_BYTES * factor // len(seed))
