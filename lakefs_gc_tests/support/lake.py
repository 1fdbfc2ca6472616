"""A lake to collect: what users do in it.

The lake is an embedded sandbox server on a local folder (or any store), used through the unmodified SDK.  Objects are
made old as they are written, so that the default safety parameters hold in every test.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lakefs_sdk
from lakefs_sdk.client import LakeFSClient as SDKClient

from lakefs_gc.config import SafetyParameters, ServerCredentials, Settings
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.sandbox_place import sdk_client

OLD_HOURS = 48.0
"""Older than the grace period of a day."""
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

    def put(self, path: str, content: str | None = None, *, branch: str = "main", age_hours: float = OLD_HOURS) -> str:
        """Upload ``content``, by default the path itself; the key of the object, which is ``age_hours`` old."""
        body = (path if content is None else content).encode()
        stats = self._client.objects_api.upload_object(self.name, branch, path, content=body)
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

    def copy(self, source: str, path: str) -> str:
        """Copy an object within a branch; the key of the new object."""
        body = lakefs_sdk.ObjectCopyCreation(src_path=source, src_ref="main")
        url = self._client.objects_api.copy_object(self.name, "main", path, body).physical_address
        key = str(url).removeprefix(self.namespace).lstrip("/")
        self.age(key, OLD_HOURS)
        return key

    def keep_days(self, days: int, **branches: int) -> None:
        """Set the retention rules."""
        rules = [lakefs_sdk.GarbageCollectionRule(branch_id=b, retention_days=d) for b, d in branches.items()]
        body = lakefs_sdk.GarbageCollectionRules(default_retention_days=days, branches=rules)
        self._client.repositories_api.set_gc_rules(self.name, body)

    def keep_everything(self) -> None:
        """Delete the retention rules."""
        self._client.repositories_api.delete_gc_rules(self.name)

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


def keys_below(store: ObjectStore, prefix: str) -> Iterator[str]:
    """All keys with a prefix."""
    for batch in store.list(prefix):
        yield from batch.column("address").to_pylist()
