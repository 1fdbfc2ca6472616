"""Stage 6, ``unmatched``: objects in the store without a reference, and references without an object in the store.

One full outer join of the listing and the references gives both. Objects without a reference that are older than the
cutoff, and lie where garbage can lie, are garbage (rules 2 and 4). References without an object are an audit (rule 7)
at no extra cost. Committed objects whose entries have another size than the object are returned as well: by sizes,
``hidden_twins`` could not find what took the place of such an object.

The join compares 64-bit hashes of addresses, and only the hashes of references are shuffled. On one machine, what
matches was left out earlier (``matched``), by another hash. Two addresses with the same hash can only make garbage look
referenced, so that it is kept. A referenced object always finds its own hash among the references. Among a billion
addresses, about one object in 10^10 is kept, or missed by the audit, for this reason.
"""

from __future__ import annotations

from datetime import timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.listing.age_buckets import age_measures
from lakefs_gc.engine.collect.listing.foreign_names import (
    NAMED_AT_ROOT,
    NOT_LAKEFS,
    NOT_LAKEFS_BYTES,
    has_unrecognized_name,
    named_at_root,
)
from lakefs_gc.engine.collect.references.active_ranges import LATER_BRANCHES, METADATA_FOLDER
from lakefs_gc.engine.collect.references.committed import live_addresses
from lakefs_gc.engine.decide.matching.matched import without_matched
from lakefs_gc.engine.decide.shown.value_filter import ValueFilter, every_size, filter_of, no_size
from lakefs_gc.engine.input_order import check_inputs, check_made_from
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.local_rows import columns_of, rows_having
from lakefs_gc.engine.spark.workers import driver_errors
from lakefs_gc.engine.workspace.named_files import read_named_file
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.errors import SafetyError
from lakefs_gc.formats.candidate_addresses import CANDIDATE_ADDRESS_REGEX, UPLOAD_PART_REGEX
from lakefs_gc.formats.ranges import read_metarange

_HASH = "address_hash"
_ROWS_PER_PIECE = 500_000  # about 60 MB to sort
WRONG_SIZES = "wrong_sizes"
"""Fact of ``unmatched``, the candidates and a mark: how many committed entries have another size than their object."""
UNLISTED_WRONG_SIZES = "unlisted_wrong_sizes"
"""Fact of ``missing``, ``kept``, the candidates and a mark: the sizes that committed entries state, while their object
has another one, and is not in the listing. None if they are too many or unknown.
"""
NEWER_OBJECTS, NEWER_BYTES = "newer", "newer_bytes"
"""Facts of ``unmatched`` and the candidates: unreferenced objects that are newer than the cutoff, and their bytes."""
UNREFERENCED, UNREFERENCED_BYTES = "unreferenced", "unreferenced_bytes"
"""Facts of ``unmatched`` and the candidates: unreferenced objects that may become candidates, and their bytes."""
LONGEST_UPLOAD = timedelta(days=7)
"""How much older than the cutoff parts of an upload must be: while the upload is in progress, no list has them."""


