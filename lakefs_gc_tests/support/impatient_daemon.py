"""The process that starts Spark's Python workers (``spark.python.daemon.module``), in tests.

Its workers pause a twentieth of the usual time before they repeat a request. A store that is permanently down in a test
then ends the run after a second, not after 13 to 60. The number of attempts is unchanged.

A worker dies in the middle of a delete if ``KILL_FILE`` exists two folders above a local store.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from pyspark import daemon

from lakefs_gc.storage.base import Deletions
from lakefs_gc.storage.delete_window import DeleteWindow
from lakefs_gc.storage.local import LocalStore
from lakefs_gc.storage.retry import RetryPolicy

KILL_FILE = "kill-in-delete"
"""Contains the number of objects to delete before the worker dies. The dying worker removes the file."""

_patient = RetryPolicy.pause_seconds
_delete_many = LocalStore.delete_many


def pause_seconds(self: RetryPolicy, failures: int) -> float:
    """Replace ``RetryPolicy.pause_seconds``."""
    return _patient(self, failures) / 20


def delete_many(self: LocalStore, keys: Sequence[str], window: DeleteWindow | None = None) -> Deletions:
    """Replace ``LocalStore.delete_many``."""
    kill = self.folder.parent.parent / KILL_FILE
    if not kill.exists():
        return _delete_many(self, keys, window)
    left = int(kill.read_text())
    _delete_many(self, keys[:left], window)
    if left > len(keys):  # the next chunk
        kill.write_text(str(left - len(keys)))
        return _delete_many(self, keys, window)
    kill.unlink()
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit  # never


if __name__ == "__main__":
    RetryPolicy.pause_seconds = pause_seconds  # type: ignore[method-assign]
    LocalStore.delete_many = delete_many  # type: ignore[method-assign]
    daemon.manager()
