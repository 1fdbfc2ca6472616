"""The columns of each stage, in one place.

==================  ====================================================================================
store_listing       an object under ``data/`` or directly at the root: ``address`` (relative to the
                    namespace), ``size`` (bytes), ``last_modified`` (UTC, microseconds)
uncommitted         an address that a branch's staging area or a tracked copy references: ``address``
active_ranges       a range that an active commit references: ``range_id``, ``entries`` (null if only the
                    file itself contains it)
committed           an entry of an active commit: ``address`` (may be repeated), ``size``, ``last_modified``
foreign_references  an address of this namespace that another repository references: ``address``, ``repository``
unmatched           an object that is stored but not referenced, or referenced but not stored: ``address``, ``size``,
                    ``last_modified`` (all null if it is not stored), ``found_in``, ``address_hash``; and each
                    committed object whose entry has another size than the object, with that size in ``size``
missing             an address that is referenced but not stored: ``address``, ``found_in``, ``deleted_by``
kept                an object that is unreferenced but kept: ``address``, ``size``, ``why``
candidates          an object that may be deleted: ``address``, ``size``, ``last_modified``, ``reason``
forecast            how a group of objects is held: ``held_by``, ``branch``, ``ages``, ``new_days``, ``unseen``,
                    ``file``, ``objects``, ``size_bytes`` (``engine.forecast.outlook``). No input of a mark
backup              the outcome for a marked object: ``address``, ``size``, ``outcome``, ``proof`` (that its copy is
                    the same), ``checksum`` (``<algorithm>:<value>``), ``error``
sweep               the outcome for a marked object: ``address``, ``size``, ``outcome``, ``error``
==================  ====================================================================================
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_ADDRESS = StructField("address", StringType(), nullable=False)
_SIZE = StructField("size", LongType(), nullable=False)
_LAST_MODIFIED = StructField("last_modified", TimestampType(), nullable=False)

STORE_LISTING = StructType([_ADDRESS, _SIZE, _LAST_MODIFIED])
UNCOMMITTED = StructType([_ADDRESS])
SIZED = StructType([_ADDRESS, _SIZE])
ACTIVE_RANGES = StructType([StructField("range_id", StringType(), False), StructField("entries", LongType())])
COMMITTED = STORE_LISTING
FOREIGN_REFERENCES = StructType([_ADDRESS, StructField("repository", StringType(), nullable=False)])
_FOUND_IN = StructField("found_in", StringType(), nullable=False)
UNMATCHED = StructType(
    [
        StructField("address", StringType()),
        StructField("size", LongType()),
        StructField("last_modified", TimestampType()),
        _FOUND_IN,
        StructField("address_hash", LongType(), nullable=False),
    ]
)
MISSING = StructType([_ADDRESS, _FOUND_IN, StructField("deleted_by", StringType(), nullable=False)])
KEPT = StructType([_ADDRESS, _SIZE, StructField("why", StringType(), nullable=False)])
CANDIDATES = StructType([*STORE_LISTING.fields, StructField("reason", StringType(), nullable=False)])
FORECAST = StructType(
    [
        StructField("held_by", StringType(), nullable=False),
        StructField("branch", IntegerType()),
        StructField("ages", ArrayType(IntegerType()), nullable=False),
        StructField("new_days", IntegerType(), nullable=False),
        StructField("unseen", BooleanType(), nullable=False),
        StructField("file", StringType()),
        StructField("objects", LongType(), nullable=False),
        StructField("size_bytes", LongType(), nullable=False),
    ]
)
SWEEP = StructType(
    [
        _ADDRESS,
        # Null for an object that was already gone, if its mark has no sizes.
        StructField("size", LongType()),
        StructField("outcome", StringType(), nullable=False),
        StructField("error", StringType(), nullable=False),
    ]
)

BACKUP = StructType(
    [
        _ADDRESS,
        StructField("size", LongType()),
        *(StructField(name, StringType(), nullable=False) for name in ("outcome", "proof", "checksum", "error")),
    ]
)

EXPIRED = "expired"
"""Reason: some commit references the object, but no active commit."""
NEVER_COMMITTED = "never_committed"
"""Reason: no remaining range in the namespace references the object."""

STORE = "store"
"""Found in: only the store, without a reference. Otherwise the stage that references an address the listing omits."""
NOT_LAKEFS = "not_lakefs"
"""Found in: only the store, at the root, with a name that lakeFS did not generate. It is never a candidate."""
NEWER = "newer"
"""Found in: only the store, and newer than the cutoff. Such rows of ``unmatched`` are counted and not written."""
WRONG_SIZE = "wrong_size"
"""Found in: the store and a commit whose entry has another size. It is live. ``size`` is the size of the entry."""

SHOWN_BY_BRANCH = "shown_by_a_branch"
"""Why: a branch shows the object, although the server's list omits it."""
KEPT_UNVERIFIED = "shielded"
"""Why: it may be such an object, but it could not be looked up, or too many objects had to be looked up."""

PROTECTED = "protected_path"
"""Why: some commit has the object at a path that users protect."""

BY_STAGE = {
    "store_listing": STORE_LISTING,
    "uncommitted": UNCOMMITTED,
    "active_ranges": ACTIVE_RANGES,
    "committed": COMMITTED,
    "foreign_references": FOREIGN_REFERENCES,
    "unmatched": UNMATCHED,
    "missing": MISSING,
    "kept": KEPT,
    "candidates": CANDIDATES,
    "forecast": FORECAST,
    "backup": BACKUP,
    "sweep": SWEEP,
}
"""The columns of the DataFrame of each stage that has one."""