def unmatched(
    context: RunContext,
    run: GCRun,
    *,
    listing: Dataset,
    uncommitted: Dataset,
    active_ranges: Dataset,
    committed: Dataset,
    foreign_references: Dataset,
) -> StageOutput:
    """Join the listing with all references, and return what does not match. Columns: ``schemas.UNMATCHED``.

    Each side is shuffled once, into pieces of a known size that are sorted in memory, or on disk if memory is short.

    A row that is not in the store has no address, only its hash; ``missing`` looks it up. It may occur several times,
    as ``committed`` and as ``uncommitted``. It may also be an object that was uploaded after the listing, or one
    outside the listed prefixes. ``found_in`` marks objects whose names lakeFS did not generate (``foreign_names``), and
    ``facts`` counts them.

    A row with ``found_in`` ``WRONG_SIZE`` is a live object: ``hiding_any_size`` returns the sizes of such entries.

    Raises ``InputOrderError`` if the inputs are out of order, of different runs, or not made from each other (rule 1),
    and ``SafetyError`` if nothing is committed although a branch has content (rule 3).
    """
    began_at = context.clock()
    check_inputs(run.run_key, listing, uncommitted, active_ranges, committed)
    check_inputs(run.run_key, listing, foreign_references)
    check_made_from(committed, active_ranges)
    check_made_from(active_ranges, uncommitted)
    if committed.manifest.rows == 0:
        refuse_unproved_emptiness(context, run)
    named = named_at_root(run, listing, uncommitted, committed)
    objects, left = without_matched(context, run, listing, (committed, uncommitted, foreign_references))
    pieces = 1 + sum(dataset.manifest.rows for dataset in (objects, *left)) // _ROWS_PER_PIECE
    no_size = F.lit(None).cast("long")
    references = reduce(
        DataFrame.union,
        (
            dataset.dataframe.select(
                address_hash("address"), F.lit(dataset.manifest.stage).alias("found_in"), size.alias("entry_size")
            )
            for dataset, size in zip(left, (F.col("size"), no_size, no_size), strict=True)
        ),
    )
    stored = objects.dataframe.select("*", address_hash("address"), F.lit(True).alias("listed"))
    # An address that is referenced twice joins twice, so it is never unmatched. Sorted pieces are spilled if memory is
    # short. Tables of hashes would take a fifth less time, but 32 tasks at once do not fit into a heap of 1 GiB.
    joined = stored.repartition(pieces, _HASH).join(references.repartition(pieces, _HASH), _HASH, "full_outer")
    has_no_reference = F.col("found_in").isNull()
    # Times first: to search all addresses for the names of parts takes a fifth of the stage's time.
    is_older_than_cutoff = (F.col("last_modified") < F.lit(run.cutoff)) & (
        (F.col("last_modified") < F.lit(run.cutoff - LONGEST_UPLOAD)) | ~F.col("address").rlike(UPLOAD_PART_REGEX)
    )
    is_garbage = is_older_than_cutoff & F.col("address").rlike(CANDIDATE_ADDRESS_REGEX)
    # Whether the objects exist to which other repositories refer is not audited here.
    is_missing = F.col("listed").isNull() & (F.col("found_in") != foreign_references.manifest.stage)
    has_wrong_size = F.coalesce(F.col("listed") & (F.col("entry_size") != F.col("size")), F.lit(False))
    rows = joined.where(has_no_reference | is_missing | has_wrong_size)
    unreferenced_in = F.lit(schemas.STORE)
    if not named:
        unreferenced_in = F.when(has_unrecognized_name(), F.lit(schemas.NOT_LAKEFS)).otherwise(unreferenced_in)
    unreferenced_in = F.when(is_garbage, unreferenced_in).otherwise(F.lit(schemas.NEWER))
    found_in = F.when(has_wrong_size, F.lit(schemas.WRONG_SIZE)).otherwise(F.coalesce("found_in", unreferenced_in))
    is_unreferenced, is_not_lakefs, is_wrong_size, is_newer = (
        F.col("found_in") == name for name in (schemas.STORE, schemas.NOT_LAKEFS, schemas.WRONG_SIZE, schemas.NEWER)
    )
    return StageOutput(
        dataframe=rows.select(
            "address",
            F.when(has_wrong_size, F.col("entry_size")).otherwise(F.col("size")).alias("size"),
            # Null for rows whose age is not counted.
            F.when(~has_wrong_size & ~(has_no_reference & ~is_garbage), F.col("last_modified")).alias("last_modified"),
            found_in.alias("found_in"),
            _HASH,
        ),
        began_at=began_at,
        facts={
            "cutoff": run.cutoff.isoformat(),
            NAMED_AT_ROOT: named,
            LATER_BRANCHES: active_ranges.manifest.facts.get(LATER_BRANCHES, []),
        },
        measures={
            "size_bytes": F.sum(F.when(~is_wrong_size & ~is_newer, F.col("size"))),
            NEWER_OBJECTS: F.count_if(is_newer),
            NEWER_BYTES: F.sum(F.when(is_newer, F.col("size"))),
            UNREFERENCED: F.count_if(is_unreferenced),
            UNREFERENCED_BYTES: F.sum(F.when(is_unreferenced, F.col("size"))),
            NOT_LAKEFS: F.count_if(is_not_lakefs),
            NOT_LAKEFS_BYTES: F.sum(F.when(is_not_lakefs, F.col("size"))),
            "not_in_store": F.count_if(F.col("address").isNull()),
            WRONG_SIZES: F.count_if(is_wrong_size),
            **age_measures(run.started_at),
        },
        inputs={
            dataset.manifest.stage: dataset.manifest.materialization_id
            for dataset in (listing, uncommitted, active_ranges, committed, foreign_references)
        },
        only_counted=is_newer,
    )


