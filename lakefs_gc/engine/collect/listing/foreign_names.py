"""Objects that may be of another program: by their names at the root or in ``data/``, or at the root of a bucket.

Those at the root with a name that lakeFS does not generate (``has_unrecognized_name``) are counted and never marked. A
``terraform.tfstate`` in a bucket that is also a namespace belongs to another program.

There is one exception: a repository that itself references such a name. People stage or write such entries manually
(lakeFS refuses to import from a repository's own namespace), so they use this root for the repository's objects, and
the unreferenced objects there are garbage. The exception does not apply to a whole bucket: one staged ``report.csv``
proves nothing about the other objects of the bucket. Nor does an address count that may mean another one, which need
not be at the root (``data\\a.parquet``).

Metadata of lakeFS below ``data/`` belongs to another repository, whose namespace lies in this one. If it is one of this
server, its name says so (``refuse_overlaps``). That of another server is seen in the listing only.

In ``data/`` clients of lakeFS may choose names, so objects with such names are marked. In a whole bucket another
program may have written them, so they are counted for a check of the mark. So are marked objects at the root of a whole
bucket: other programs name files by MD5s and UUIDs, too. There the check asks whether the repository has any object of
such a name at its root, as it has in the old layout of lakeFS.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.run import GCRun
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import InputOrderError, NamespaceError
from lakefs_gc.formats.addresses import is_whole_bucket
from lakefs_gc.formats.candidate_addresses import (
    CHOSEN_NAME_REGEX,
    ISSUED_AT_ROOT_REGEX,
    UNRECOGNIZED_NAME_REGEX,
    have_unrecognized_names,
)

UNRECOGNIZED, UNRECOGNIZED_BYTES = "strangers", "strangers_bytes"
"""Facts of a listing: the number and bytes of unrecognized names at the root, referenced or not."""
NOT_LAKEFS, NOT_LAKEFS_BYTES = "not_lakefs", "not_lakefs_bytes"
"""Facts of ``unmatched`` and of the candidates: the number and bytes that are unreferenced but kept for their names."""
NAMED_AT_ROOT = "named_at_root"
"""Fact of ``unmatched`` and of the candidates: such a name that the repository references, if the exception applies."""

CHOSEN_NAMES, CHOSEN_NAME = "chosen_names", "chosen_name"
"""Facts of the candidates of a whole bucket: how many have a name of ``CHOSEN_NAME_REGEX``, and one of them."""
MARKED_AT_ROOT, EXAMPLE_AT_ROOT = "marked_at_root", "example_at_root"
"""Facts of the candidates of a whole bucket: how many are at its root, and one of them."""


_INNER_METADATA = "/_lakefs/"
_INNER_FILE = rf"{_INNER_METADATA}(?:dummy\z|[0-9a-f]{{64}}\z|retention/)"
"""What lakeFS writes below a namespace: its test of the access, ranges and metaranges, and lists for collectors."""


class UnrecognizedNameCount:
    """Counts the unrecognized names among the objects of a listing, in a worker."""

    def __init__(self) -> None:
        self._objects = self._size_bytes = 0

    def add(self, at_root: pa.RecordBatch) -> None:
        """Count among ``at_root``, which are objects directly at the root."""
        unrecognized = at_root.filter(have_unrecognized_names(at_root["address"]))
        self._objects += unrecognized.num_rows
        self._size_bytes += pc.sum(unrecognized["size"], min_count=0).as_py()

    def take(self) -> dict[str, int]:
        """Return the counts since the last call, as columns of a report."""
        taken = {UNRECOGNIZED: self._objects, UNRECOGNIZED_BYTES: self._size_bytes}
        self._objects = self._size_bytes = 0
        return taken


def refuse_inner_namespaces(objects: pa.RecordBatch, namespace_url: str) -> None:
    """Raise ``NamespaceError`` if listed objects (column ``address``) are metadata of another repository (rule 5)."""
    inner = objects["address"].filter(pc.match_substring(objects["address"], _INNER_METADATA))
    if len(inner) and len(inner := inner.filter(pc.match_substring_regex(inner, _INNER_FILE))):
        folder = inner[0].as_py().partition(_INNER_METADATA)[0]
        raise NamespaceError(
            f"{namespace_url.rstrip('/')}/{folder}/ is the namespace of another repository, because it has {inner[0]}. "
            "What that repository uses is unknown here, and would be deleted",
            remedy="Move that repository to a namespace of its own, or, if it is not used any more, delete that folder",
        )


def has_unrecognized_name(column: str = "address") -> Column:
    """Return whether an address at the root has an unrecognized name."""
    # First the slash, which most addresses have: the test is fast.
    return ~F.col(column).contains("/") & F.col(column).rlike(UNRECOGNIZED_NAME_REGEX)


def is_in_whole_bucket(run: GCRun) -> bool:
    """Return whether the namespace is a whole bucket, so that other programs may use it, too."""
    # A mount may lead from a folder to a whole bucket.
    return any(map(is_whole_bucket, (run.namespace, run.store.url)))


def whole_bucket_measures(run: GCRun) -> dict[str, Column]:
    """Return the measures of the candidates for a check of their names; none if the namespace is not a whole bucket."""
    if not is_in_whole_bucket(run):
        return {}
    is_chosen, is_at_root = F.col("address").rlike(CHOSEN_NAME_REGEX), ~F.col("address").contains("/")
    return {
        CHOSEN_NAMES: F.count_if(is_chosen),
        CHOSEN_NAME: F.min(F.when(is_chosen, F.col("address"))),
        MARKED_AT_ROOT: F.count_if(is_at_root),
        EXAMPLE_AT_ROOT: F.min(F.when(is_at_root, F.col("address"))),
    }


def named_at_root(run: GCRun, listing: Dataset, *references: Dataset) -> str:
    """Return an unrecognized name that the repository references, so that the exception applies. Empty if it does not.

    ``references`` are the committed and the staged addresses of this repository. They are read only if the listing has
    unrecognized names, or does not count them.
    """
    if listing.manifest.facts.get(UNRECOGNIZED) == 0 or is_in_whole_bucket(run):
        return ""
    return _first_with(has_unrecognized_name() & ~F.col("address").rlike(r"[%?\\]"), references)


def uses_root(*references: Dataset) -> bool:
    """Return whether a repository references a name at its root that lakeFS generates, as it does in the old layout.

    ``references`` are its committed and its staged addresses. All are read.
    """
    is_issued = ~F.col("address").contains("/") & F.col("address").rlike(ISSUED_AT_ROOT_REGEX)
    return bool(_first_with(is_issued, references))


def _first_with(condition: Column, references: Sequence[Dataset]) -> str:
    """Return the first address of ``references`` that meets the condition; empty if none does."""
    names = (dataset.dataframe.select("address").where(condition) for dataset in references)
    with driver_errors():
        [row] = reduce(DataFrame.union, names).agg(F.min("address").alias("name")).collect()
    return str(row["name"] or "")


def unrecognized_name_facts(dataset: Dataset) -> dict[str, Any]:
    """Return the facts of ``unmatched`` or of the candidates, for the next stage. Raises ``InputOrderError``."""
    facts = dataset.manifest.facts
    if NOT_LAKEFS not in facts:
        raise InputOrderError(
            f"{dataset.manifest.stage} of run {dataset.manifest.run_key} was written by an older version of lakefs-gc, "
            "which treats every object at the root as lakeFS's own",
            remedy="Start a new run",
        )
    return {name: facts[name] for name in (NAMED_AT_ROOT, NOT_LAKEFS, NOT_LAKEFS_BYTES)}
