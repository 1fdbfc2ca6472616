"""Objects at the root of a namespace whose names lakeFS does not give (``formats.addresses.has_unrecognized_name``).

They are counted and never marked.  A ``terraform.tfstate`` in a bucket that is also a namespace is somebody else's.

There is one exception: a repository that itself refers to such a name.  Entries of that kind are staged or written by
hand (lakeFS refuses to import from a repository's own namespace), so people use this root for the repository's objects,
and the unreferenced ones among them are garbage.  A whole bucket is not an exception: one staged ``report.csv`` proves
nothing about the other objects of a bucket.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import InputOrderError
from lakefs_gc.formats.addresses import UNRECOGNIZED_NAME_REGEX, have_unrecognized_names, is_whole_bucket

UNRECOGNIZED, UNRECOGNIZED_BYTES = "strangers", "strangers_bytes"
"""Facts of a listing: how many there are, whether anybody refers to them or not."""
NOT_LAKEFS, NOT_LAKEFS_BYTES = "not_lakefs", "not_lakefs_bytes"
"""Facts of ``unmatched`` and of the candidates: how many are left that would be garbage under another name."""
NAMED_AT_ROOT = "named_at_root"
"""Fact of ``unmatched`` and of the candidates: a name of that kind that the repository refers to, if that counts."""


class UnrecognizedNameCount:
    """In a worker: counts strangers among objects of a listing as they pass."""

    def __init__(self) -> None:
        self._strangers = self._size_bytes = 0

    def add(self, at_root: pa.RecordBatch) -> None:
        """``at_root`` are objects directly at the root."""
        strangers = at_root.filter(have_unrecognized_names(at_root["address"]))
        self._strangers += strangers.num_rows
        self._size_bytes += pc.sum(strangers["size"], min_count=0).as_py()

    def take(self) -> dict[str, int]:
        """The counts since the last time, as columns of a report."""
        taken = {UNRECOGNIZED: self._strangers, UNRECOGNIZED_BYTES: self._size_bytes}
        self._strangers = self._size_bytes = 0
        return taken


def has_unrecognized_name(column: str = "address") -> Column:
    """Whether an address is a stranger's; most addresses have a slash, which is quick to see."""
    return ~F.col(column).contains("/") & F.col(column).rlike(UNRECOGNIZED_NAME_REGEX)


def named_at_root(run: GCRun, listing: Dataset, *references: Dataset) -> str:
    """A stranger's name that the repository refers to, so that its root is its own; empty if there is none.

    ``references`` are what is committed and staged in this repository.  They are read only where the listing has
    strangers, or does not say.
    """
    if listing.manifest.facts.get(UNRECOGNIZED) == 0 or is_whole_bucket(run.namespace):
        return ""
    names = (dataset.dataframe.select("address").where(has_unrecognized_name()) for dataset in references)
    with driver_errors():
        [row] = reduce(DataFrame.union, names).agg(F.min("address").alias("name")).collect()
    return str(row["name"] or "")


def unrecognized_name_facts(found: Dataset) -> dict[str, Any]:
    """What ``unmatched`` or the candidates say of them, for what is made from it.  Raises ``InputOrderError``."""
    facts = found.manifest.facts
    if NOT_LAKEFS not in facts:
        raise InputOrderError(
            f"{found.manifest.stage} of run {found.manifest.run_key} was made by an older lakefs-gc, which takes "
            "whatever lies at the root for lakeFS's",
            remedy="start a new run",
        )
    return {name: facts[name] for name in (NAMED_AT_ROOT, NOT_LAKEFS, NOT_LAKEFS_BYTES)}
