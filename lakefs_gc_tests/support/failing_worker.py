"""A worker that raises the error that it gets."""

from __future__ import annotations

import pyarrow as pa

from lakefs_gc.engine.spark.workers import Batches, worker


@worker
def fail(batches: Batches, error: Exception) -> Batches:
    for _ in batches:
        raise error
    yield pa.record_batch({"id": pa.array([], pa.int64())})
