"""What every target of the fuzzer has."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakefs_gc.errors import (
    CorruptFileError,
)

CORPUS = Path(__file__).parents[1] / "corpus"
REFUSED = "refused"
FILE = "fuzzed"
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
SCRATCH = tempfile.TemporaryDirectory(prefix="lakefs-gc-fuzz-")


class Finding(AssertionError):  # noqa: N818 - it is what it is
    """A parser accepted an invalid file, or two ways to read the same bytes differ."""


@dataclass(frozen=True)
class Target:
    """One parser. ``seeds`` are good files. ``read`` returns the content of a file, to be compared with ``==``."""

    name: str
    read: Callable[[bytes], Any]
    seeds: Callable[[], list[bytes]]
    refusals: tuple[type[Exception], ...] = (CorruptFileError,)
    sealed: bool = False
    interpreted: bool = False

    def run(self, data: bytes) -> Any:
        """Return the content of the file, or ``REFUSED``. Any other error is a finding."""
        try:
            parsed = self.read(data)
        except self.refusals:
            return REFUSED
        if self.sealed and parsed not in _content_of_seeds(self):
            raise Finding(f"{self.name}: a file that differs from all seeds was accepted: {parsed!r:.300}")
        return parsed

    @property
    def corpus(self) -> list[Path]:
        return sorted((CORPUS / self.name).glob("*"))


@lru_cache(maxsize=64)
def _content_of_seeds(target: Target) -> list[Any]:
    return [target.read(seed) for seed in target.seeds()]


def agree(left: Any, right: Any, what: str) -> None:
    if left != right:
        raise Finding(f"{what}: {left!r:.300} is not {right!r:.300}")


def rows_of(batch: pa.RecordBatch) -> Any:
    """Return the rows of a valid batch."""
    batch.validate(full=True)
    return batch.to_pylist()


def listed(batch: pa.RecordBatch) -> list[list[Any]]:
    """Return the columns of a listing, with times as numbers because Arrow's times exceed the year 9999."""
    return [column.to_pylist() for column in (batch["address"], batch["size"], batch["last_modified"].cast(pa.int64()))]
