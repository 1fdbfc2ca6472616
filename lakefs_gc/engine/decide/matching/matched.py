"""Leaves out of the join of ``unmatched`` what matches: the listed objects that are referenced, and their references.

In most repositories that is nearly everything, and Spark would shuffle and sort it. On two cores, the stage takes 14 s
for 20 million objects and 19 million references, and 31 s if Spark compares all of them.

A mistake in the table uncovers no referenced object. A reference is left out only if an object with its hash was found,
and then every object with that hash is left out: an object that stays keeps all its references. So what is left out
wrongly is garbage that stays. Only the sizes must be right: entries with another size than their object hide objects
that nothing else protects (``hidden_twins``), so these entries stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from lakefs_gc.engine.progress import RUN_PROGRESS
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import arrow_schema
from lakefs_gc.engine.spark.data_files import FilesRead
from lakefs_gc.engine.spark.local_rows import local_rows, rows_of
from lakefs_gc.engine.spark.parts import PART, read_part, write_parts
from lakefs_gc.engine.spark.scale import is_small
from lakefs_gc.engine.spark.session import is_local
from lakefs_gc.engine.workspace.run_folders import LISTING
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.formats.parquet import read_columns
from lakefs_gc.storage.base import LISTING_SCHEMA
from lakefs_gc.storage.concurrency import map_unordered

if TYPE_CHECKING:
    from lakefs_gc.engine.decide.matching.address_table import Hashes

logger = logging.getLogger(__name__)

_MOST_REFERENCES = 40_000_000  # 1.2 GB of memory
_MOST_REFERENCES_LEFT = 200_000
"""References that this process hands to Spark: without an object in the listing, or with another size than it has."""
_READS_AT_ONCE = 4  # files of about a million rows
_LISTED_LEFT = "unmatched_listed"

Result = TypeVar("Result")


def without_matched(
    context: RunContext, run: GCRun, listing: Dataset, references: Sequence[Dataset]
) -> tuple[Dataset, Sequence[Dataset]]:
    """Return the listing (columns ``schemas.STORE_LISTING``) and its references without what matches.

    The references have columns ``schemas.SIZED`` if their stage has sizes, and otherwise ``schemas.UNCOMMITTED``. Of
    the manifests, only ``rows`` is that of the result. Returns the arguments where Spark's join is needed: on a
    cluster, for more references than fit into memory, and if many references have no object.

    Raise ``CorruptFileError`` if a stage does not have the rows that were written.
    """
    rows = sum(dataset.manifest.rows for dataset in references)
    is_near = is_small(context.spark) or is_local(context.spark)
    if not is_near or rows > _MOST_REFERENCES or any(dataset.files is None for dataset in (listing, *references)):
        return listing, references
    from lakefs_gc.engine.decide.matching.address_table import (  # imports numba, which takes 0.4 s
        AddressTable,
        hashes_of,
    )

    table = AddressTable(rows)

    def referenced(batch: pa.RecordBatch) -> tuple[Hashes, pa.Int64Array | None]:
        return hashes_of(batch["address"], table.seed), batch["size"] if "size" in batch.schema.names else None

    def listed_left(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pa.array(table.find(hashes_of(batch["address"], table.seed), batch["size"])))

    def references_left(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pa.array(table.unsettled(hashes_of(batch["address"], table.seed))))

    with RUN_PROGRESS.step("unmatched"):
        for dataset in references:
            for hashes, sizes in _each(context, dataset, referenced):
                table.add(hashes, sizes)
        with closing(_each(context, listing, listed_left)) as batches:
            objects = _keep_listed(context, run, listing, batches)
        left: list[Dataset] = []
        room = _MOST_REFERENCES_LEFT
        for dataset in references:
            schema, kept = _columns_of(dataset), []
            with closing(_each(context, dataset, references_left)) as rest:
                for batch in rest:
                    kept.append(batch)
                    room -= batch.num_rows
                    if room < 0:
                        logger.info("unmatched: many references have no object, so Spark compares them all")
                        return listing, references
            table_left = pa.Table.from_batches(kept, arrow_schema(schema))
            left.append(_with_rows(dataset, partial(rows_of, context.spark, table_left, schema), len(table_left)))
    return objects, left


def _each(context: RunContext, dataset: Dataset, work: Callable[[pa.RecordBatch], Result]) -> Generator[Result]:
    """Yield ``work(rows)`` for all rows of a stage (columns ``_columns_of``). Threads call ``work``."""
    assert dataset.files is not None
    fields = arrow_schema(_columns_of(dataset))
    store = context.open_store(dataset.files.store)

    def read(key: str) -> tuple[FilesRead, list[Result]]:
        content, facts = read_part(store, key), FilesRead()
        facts.add(content, key)
        return facts, [work(batch) for batch in read_columns(content, fields, key).to_batches()]

    whole = FilesRead()
    with closing(map_unordered(read, dataset.files.keys, min(_READS_AT_ONCE, context.cores))) as files:
        for _, (facts, results) in files:
            whole.rows += facts.rows
            whole.footers += facts.footers
            if whole.rows > dataset.files.rows:
                break
            yield from results
    dataset.files.refuse_others(whole)  # a reference that was not read must not make its object unreferenced


def _columns_of(dataset: Dataset) -> StructType:
    return {LISTING: schemas.STORE_LISTING, "committed": schemas.SIZED}.get(dataset.manifest.stage, schemas.UNCOMMITTED)


def _keep_listed(context: RunContext, run: GCRun, listing: Dataset, batches: Iterator[pa.RecordBatch]) -> Dataset:
    """Return what is left of a listing. In a run of any size it may be too much for this process, so it is written."""
    if is_small(context.spark):
        table = pa.Table.from_batches(batches, LISTING_SCHEMA)
        return _with_rows(listing, partial(rows_of, context.spark, table, schemas.STORE_LISTING), len(table))
    began_at = context.clock()
    folder = context.workspace.parts_folder(run.run_key, _LISTED_LEFT)
    parts = [part for report in write_parts(batches, folder) for part in report.to_pylist()]
    reports = local_rows(context.spark, [tuple(part[name] for name in PART.names) for part in parts], PART)
    output = StageOutput(reports, began_at, in_parts=True)
    kept = context.workspace.keep(context.spark, run.run_key, _LISTED_LEFT, output, schemas.STORE_LISTING)
    return _with_rows(listing, kept.read, kept.manifest.rows)


def _with_rows(dataset: Dataset, read: Callable[[], DataFrame], rows: int) -> Dataset:
    return Dataset(read, replace(dataset.manifest, rows=rows))