def not_marked_facts(unmatched: Dataset) -> dict[str, int | None]:
    """Return the counts that explain, with those of the candidates, what becomes of each listed object."""
    facts = unmatched.manifest.facts
    return {name: facts.get(name) for name in (NEWER_OBJECTS, NEWER_BYTES, UNREFERENCED, UNREFERENCED_BYTES)}


def unreferenced_objects(rows: DataFrame) -> DataFrame:
    """Return the rows of ``schemas.UNMATCHED`` that are objects of lakeFS in the store. Columns: ``STORE_LISTING``."""
    return columns_of(rows_having(rows, "found_in", schemas.STORE), *schemas.STORE_LISTING.names)


def hiding_any_size(unmatched: Dataset, unlisted: list[int] | None) -> ValueFilter | None:
    """Return the sizes of entries that may hide an object of any size (``hidden_twins``); None if there are none.

    These are the sizes of entries whose object has another size; all sizes, if they were not compared. ``unlisted`` is
    ``UNLISTED_WRONG_SIZES``.
    """
    wrong = unmatched.manifest.facts.get(WRONG_SIZES)
    if wrong is None or unlisted is None:
        return every_size()
    sizes: ValueFilter | None = None
    if wrong:
        with driver_errors():
            sizes = filter_of(unmatched.dataframe.where(F.col("found_in") == schemas.WRONG_SIZE).select("size"))
        if sizes is None:
            return every_size()  # counted, but not in the rows: then no size is trusted
    for size_bytes in unlisted:
        sizes = (sizes or no_size()).including(size_bytes)
    return sizes


def address_hash(column: str) -> Column:
    """Return the 64-bit hash (XXH64) of the bytes of an address, as column ``address_hash``."""
    return F.xxhash64(column).alias(_HASH)


def refuse_unproved_emptiness(context: RunContext, run: GCRun) -> None:
    """Raise ``SafetyError`` if the head of a branch has entries in this namespace (rule 3).

    Called when no committed address was read: an empty set counts as true only if every head confirms it.
    """
    server, store = context.server, context.open_store(run.store)
    for branch, commit_id in server.heads_of(run.repository).items():
        metarange_id = server.metarange_of(run.repository, commit_id)
        if not metarange_id:
            continue
        file = METADATA_FOLDER + metarange_id
        for range_id in read_metarange(read_named_file(store, file), file).column("range_id").to_pylist():
            key = METADATA_FOLDER + range_id
            if any(rows.num_rows for rows in live_addresses(read_named_file(store, key), key, run.folders, None)):
                raise SafetyError(
                    f"No committed object was read in repository {run.repository}, but branch {branch} has committed "
                    "objects. Nothing was marked",
                    remedy="Start a new run. If the error persists, check the repository's retention rules and the "
                    "lakeFS server's log for prepare_commits",
                )
