"""What is known of a mark when it is swept: what was read for it, which branches it saw, what its approval accepts."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import DataFrame

from lakefs_gc import __version__
from lakefs_gc.engine.collect.references.active_ranges import LATER_BRANCHES
from lakefs_gc.engine.collect.references.foreign_references import FILE, FILES
from lakefs_gc.engine.collect.references.other_repositories import AcceptedUnknown
from lakefs_gc.engine.collect.references.range_names import reports_of, reports_of_stage
from lakefs_gc.engine.decide.matching.unmatched import (
    UNLISTED_WRONG_SIZES,
    WRONG_SIZES,
    hiding_any_size,
)
from lakefs_gc.engine.decide.shown.value_filter import ValueFilter, every_size
from lakefs_gc.engine.records.check import OTHER_REPOSITORIES_WERE_READ, SERVER_LIST_IS_COMPLETE
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.run import GCRun, RunContext
from lakefs_gc.engine.spark import schemas
from lakefs_gc.engine.spark.scale import IS_SMALL, SMALL_RUN_OBJECTS
from lakefs_gc.engine.workspace.workspace import Dataset
from lakefs_gc.errors import CorruptFileError, InputOrderError, ObjectNotFoundError
from lakefs_gc.formats.addresses import ADDRESS_READING, ADDRESSES_READ_AS

logger = logging.getLogger(__name__)

_FOLDER_FACTS = ("namespace", "store", "server_folders", "folder_mounts")
"""Facts of a run that decide which addresses are objects of the namespace."""


@dataclass(frozen=True)
class Accepted:
    """What the approval of a mark accepts as unknown.

    ``others`` are other repositories that are not read. ``commits_unchecked``: the approval overrides
    ``SERVER_LIST_IS_COMPLETE``.
    """

    others: AcceptedUnknown
    commits_unchecked: bool

    @classmethod
    def of(cls, mark: Mark, overrides: Collection[str]) -> Accepted:
        """Return what is accepted for a mark whose approval overrides the checks of these names.

        Who overrides a check that passed or warned at the mark has accepted nothing. The checks of a mark of lakeFS's
        own client are not known yet.
        """
        if mark.is_ours:
            overrides = {check.name for check in mark.checks if check.blocks_sweep and check.name in overrides}
        others_unread = OTHER_REPOSITORIES_WERE_READ in overrides
        others = AcceptedUnknown(others_unread, mark.unreadable, mark.not_asked, mark.mounts)
        return cls(others, SERVER_LIST_IS_COMPLETE in overrides)


@dataclass(frozen=True)
class SeenAtMark:
    """The ranges that were read for a mark (``active_ranges``), and the metadata files of other repositories."""

    ranges: Dataset
    foreign_files: DataFrame | None


def seen_at_mark(context: RunContext, run: GCRun, mark: Mark) -> SeenAtMark | None:
    """Return what the second look need not read again; None if nothing proves that this mark was made from it.

    The ranges that were read for a mark refer to none of its objects only if the mark is unchanged. So its digest must
    be the one that the workspace recorded: a mark whose files were rewritten still names the same run. And they must
    have been read as now: by a version that takes addresses for the same objects, with the same folders.
    """
    spark, workspace = context.spark, context.workspace
    if "run_key" not in mark.run:
        return None
    run_key = mark.run["run_key"]
    if not workspace.has_made(run_key, mark.mark_id, mark.digest):
        logger.info("mark %s: every active range is read again, because this workspace did not make it", mark.mark_id)
        return None
    read_by = (mark.versions.get("lakefs_gc"), mark.versions.get(ADDRESSES_READ_AS))
    facts = run.to_facts()
    if read_by != (__version__, ADDRESS_READING) or any(mark.run.get(name) != facts[name] for name in _FOLDER_FACTS):
        logger.info(
            "mark %s: every active range is read again: it was made with other settings or by another version",
            mark.mark_id,
        )
        return None
    try:
        ranges = workspace.read(spark, run_key, "active_ranges", schemas.ACTIVE_RANGES)
        foreign = workspace.manifest(run_key, "foreign_references")
        files = workspace.read(spark, run_key, FILES, FILE) if foreign.facts["files_id"] else None
    except InputOrderError as error:
        logger.info("mark %s: every active range is read again: %s", mark.mark_id, error.message)
        return None
    inputs = {"active_ranges": ranges.manifest, "foreign_references": foreign}
    if any(mark.inputs.get(stage) != manifest.materialization_id for stage, manifest in inputs.items()):
        return None
    try:
        is_as_written = reports_of(ranges.dataframe) == reports_of_stage(ranges)
    except (CorruptFileError, InputOrderError, ObjectNotFoundError) as error:
        logger.warning("mark %s: every active range is read again: %s", mark.mark_id, error.message)
        return None
    if not is_as_written:
        logger.warning("mark %s: every active range is read again: the list of them has changed", mark.mark_id)
        return None
    if files is not None and files.manifest.materialization_id != foreign.facts["files_id"]:
        return None
    return SeenAtMark(ranges, files.dataframe if files else None)


def any_size_at_mark(context: RunContext, mark: Mark) -> ValueFilter | None:
    """Return which sizes of entries may hide an object of any size (``unmatched.hiding_any_size``), as of the mark.

    All sizes, if the mark does not record that there were none, and this workspace no longer has them.
    """
    unlisted = mark.run.get(UNLISTED_WRONG_SIZES)
    if mark.run.get(WRONG_SIZES) == 0 and unlisted == []:
        return None
    try:
        rows = context.workspace.read(context.spark, mark.run["run_key"], "unmatched", schemas.UNMATCHED)
    except (KeyError, InputOrderError):
        return every_size()
    if rows.manifest.materialization_id != mark.inputs.get("unmatched"):
        return every_size()
    return hiding_any_size(rows, unlisted)


def branches_at_mark(context: RunContext, mark: Mark) -> frozenset[str]:
    """Return the branches that the lists of a mark had, as far as this workspace has them."""
    names = set[str]()
    for stage, fact in (("uncommitted", "heads"), ("active_ranges", LATER_BRANCHES), ("kept", LATER_BRANCHES)):
        try:
            names.update(context.workspace.manifest(mark.run["run_key"], stage).facts[fact])
        except (KeyError, InputOrderError):
            continue  # made elsewhere, by another version, or by lakeFS's client
    return frozenset(names)


def is_small_at_mark(context: RunContext, mark: Mark) -> bool:
    """Return whether the run of a mark was small. How fast a look is depends on the answer, and nothing else."""
    try:
        listing = context.workspace.manifest(mark.run["run_key"], "store_listing")
    except (KeyError, InputOrderError):  # made elsewhere, or by lakeFS's client
        return False
    return listing.facts.get(IS_SMALL) is True and mark.candidates <= SMALL_RUN_OBJECTS
