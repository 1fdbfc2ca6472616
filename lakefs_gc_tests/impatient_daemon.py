"""The process that starts Spark's Python workers (``spark.python.daemon.module``), in tests.

Its workers pause a twentieth of the time before they ask a store again: a store that is down for good in a test ends
the run after a second, and not after 13 to 60.  How often they ask stays as it is.
"""

from __future__ import annotations

from pyspark import daemon

from lakefs_gc.storage.retry import RetryPolicy

_patient = RetryPolicy.pause_seconds


def pause_seconds(self: RetryPolicy, failures: int) -> float:
    """Stands for ``RetryPolicy.pause_seconds``."""
    return _patient(self, failures) / 20


if __name__ == "__main__":
    RetryPolicy.pause_seconds = pause_seconds  # type: ignore[method-assign]
    daemon.manager()
