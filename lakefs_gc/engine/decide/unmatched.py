"""Stage 6: what the store has and nobody refers to, and what somebody refers to and the store has not.

Listing and references are joined once, outward on both sides: one side of what does not match is the garbage (older
than the cutoff, in places where garbage can be), the other is an audit (rule 7) that costs nothing more.

They are compared by a 64-bit hash of the address, and of a reference nothing but the hash is moved.  Two addresses of
one hash can only make garbage look referenced, and keep it: an object that is referenced has its own hash among those
of the references, whatever else has it too.  Among a billion addresses about one in 10^10 objects is kept, or missed
by the audit, for that.
"""

from __future__ import annotations

from datetime import timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.listing.age_buckets import age_measures
from lakefs_gc.engine.collect.listing.root_names import (
    NAMED_AT_ROOT,
    NOT_LAKEFS,
    NOT_LAKEFS_BYTES,
    has_unrecognized_name,
    named_at_root,
)
from lakefs_gc.engine.collect.references.active_ranges import METADATA_FOLDER
from lakefs_gc.engine.collect.references.committed import live_addresses
from lakefs_gc.engine.input_order import check_inputs, check_made_from
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.errors import SafetyError
from lakefs_gc.formats.addresses import CANDIDATE_ADDRESS_REGEX, UPLOAD_PART_REGEX
from lakefs_gc.formats.ranges import read_metarange

_HASH = "address_hash"
_ROWS_PER_PIECE = 500_000  # about 60 MB to sort
LONGEST_UPLOAD = timedelta(days=7)
"""How much longer than anything else parts of an upload stay: no list has them while it is under way."""


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
    """Match what is stored with what is referenced.  Columns: ``schemas.UNMATCHED``.

    Each side is shuffled once, into pieces that are sorted in memory of known size, and spill where there is none.

    A row that is not in the store has no address, but its hash: ``missing`` looks it up.  It may be there several
    times, as ``committed`` and as ``uncommitted``; it may also be an object that was uploaded after the store was
    listed, or lie where nothing is listed.  ``found_in`` tells strangers apart (``strangers``); ``facts`` counts them.

    Raises ``InputOrderError`` for inputs that are out of order, of different runs, or not made from each other (rule
    1), and ``SafetyError`` when nothing is committed although the branches have content (rule 3).
    """
    began_at = context.clock()
    check_inputs(run.run_key, listing, uncommitted, active_ranges, committed)
    check_inputs(run.run_key, listing, foreign_references)
    check_made_from(committed, active_ranges)
    check_made_from(active_ranges, uncommitted)
    if committed.manifest.rows == 0:
        refuse_unproved_emptiness(context, run)
    named = named_at_root(run, listing, uncommitted, committed)
    pieces = 1 + sum(d.manifest.rows for d in (listing, committed, uncommitted, foreign_references)) // _ROWS_PER_PIECE
    references = reduce(
        DataFrame.union,
        (
            dataset.dataframe.select(address_hash("address"), F.lit(dataset.manifest.stage).alias("found_in"))
            for dataset in (committed, uncommitted, foreign_references)
        ),
    )
    stored = listing.dataframe.select("*", address_hash("address"), F.lit(True).alias("listed"))
    # Who is referred to twice matches twice: that is nobody of the unmatched.
    joined = stored.repartition(pieces, _HASH).join(references.repartition(pieces, _HASH), _HASH, "full_outer")
    in_store = F.col("found_in").isNull()
    is_old = F.col("last_modified") < F.when(
        F.col("address").rlike(UPLOAD_PART_REGEX), F.lit(run.cutoff - LONGEST_UPLOAD)
    ).otherwise(F.lit(run.cutoff))
    is_garbage = is_old & F.col("address").rlike(CANDIDATE_ADDRESS_REGEX)
    is_lost = F.col("listed").isNull() & (F.col("found_in") != foreign_references.manifest.stage)
    rows = joined.where(F.when(in_store, is_garbage).otherwise(is_lost))
    unreferenced_in = F.lit(schemas.STORE)
    if not named:
        unreferenced_in = F.when(has_unrecognized_name(), F.lit(schemas.NOT_LAKEFS)).otherwise(unreferenced_in)
    is_left = F.col("found_in") == schemas.NOT_LAKEFS
    return StageOutput(
        dataframe=rows.select(
            "address", "size", "last_modified", F.coalesce("found_in", unreferenced_in).alias("found_in"), _HASH
        ),
        began_at=began_at,
        facts={"cutoff": run.cutoff.isoformat(), NAMED_AT_ROOT: named},
        measures={
            "size_bytes": F.sum("size"),
            "unreferenced": F.count_if(F.col("found_in") == schemas.STORE),
            NOT_LAKEFS: F.count_if(is_left),
            NOT_LAKEFS_BYTES: F.sum(F.when(is_left, F.col("size"))),
            "not_in_store": F.count_if(F.col("address").isNull()),
            **age_measures(run.started_at),
        },
        inputs={
            dataset.manifest.stage: dataset.manifest.materialization_id
            for dataset in (listing, uncommitted, active_ranges, committed, foreign_references)
        },
    )


def unreferenced(rows: DataFrame) -> DataFrame:
    """The rows (columns ``schemas.UNMATCHED``) that are in the store and lakeFS's.  Columns: ``STORE_LISTING``."""
    return rows.where(F.col("found_in") == schemas.STORE).drop("found_in", _HASH)


def address_hash(column: str) -> Column:
    """64 bits of an address (XXH64, by its bytes), as ``address_hash``."""
    return F.xxhash64(column).alias(_HASH)


def refuse_unproved_emptiness(context: RunContext, run: GCRun) -> None:
    """Rule 3: an empty committed set is only believed when the content of every branch is empty or outside."""
    server, store = context.server, context.open_store(run.store)
    for branch, commit_id in server.branch_heads(run.repository):
        metarange_id = server.metarange_of(run.repository, commit_id)
        if not metarange_id:
            continue
        file = METADATA_FOLDER + metarange_id
        for range_id in read_metarange(store.read(file), file).column("range_id").to_pylist():
            key = METADATA_FOLDER + range_id
            if any(rows.num_rows for rows in live_addresses(store.read(key), key, run.folders, None)):
                raise SafetyError(
                    f"no committed object was found in {run.repository}, but branch {branch} has some",
                    remedy="if that is newer than this run, start another one; if not, look at the rules and at the "
                    "lakeFS server's log of prepare_commits; nothing was marked",
                )
