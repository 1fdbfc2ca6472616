"""The columns of each stage, in one place.

==================  ====================================================================================
store_listing       an object under ``data/`` or directly at the root: ``address`` (relative to the
                    namespace), ``size`` (bytes), ``last_modified`` (UTC, microseconds)
uncommitted         an address that a branch's staging area or a tracked copy refers to: ``address``
active_ranges       a range that an active commit refers to: ``range_id``, ``entries`` (null where only
                    the file itself can say)
committed           an entry of an active commit: ``address`` (as often as ranges have it), ``size``, ``last_modified``
foreign_references  an address of this namespace that another repository refers to: ``address``, ``repository``
unmatched           what is stored and not referenced, or referenced and not stored: ``address``, ``size``,
                    ``last_modified`` (all null where it is not stored), ``found_in``, ``address_hash``; and each
                    committed object whose entry has another size than the object: that size in ``size``
missing             what is referenced and not there: ``address``, ``found_in``, ``deleted_by``
kept                an object that is unreferenced and kept: ``address``, ``size``, ``why``
candidates          an object that may be deleted: ``address``, ``size``, ``last_modified``, ``reason``
backup              what happened to a marked object: ``address``, ``size``, ``outcome``, ``proof`` (that its copy is
                    the same), ``checksum`` (``<algorithm>:<value>``), ``error``
sweep               what happened to a marked object: ``address``, ``size``, ``outcome``, ``error``
==================  ====================================================================================
"""

from __future__ import annotations

from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

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
SWEEP = StructType(
    [
        _ADDRESS,
        # Null in a mark that does not say sizes, for an object that was gone already.
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
"""Reason: some commit refers to the object, but no active one."""
NEVER_COMMITTED = "never_committed"
"""Reason: no range that is left in the namespace refers to the object."""

STORE = "store"
"""Found in: the store alone; nobody refers to it.  Otherwise the stage that refers to what the listing has not."""
NOT_LAKEFS = "not_lakefs"
"""Found in: the store alone, at the root under a name that lakeFS does not give.  It is never a candidate."""
WRONG_SIZE = "wrong_size"
"""Found in: the store and a commit, whose entry has another size. It is live; ``size`` is the one of the entry."""

SHOWN_BY_BRANCH = "shown_by_a_branch"
"""Why: a branch shows the object, and the server's list leaves it out."""
KEPT_UNVERIFIED = "shielded"
"""Why: it may be such an object, and nobody can tell, or there are too many to ask for each."""

PROTECTED = "protected_path"
"""Why: some commit has it under a path that users protect."""

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
    "backup": BACKUP,
    "sweep": SWEEP,
}
"""The columns of the DataFrame of each stage that has one."""
