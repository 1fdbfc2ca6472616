"""Stage ``missing``: objects that are referenced but do not exist (rule 7). They are data loss that already happened.

The join of stage ``unmatched`` finds them at no extra cost. An object that the listing lacks may have been uploaded
since, or lie outside the listed prefixes. So the store is asked for each of them. Those that an earlier sweep of this
repository deleted are reported separately.

An object that exists, is older than the cutoff, and lies where the listing looks should have been listed. If it was
not, the listing was not whole (a folder was not mounted for a while), and garbage may be missing from it, too. Or the
store lists it under another name, and that one has no reference (``listed_otherwise``).

The join compares the size that an entry states only with the size of a listed object. Here the others are compared. The
size of an object that does not exist is unknown. So all sizes that entries state of it count as wrong, if the head of a
branch has it: only there can another object have taken its place unnoticed (``hidden_twins``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakefs_gc.engine.collect.listing.earlier_listing import OPTIMIZED, TAKEN_OVER_BEFORE, is_taken_over
from lakefs_gc.engine.collect.listing.existence import existing_keys
from lakefs_gc.engine.decide.matching.unmatched import LONGEST_UPLOAD, UNLISTED_WRONG_SIZES, address_hash
from lakefs_gc.engine.decide.shown.heads import head_addresses
from lakefs_gc.engine.input_order import check_inputs, check_made_from
from lakefs_gc.engine.records import ledger
from lakefs_gc.engine.records.ledger import recorded_by_sweeps
from lakefs_gc.engine.records.restore_log import RESTORED
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.compat import to_arrow
from lakefs_gc.engine.spark.local_rows import local_rows
from lakefs_gc.engine.spark.scale import in_arrow, spread
from lakefs_gc.engine.spark.workers import Batches, driver_errors, worker, worker_store
from lakefs_gc.engine.workspace.workspace import Dataset, StageOutput
from lakefs_gc.formats.address_readings import other_readings, with_slashes
from lakefs_gc.formats.candidate_addresses import CANDIDATE_ADDRESS_REGEX
from lakefs_gc.lakefs.models import Heads
from lakefs_gc.storage.base import ObjectInfo, ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.units import EPOCH

UNLISTED = "unlisted"
"""Fact of ``missing``: objects that exist and are older than the cutoff, although the listing does not have them."""
UNLISTED_OBJECTS = "unlisted_objects"
"""Fact of ``missing``: address, size and time of those that exist, are not listed, and are older than the cutoff (or
the inventory report), uploads in parts included. None if they are more than ``_MOST_UNLISTED``."""
_LOOKED_UP = (
    "address string, found_in string, is_absent boolean, is_unlisted boolean, wrong_sizes array<long>, size long, "
    "last_modified timestamp"
)
_MOST_UNLISTED = 1000
_MOST_SIZES = 10_000  # in the manifest and in the mark
_ANSWERS = pa.schema(
    [
        ("address", pa.string()),
        ("found_in", pa.string()),
        ("is_absent", pa.bool_()),
        ("is_unlisted", pa.bool_()),
        ("wrong_sizes", pa.list_(pa.int64())),
        ("size", pa.int64()),
        ("last_modified", pa.timestamp("us", tz="UTC")),
    ]
)
_READ_OTHERWISE = r"[%?\\]"
_CANDIDATE = re.compile(CANDIDATE_ADDRESS_REGEX)
_TASKS_PER_CORE = 4


def missing(
    context: RunContext,
    run: GCRun,
    *,
    listing: Dataset,
    uncommitted: Dataset,
    committed: Dataset,
    unmatched: Dataset,
) -> StageOutput:
    """Return the objects that are referenced and do not exist. Columns: ``schemas.MISSING``.

    ``deleted_by`` is the mark whose sweep deleted the object, or empty. ``facts`` has ``lost``, the number of objects
    that no sweep deleted, ``UNLISTED``, ``UNLISTED_OBJECTS``, and ``UNLISTED_WRONG_SIZES``.
    """
    spark, cores = context.spark, context.cores
    began_at = context.clock()
    check_inputs(run.run_key, listing, uncommitted, committed, unmatched)
    check_made_from(unmatched, uncommitted, committed)
    rows, unlisted = local_rows(spark, [], schemas.MISSING), 0
    wrong_sizes: list[int] | None = []
    unlisted_objects: list[tuple[str, int, str]] | None = []
    if unmatched.manifest.facts["not_in_store"]:
        hashes = unmatched.dataframe.where(F.col("address").isNull()).select("address_hash")
        references = [
            dataset.dataframe.select("address", F.lit(dataset.manifest.stage).alias("found_in"), size.alias("size"))
            for dataset, size in ((committed, F.col("size")), (uncommitted, F.lit(None).cast("long")))
        ]
        # Look up every address with such a hash; by coincidence an object that exists may have the same hash.
        expected = (
            reduce(DataFrame.union, references)
            .withColumn("address_hash", address_hash("address"))
            .join(hashes.distinct(), "address_hash", "left_semi")
            .groupBy("address")
            .agg(F.min("found_in").alias("found_in"), F.collect_set("size").alias("sizes"))
        )
        asked = spread(expected, cores * _TASKS_PER_CORE, "address")
        answers = in_arrow(asked, _look_up(run.store, *_listed_before(run, listing)), _LOOKED_UP)
        has_sizes = F.size("wrong_sizes") > 0
        measures = {
            UNLISTED: F.count_if("is_unlisted"),
            "wrong": F.count_if(~F.col("is_absent") & has_sizes),
            "unknown": F.count_if(F.col("is_absent") & has_sizes),
            "absent": F.count_if("is_absent"),
            "old": F.count("size"),
        }
        output = StageOutput(answers, context.clock(), measures=measures)
        looked_up = context.workspace.keep(spark, run.run_key, "missing_looked_up", output, _LOOKED_UP)
        facts, found = looked_up.manifest.facts, looked_up.dataframe
        unlisted, counted = facts[UNLISTED], facts["wrong"]
        if facts["old"]:
            unlisted_objects = _some_unlisted(found, facts["old"])
        if facts["absent"]:
            # Of what exists, the wrong sizes count all the same.
            absent = found.where("is_absent")
            lost = absent.join(_other_readings_of_listed(references, hashes), "address", "left_anti")
            found = found.where(~F.col("is_absent")).unionByName(lost)
        absent = found.where("is_absent").select("address", "found_in")
        if counted or facts["unknown"]:
            hiding = found
            if facts["unknown"]:
                hiding = _that_may_hide(context, run, found, uncommitted.manifest.facts["heads"])
            wrong_sizes = _some_sizes(hiding, counted)
        deleted_by = F.coalesce("mark_id", F.lit("")).alias("deleted_by")
        rows = absent.join(_deleted(context, run), "address", "left").select("address", "found_in", deleted_by)
    return StageOutput(
        dataframe=rows,
        began_at=began_at,
        facts={UNLISTED: unlisted, UNLISTED_OBJECTS: unlisted_objects, UNLISTED_WRONG_SIZES: wrong_sizes},
        measures={"lost": F.count_if(F.col("deleted_by") == "")},
        inputs={"unmatched": unmatched.manifest.materialization_id},
    )


def _that_may_hide(context: RunContext, run: GCRun, rows: DataFrame, heads_before: Heads) -> DataFrame:
    """Return the rows whose sizes may hide an object: of objects that exist, and of absent ones that a head has."""
    heads = (heads_before, context.server.heads_of(run.repository))
    shown = head_addresses(context, run, heads)
    return rows.where(~F.col("is_absent")).unionByName(rows.where("is_absent").join(shown, "address", "left_semi"))


def _some_unlisted(rows: DataFrame, counted: int) -> list[tuple[str, int, str]] | None:
    """Return ``UNLISTED_OBJECTS``. None, too, if the rows are not as many as were counted."""
    if counted > _MOST_UNLISTED:
        return None
    with driver_errors():
        table = to_arrow(rows.where(F.col("size").isNotNull()).select("address", "size", "last_modified"))
    found = [(row["address"], row["size"], row["last_modified"].isoformat()) for row in table.to_pylist()]
    return sorted(found) if len(found) == counted else None


def _other_readings_of_listed(references: Sequence[DataFrame], not_listed: DataFrame) -> DataFrame:
    """Return what else referenced addresses may mean that are listed as they are written (column ``address``).

    They exist, so no object need have another reading of such an address (``address_readings``). It is not lost.
    ``not_listed`` has the hashes of the references that are not in the listing.
    """
    special = reduce(DataFrame.union, references).where(F.col("address").rlike(_READ_OTHERWISE)).select("address")
    listed = special.withColumn("address_hash", address_hash("address")).join(not_listed, "address_hash", "left_anti")
    return in_arrow(listed.select("address").distinct(), _readings(), "address string").distinct()


@worker
def _readings(batches: Batches) -> Batches:
    for batch in batches:
        readings = [reading for address in batch.column("address").to_pylist() for reading in other_readings(address)]
        yield pa.record_batch([pa.array(readings, pa.string())], names=["address"])


def _some_sizes(hiding: DataFrame, counted: int) -> list[int] | None:
    """Return the sizes in ``hiding``. None if they are too many, or if there are none although ``counted`` is not 0."""
    sizes = hiding.select(F.explode("wrong_sizes").alias("size")).distinct().limit(_MOST_SIZES + 1)
    with driver_errors():
        found = sorted(row["size"] for row in sizes.collect())
    return found if len(found) <= _MOST_SIZES and (found or not counted) else None


@worker
def _look_up(batches: Batches, store: StoreLocation, listed_before: datetime, taken_over_before: datetime) -> Batches:
    """Yield the rows whose object is absent, should have been listed, or has another size than an entry states.

    Its size and time are in the row if it exists where the listing looks, and is older than what the listing may lack.
    Slices of before ``taken_over_before`` were not listed.

    Columns of the rows: ``address``, ``found_in`` and ``sizes`` (of the committed entries). Of an absent object all
    sizes are wrong, because its own is unknown. The time of an upload in parts is its start, so an object counts as
    unlisted only if it is older than any upload takes.

    Each object is asked for twice, in another order, because an answer does not say which object it is about. Nothing
    asks for these sizes again. If any answers differ, no size of these objects is known (``hidden_twins``). A size is
    wrong by either answer, and an object is absent by both.
    """
    for batch in batches:
        rows = batch.to_pylist()
        addresses = [row["address"] for row in rows]
        both = [existing_keys(worker_store(store), each) for each in (addresses, addresses[::-1])]
        first, again = ({key: info.size_bytes for key, info in existing.items()} for existing in both)
        are_known = first == again
        read_otherwise = _sizes_by_another_reading(worker_store(store), addresses, first.keys() | again.keys())
        answers = []
        for row in rows:
            infos = [existing.get(row["address"]) for existing in both]
            wrong = [
                size
                for size in row["sizes"]
                if not are_known or any(info is None or size != info.size_bytes for info in infos)
            ]
            is_absent = not any(infos)
            if is_absent and row["address"] in read_otherwise and {read_otherwise[row["address"]]} >= {*row["sizes"]}:
                continue
            # What a store lists with slashes is found by that reading of its address.
            may_list = with_slashes(row["address"], store.url) == row["address"]
            may_list = may_list and not is_taken_over(row["address"], taken_over_before)
            is_unlisted = may_list and any(
                info and _is_listed(row["address"], info, listed_before - LONGEST_UPLOAD) for info in infos
            )
            # Another name may differ in case, also in that of the folder to which the listing is limited.
            folded = row["address"].casefold()
            may_list = (
                may_list and _CANDIDATE.search(folded) is not None and not is_taken_over(folded, taken_over_before)
            )
            old = next((info for info in infos if may_list and info and info.last_modified < listed_before), None)
            if is_absent or is_unlisted or wrong or old:
                facts = (old.size_bytes, old.last_modified) if old else (None, None)
                answers.append((row["address"], row["found_in"], is_absent, is_unlisted, wrong, *facts))
        yield pa.RecordBatch.from_pylist([dict(zip(_ANSWERS.names, row, strict=True)) for row in answers], _ANSWERS)


def _sizes_by_another_reading(
    store: ObjectStore, addresses: Sequence[str], existing: Collection[str]
) -> dict[str, int | None]:
    """Return the sizes of the objects that exist for another reading of absent addresses, by these addresses.

    lakeFS decodes full addresses: the object of ``a%3Ab`` is ``a:b``, and none need have the address as it is written.
    None for objects of several sizes.
    """
    readings = {
        address: other_readings(address)
        for address in addresses
        if address not in existing and re.search(_READ_OTHERWISE, address)
    }
    found = (
        existing_keys(store, sorted({reading for each in readings.values() for reading in each})) if readings else {}
    )
    sizes = {
        address: {found[reading].size_bytes for reading in each if reading in found}
        for address, each in readings.items()
    }
    return {address: next(iter(each)) if len(each) == 1 else None for address, each in sizes.items() if each}


def _listed_before(run: GCRun, listing: Dataset) -> tuple[datetime, datetime]:
    """Return a time before which every object must be listed, but uploads in parts, and ``TAKEN_OVER_BEFORE``.

    What was uploaded late to a slice that is taken over, or restored there, is not listed.
    """
    facts = listing.manifest.facts
    taken_over_before = EPOCH
    if facts.get("mode") == OPTIMIZED:
        if TAKEN_OVER_BEFORE not in facts:  # of an earlier version
            return EPOCH, EPOCH
        taken_over_before = datetime.fromisoformat(facts[TAKEN_OVER_BEFORE])
    report = facts.get("inventory_began_at")
    return min(run.cutoff, datetime.fromisoformat(report) if report else run.cutoff), taken_over_before


def _is_listed(address: str, info: ObjectInfo, listed_before: datetime) -> bool:
    return info.last_modified < listed_before and _CANDIDATE.search(address) is not None


def _deleted(context: RunContext, run: GCRun) -> DataFrame:
    """Return what earlier sweeps deleted and no restore has restored since. Columns: ``address``, ``mark_id``."""
    # An intent counts as a delete: an object that is gone after an intent was deleted by that sweep. Unless the store
    # showed the object later, because a sweep kept it, or found it locked: then something else deleted it.
    is_delete = F.col("outcome").isin(ledger.DELETED, ledger.INTENT)
    deleted_at = F.when(is_delete, F.col("recorded_at"))
    existed_at = F.when(
        F.col("outcome").isin(ledger.RESURRECTED, ledger.LOCKED, ledger.NOT_BACKED_UP), F.col("recorded_at")
    )
    restored_at = F.when(F.col("outcome") == RESTORED, F.col("recorded_at"))
    by_address = recorded_by_sweeps(context.spark, run.store, context.cores).groupBy("address")
    last = by_address.agg(
        F.max_by("mark_id", deleted_at).alias("mark_id"),
        F.max(deleted_at).alias("deleted_at"),
        F.max(restored_at).alias("restored_at"),
        F.max(existed_at).alias("existed_at"),
    )
    is_gone = F.col("restored_at").isNull() | (F.col("deleted_at") > F.col("restored_at"))
    was_last = F.col("existed_at").isNull() | (F.col("deleted_at") > F.col("existed_at"))
    return last.where(is_gone & was_last & F.col("deleted_at").isNotNull()).select("address", "mark_id")
