"""Copies whose process is killed: what they leave in a store."""

from __future__ import annotations

import signal
import subprocess
import sys

from lakefs_gc.storage.base import ObjectStore

WRITTEN_BYTES = 48 * 1024**2
"""More than S3's client keeps in memory, so that the upload has begun."""

_CHILD = """
import os, signal, sys
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store

class Source:
    left = int(sys.argv[3])
    def read(self, size):
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= size
        return bytes(size)

open_store(StoreLocation(sys.argv[1])).put_stream(sys.argv[2], Source(), size_bytes=2 * int(sys.argv[3]))
"""


def leave_unfinished(store: ObjectStore, *keys: str) -> None:
    """Write each key in a process of its own, which is killed (SIGKILL) when it has written ``WRITTEN_BYTES``."""
    commands = [[sys.executable, "-c", _CHILD, store.location.url, key, str(WRITTEN_BYTES)] for key in keys]
    for process in [subprocess.Popen(command) for command in commands]:
        if process.wait() != -signal.SIGKILL:
            raise ValueError("the process was to be killed while it wrote")
