"""The process that starts Spark's Python workers (``spark.python.daemon.module``), in tests.

Its workers pause a twentieth of the usual time before they repeat a request. A store that is permanently down in a test
then ends the run after a second, not after 13 to 60. The number of attempts is unchanged.

A worker dies in the middle of a delete if ``KILL_FILE`` exists two folders above a local store, or if there is the file
that ``KILL_FILE_VARIABLE`` names, in a delete in Azure's or Google's store. With ``IN_ORDER_VARIABLE``, the emulator of
Google's store lists in order (``paging_proxy``).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from pyspark import daemon

from lakefs_gc.storage.base import Deletions, ObjectStore, VersionedTarget
from lakefs_gc.storage.delete_window import DeleteWindow
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.retry import RetryPolicy

KILL_FILE = "kill-in-delete"
"""Contains the number of objects to delete before the worker dies. The dying worker removes the file."""
KILL_FILE_VARIABLE = "LAKEFS_GC_TESTS_KILL_FILE"
IN_ORDER_VARIABLE = "LAKEFS_GC_TESTS_IN_ORDER"

Targets = TypeVar("Targets", bound=Sequence[Any])
_patient = RetryPolicy.pause_seconds
_delete_many = LocalStore.delete_many


def pause_seconds(self: RetryPolicy, failures: int) -> float:
    """Replace ``RetryPolicy.pause_seconds``."""
    return _patient(self, failures) / 20


def delete_many(self: LocalStore, keys: Sequence[str], window: DeleteWindow | None = None) -> Deletions:
    """Replace ``LocalStore.delete_many``."""
    return _dying(self.folder.path.parent.parent / KILL_FILE, keys, lambda some: _delete_many(self, some, window))


def _dying(kill: Path, targets: Targets, delete: Callable[[Targets], Deletions]) -> Deletions:
    """Delete the targets; if the file exists, die after some of them."""
    if not kill.exists():
        return delete(targets)
    left = int(kill.read_text())
    delete(cast(Targets, targets[:left]))
    if left > len(targets):  # the next chunk
        kill.write_text(str(left - len(targets)))
        return delete(targets)
    kill.unlink()
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit  # never


def _may_die_in(store: type[ObjectStore], kill: Path) -> None:
    """Replace ``delete_unchanged`` of a store."""
    real = store.delete_unchanged

    def delete_unchanged(
        self: ObjectStore, targets: Sequence[VersionedTarget], window: DeleteWindow | None = None
    ) -> Deletions:
        return _dying(kill, targets, lambda some: real(self, some, window))

    store.delete_unchanged = delete_unchanged  # type: ignore[method-assign]


if __name__ == "__main__":
    RetryPolicy.pause_seconds = pause_seconds  # type: ignore[method-assign]
    LocalStore.delete_many = delete_many  # type: ignore[method-assign]
    if file := os.environ.get(KILL_FILE_VARIABLE):
        from lakefs_gc.storage.azure.store import AzureStore
        from lakefs_gc.storage.gcs.store import GCSStore

        for kind in (AzureStore, GCSStore):
            _may_die_in(kind, Path(file))
    if os.environ.get(IN_ORDER_VARIABLE):
        from lakefs_gc.storage.gcs import store

        store.emulator_endpoint = lambda environment=None: ""  # type: ignore[attr-defined]
    daemon.manager()
