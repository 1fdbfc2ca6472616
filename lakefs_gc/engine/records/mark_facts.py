"""What a mark shows people beyond its manifest: a file beside the mark, outside its digest.

No decision is made from these facts. Marks of earlier versions and of lakeFS's own client have none.
"""

from __future__ import annotations

import logging
from dataclasses import field

from lakefs_gc.engine.records.mark import Mark, MarkPaths
from lakefs_gc.engine.records.mark_parts import Overview, PrefixTotal
from lakefs_gc.errors import CorruptFileError, ObjectNotFoundError
from lakefs_gc.formats.durable_record import DurableRecord, Time, record
from lakefs_gc.storage.base import ObjectStore

logger = logging.getLogger(__name__)

REPORT_FILE = "lakefs-gc/report.html"
"""The HTML report of a mark, in the folder of the mark."""


@record
class Amount:
    """A number of objects, and their bytes."""

    objects: int = 0
    size_bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.objects + other.objects, self.size_bytes + other.size_bytes)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.objects - other.objects, self.size_bytes - other.size_bytes)


@record
class Funnel:
    """Every listed object in exactly one class: ``listed`` is the sum of the others.

    - ``live``: referenced; ``newer``: unreferenced, and newer than the cutoff
    - ``kept``: unreferenced, but kept; ``kept_because`` has the reasons, of which an object may have two
    - ``not_lakefs``: at the root, with a name that lakeFS did not generate
    - ``other_part``: unreferenced, but not of the part that the mark is of
    """

    listed: Amount
    live: Amount
    newer: Amount
    kept: Amount
    not_lakefs: Amount
    other_part: Amount
    marked: Amount
    kept_because: dict[str, Amount]


@record
class LoweredSetting:
    """A setting that makes this mark less safe than the default does."""

    name: str
    value: str
    default: str


@record
class PathGroup:
    """Marked objects below one folder of the repository, and the last commit that had one of them.

    ``expired_on`` and ``rule`` say when and by which rule that commit expired; empty if unknown. ``example`` is a path.
    """

    folder: str
    objects: int
    size_bytes: int
    example: str
    commit_id: str
    committer: str
    committed_at: Time | None
    branch: str
    rule: str
    expired_on: str


@record
class MarkedPaths:
    """The folders of the marked objects. ``unknown`` says why the paths of some objects are not known; or empty."""

    groups: tuple[PathGroup, ...]
    with_path: Amount
    unknown: str


@record
class EarlierNumbers:
    """The numbers of the mark before."""

    mark_id: str
    created_at: Time
    marked: Amount
    listed_objects: int


@record
class MarkFacts(DurableRecord):
    """The facts beside a mark. ``digest`` is that of the mark, so that facts of another mark are not shown with it.

    Ages map the name of a bucket (``age_buckets``) to bytes. ``run_seconds`` is how long the mark took.
    """

    kind = "the facts of a mark"
    remedy = "Remove the file: the mark does not need it. Only a proof of erasure asks for it"

    mark_id: str
    digest: str
    started_at: Time
    min_age_seconds: float
    funnel: Funnel | None
    listed_by_age: dict[str, int]
    marked_by_age: dict[str, int]
    never_committed_by_age: dict[str, int]
    run_seconds: float
    earlier: EarlierNumbers | None
    lowered: tuple[LoweredSetting, ...]
    backup_url: str
    ready_at: Time | None
    objects_per_request: int
    largest_prefixes: tuple[PrefixTotal, ...]
    sample: tuple[dict[str, str | int], ...]
    """The overview of the mark (``mark_parts.overview``), which takes reading all of its parts."""
    paths: MarkedPaths | None = field(default=None)

    @property
    def overview(self) -> Overview:
        """Return the overview as it was when the mark was made."""
        return Overview(self.largest_prefixes, self.sample)


def facts_key(mark_id: str) -> str:
    """Return the key of the facts of a mark."""
    return f"{MarkPaths.of(mark_id).report.folder}lakefs-gc/facts.json"


def report_key(mark_id: str) -> str:
    """Return the key of the HTML report of a mark."""
    return f"{MarkPaths.of(mark_id).report.folder}{REPORT_FILE}"


def write_facts(store: ObjectStore, facts: MarkFacts) -> None:
    """Write the facts beside their mark."""
    store.put(facts_key(facts.mark_id), facts.to_json())


def read_facts(store: ObjectStore, mark: Mark) -> MarkFacts | None:
    """Return the facts of a mark, or None if it has none. Damaged facts, or those of another digest, are not shown."""
    key = facts_key(mark.mark_id)
    try:
        facts = MarkFacts.from_json(store.read(key), key)
    except ObjectNotFoundError:
        return None
    except CorruptFileError as error:
        logger.warning("the facts of mark %s are not shown: %s", mark.mark_id, error.message)
        return None
    if (facts.mark_id, facts.digest) != (mark.mark_id, mark.digest):
        logger.warning("the facts in %s are of another mark, so they are not shown", key)
        return None
    return facts
