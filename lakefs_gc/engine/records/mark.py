"""A mark as it stands in a namespace: ours, or one that lakeFS's own client made.

The layouts are in ``formats.report``.  Reading a mark never trusts it: the manifest must fit its digest, the parts
their checksums, and the addresses the places that garbage can be in.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from lakefs_gc.config import MANUAL, SafetyParameters
from lakefs_gc.engine.records.answer import Answer
from lakefs_gc.engine.records.check import FORMER_NAMES, Check, Severity, former_name
from lakefs_gc.engine.run import ServerIdentity, refuse_other_server
from lakefs_gc.errors import ClockSkewError, CorruptFileError, MarkError
from lakefs_gc.formats.json_object import read_json_object
from lakefs_gc.formats.parquet import has_column, parquet_bytes, read_columns
from lakefs_gc.formats.report import (
    MADE_BY_LAKEFS_GC,
    ReportPaths,
    Summary,
    find_report_layouts,
    read_deleted_addresses,
    report_paths,
)
from lakefs_gc.storage.base import ObjectStore

logger = logging.getLogger(__name__)

_VERSION = 4
_BRAKES = 3
"""The version before: it calls checks brakes, and some of them by former names.  It is still swept."""
_TWO_ANSWERS = 2
"""Its checks have passed or not, and say nothing of what could not be looked at.  It is read, but not swept."""
_DIGEST_PREFIX = "sha256:"
_EPOCH = datetime.fromtimestamp(0, UTC)
_UNIFIED_FOLDER = "_lakefs/retention/gc/unified/"
PART_SCHEMA = pa.schema(
    [
        pa.field("address", pa.string(), nullable=False),
        pa.field("size", pa.int64()),
        pa.field("last_modified", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True)
class MarkPaths:
    """Keys of what we keep beside the report of a mark, whatever tool made it; folders end in a slash."""

    report: ReportPaths

    @classmethod
    def of(cls, mark_id: str) -> MarkPaths:
        """Raises ``MarkError`` for an id that could name another place."""
        return cls(report_paths(mark_id))

    @property
    def manifest(self) -> str:
        return f"{self.report.folder}lakefs-gc.json"

    @property
    def summary(self) -> str:
        """What makes the folder a mark, for lakeFS's own client as for us."""
        return f"{self.report.folder}summary.json"

    @property
    def approval(self) -> str:
        return f"{self.report.folder}lakefs-gc/approval.json"

    @property
    def sweep_summary(self) -> str:
        return f"{self.report.folder}lakefs-gc/sweep.json"

    @property
    def ledger(self) -> str:
        return f"{self.report.folder}lakefs-gc/ledger/"

    @property
    def restores(self) -> str:
        return f"{self.report.folder}lakefs-gc/restores/"


@dataclass(frozen=True)
class MarkPart:
    """One Parquet file of marked objects; ``key`` is relative to the namespace, ``sha256`` is of its bytes."""

    key: str
    objects: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Mark:
    """A finished mark, ours or of lakeFS's own client.  Sizes are None in a mark that does not record them."""

    mark_id: str
    repository: str
    namespace: str
    folder: str
    made_by: str
    created_at: datetime
    cutoff: datetime
    digest: str
    parts: tuple[MarkPart, ...]
    candidates: int
    candidate_bytes: int | None
    counts: dict[str, int]
    reasons: dict[str, dict[str, int]]
    checks: tuple[Check, ...]
    rules: dict[str, Any] | None
    run: dict[str, Any]
    inputs: dict[str, str]
    versions: dict[str, str]
    schema_version: int = _VERSION

    @property
    def location(self) -> str:
        """The report's folder as a URL."""
        return self.namespace + self.folder

    @property
    def run_key(self) -> str:
        """The run that made the mark, or one named after it when another tool did."""
        return str(self.run.get("run_key") or f"{self.repository}/{self.mark_id}")

    @property
    def is_ours(self) -> bool:
        """Whether lakefs-gc made the mark, and not lakeFS's own client."""
        return self.made_by == MADE_BY_LAKEFS_GC

    @property
    def is_current(self) -> bool:
        """Whether the mark records all that a sweep of this version goes by."""
        return self.schema_version > _TWO_ANSWERS

    @property
    def unreadable(self) -> frozenset[str]:
        """The other repositories of which the mark says that they could not be read; none if it says nothing."""
        return frozenset(self.run.get("unreadable", ()))

    @property
    def sweep_policy(self) -> str:
        """The policy that may sweep this mark without a person, fixed when it was made (``SweepSettings.policy``)."""
        return str(self.run.get("sweep_policy", MANUAL))

    @property
    def sweep_delay_hours(self) -> float:
        """How old the mark must be before its policy may sweep it."""
        return float(self.run.get("sweep_delay_hours", 0.0))

    @property
    def needs_backup(self) -> bool:
        """Whether the settings that made the mark let nothing be swept without a backup."""
        return self.run.get("needs_backup") is True

    @property
    def longest_commit_minutes(self) -> float:
        """How long commits of the repository may take, by the settings that made the mark."""
        return float(self.run.get("longest_commit_minutes", 0.0))

    @property
    def named_at_root(self) -> str:
        """A name that lakeFS does not give, which the repository had at the root when the mark was made; or empty.

        Without one, nothing of such a name may be swept.
        """
        return str(self.run.get("named_at_root") or "")

    @property
    def not_lakefs(self) -> tuple[int, int] | None:
        """Objects, and bytes, at the root that only their names keep from being marked; None if nobody counted."""
        objects, size_bytes = self.run.get("not_lakefs"), self.run.get("not_lakefs_bytes")
        return None if objects is None or size_bytes is None else (int(objects), int(size_bytes))

    @property
    def not_asked(self) -> frozenset[str]:
        """The other repositories that ``safety.repositories_not_read`` named when the mark was made."""
        return frozenset(self.run.get("not_asked", ()))

    def to_json(self) -> bytes:
        content = _content(self) | {"digest": self.digest}
        return json.dumps(content, indent=2, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes, file: str) -> Mark:
        """Raises ``CorruptFileError`` for what is no manifest, and ``MarkError`` for one that was changed."""
        try:
            content = read_json_object(data, file, "a mark manifest")
            if "format_version" in content:
                content["schema_version"] = content.pop("format_version")
                versions = {_BRAKES, _TWO_ANSWERS}
            else:
                versions = {_VERSION}
            if content["schema_version"] not in versions:
                raise CorruptFileError(
                    file,
                    f"written by another version of lakefs-gc (schema version {content['schema_version']!r})",
                    remedy="upgrade lakefs-gc or sweep it with that version, or mark again",
                )
            content["parts"] = tuple(MarkPart(**part) for part in content["parts"])
            content["checks"] = _checks_of(content)
            for name in ("created_at", "cutoff"):
                content[name] = datetime.fromisoformat(content[name])
            mark = cls(**content)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptFileError(file, f"not a mark manifest: {type(error).__name__}: {error}") from None
        # Byte for byte: what this version would not have written, nobody of ours wrote.
        if digest_of(mark) != mark.digest or mark.to_json() != data:
            raise MarkError(
                f"{file} was changed after it was written: its digest does not fit its content",
                remedy="do not sweep it; mark again",
            )
        if mark.schema_version < _VERSION:
            logger.warning(
                "%s was written by an earlier lakefs-gc and uses former check names: the next release does not read it",
                file,
            )
        return mark


def _checks_of(content: dict[str, Any]) -> tuple[Check, ...]:
    """Take the checks out of the content of a manifest of any version."""
    version = content["schema_version"]
    if version == _VERSION:
        return tuple(_check(**check) for check in content.pop("checks"))
    return tuple(_former_check(check, version) for check in content.pop("brakes"))


def _check(*, name: str, answer: str, message: str, severity: str) -> Check:
    return Check(name, Answer(answer), message, Severity(severity))


def _former_check(content: dict[str, Any], version: int) -> Check:
    answer, blocks = content.get("answer"), content["blocks"]
    if version == _TWO_ANSWERS:
        answer = Answer.SAFE if content["passed"] else Answer.UNSAFE
    name = FORMER_NAMES.get(content["name"], content["name"])
    return _check(
        name=name,
        answer=str(answer),
        message=content["message"],
        # Only a false that is there makes a warning of it.
        severity=Severity.WARN if blocks is False else Severity.ERROR,
    )


def _as_brake(check: Check, version: int) -> dict[str, Any]:
    """A check as versions before the fourth wrote it: their digests cover this form."""
    answer = {"passed": check.passed} if version == _TWO_ANSWERS else {"answer": check.answer}
    blocks = check.severity is not Severity.WARN
    return {"name": former_name(check.name), **answer, "message": check.message, "blocks": blocks}


def _content(mark: Mark) -> dict[str, Any]:
    content = asdict(mark) | {
        "created_at": mark.created_at.isoformat(),
        "cutoff": mark.cutoff.isoformat(),
    }
    del content["digest"]
    if mark.schema_version < _VERSION:
        content["format_version"] = content.pop("schema_version")
        del content["checks"]
        content["brakes"] = [_as_brake(check, mark.schema_version) for check in mark.checks]
    return content


@dataclass(frozen=True)
class MarkAge:
    """How old a mark is at least, and at most."""

    least: timedelta
    most: timedelta


def age_of(store: ObjectStore, mark: Mark, safety: SafetyParameters) -> MarkAge:
    """How old a mark is, by the store's clock at both ends: what this machine's says does not matter.

    The time in the mark is bound by its digest, but a mark of an earlier version has it from the machine that made it.
    The time of its summary is the store's, but of a copy it may be that of the copying.  The later of the two is what a
    wait goes by, the earlier one what makes a mark too old.  Two requests.
    Raises ``ClockSkewError`` when the mark is from the future: then one of these clocks was set back.
    """
    now, times = store.now(), [mark.created_at]
    times += [info.last_modified for info in store.stat_many([MarkPaths.of(mark.mark_id).summary]).values()]
    if max(times) > now + safety.two_clocks_apart:
        raise ClockSkewError(
            f"mark {mark.mark_id} was made at {max(times).isoformat()}, and the store's clock says {now.isoformat()}: "
            "how old the mark is cannot be known",
            remedy="see whether the clock of the store was set back; then mark again",
        )
    return MarkAge(least=now - max(times), most=now - min(times))


def digest_of(mark: Mark) -> str:
    """The digest that binds a mark to its content: SHA-256 of everything else in it, as canonical JSON."""
    canonical = json.dumps(_content(mark), sort_keys=True, separators=(",", ":")).encode()
    return _DIGEST_PREFIX + hashlib.sha256(canonical).hexdigest()


def read_mark(store: ObjectStore, repository: str, namespace: str, mark_id: str) -> Mark:
    """The mark ``mark_id`` of a namespace.

    Raises ``MarkError`` when there is none, when it did not succeed, was changed, or is of another repository.
    """
    paths = MarkPaths.of(mark_id)
    found = store.stat_many([paths.manifest, paths.summary])
    if paths.manifest in found:
        mark = Mark.from_json(store.read(paths.manifest), paths.manifest)
        if paths.summary not in found:
            raise MarkError(f"mark {mark_id} was not finished", remedy="start a new run")
        _read_summary(store, paths.summary, mark_id)
        if (mark.mark_id, mark.repository, mark.namespace) != (mark_id, repository, namespace):
            raise MarkError(
                f"{paths.manifest} is the mark {mark.mark_id} of {mark.repository} at {mark.namespace}, "
                f"not {mark_id} of {repository} at {namespace}",
                remedy="a mark is only swept where it was made; mark again here",
            )
        return mark
    if made_by_us(store, mark_id):
        raise MarkError(
            f"mark {mark_id} was made by lakefs-gc, and its manifest {paths.manifest} is missing: its checks are lost "
            "with it",
            remedy="mark again, and find out what deletes files below _lakefs/retention/",
        )
    for layout in find_report_layouts(mark_id):
        mark_of_client = _read_client_mark(store, repository, namespace, layout, mark_id)
        if mark_of_client is not None:
            return mark_of_client
    raise MarkError(
        f"there is no mark {mark_id} in {namespace}",
        remedy=f"`lakefs-gc history {repository}` lists the marks that are there",
    )


def refuse_unfit(mark: Mark, server: ServerIdentity) -> None:
    """Raise ``MarkError`` for a mark that this version does not sweep, or that another server was asked for.

    A mark of lakeFS's own client records no server: the checks that are made before its sweep stand for that.
    """
    if not mark.is_current:
        raise MarkError(
            f"mark {mark.mark_id} was made by an older lakefs-gc, whose checks do not say what could not be looked at",
            remedy="mark again",
        )
    if mark.is_ours:
        refuse_other_server(server, mark.run.get("server"), mark.mark_id)


def made_by_us(store: ObjectStore, mark_id: str) -> bool:
    """Whether anything in the folder of a mark says that lakefs-gc made it: manifest, summary, or parts.

    One sign is enough: a mark that has lost its manifest must not pass for one of lakeFS's client, which has no checks.
    """
    paths = MarkPaths.of(mark_id)
    found = store.stat_many([paths.manifest, paths.summary])
    if paths.manifest in found:
        return True
    if (
        paths.summary in found
        and Summary.from_json(store.read(paths.summary), paths.summary).made_by == MADE_BY_LAKEFS_GC
    ):
        return True
    return any(has_column(content, "size", key) for key, content in store.read_many(_part_keys(store, paths.report)))


def _part_keys(store: ObjectStore, layout: ReportPaths) -> list[str]:
    """Keys of the Parquet files of a mark, in order."""
    keys = (key for batch in store.list(layout.deleted) for key in batch.column("address").to_pylist())
    return sorted(key for key in keys if key.endswith(".parquet"))


def list_marks(store: ObjectStore) -> Iterator[str]:
    """Ids of the marks of a namespace in today's layout, newest first (run ids sort that way)."""
    for mark_id in mark_folders(store):
        if store.stat_many([MarkPaths.of(mark_id).summary]):
            yield mark_id


def mark_folders(store: ObjectStore) -> list[str]:
    """Ids of the marks of a namespace in today's layout, finished or not, newest first."""
    folders, _ = store.list_level(_UNIFIED_FOLDER)
    return [folder.removeprefix(_UNIFIED_FOLDER).rstrip("/") for folder in sorted(folders)]


def run_key_of(store: ObjectStore, repository: str, mark_id: str) -> str:
    """``Mark.run_key``, of the manifest alone: the parts and the digest are not looked at.

    Raises ``CorruptFileError`` for a manifest that cannot be read.
    """
    key = MarkPaths.of(mark_id).manifest
    if not store.stat_many([key]):
        return f"{repository}/{mark_id}"
    return Mark.from_json(store.read(key), key).run_key


def _read_client_mark(
    store: ObjectStore, repository: str, namespace: str, layout: ReportPaths, mark_id: str
) -> Mark | None:
    """A mark that lakeFS's own client left in ``layout``; None when there is none."""
    keys = _part_keys(store, layout)
    summary: Summary | None = None
    if layout.summary and store.stat_many([layout.summary]):
        summary = _read_summary(store, layout.summary, mark_id)
    elif layout.summary or not keys:
        return None
    parts = []
    for key, content in store.read_many(keys, concurrency=1):
        objects = len(read_deleted_addresses(content, key))
        parts.append(MarkPart(key, objects, 0, hashlib.sha256(content).hexdigest()))
    parts.sort(key=lambda part: part.key)
    candidates = sum(part.objects for part in parts)
    if summary is not None and summary.num_deleted_objects != candidates:
        raise MarkError(
            f"mark {mark_id} should have {summary.num_deleted_objects} objects, but its files hold {candidates}",
            remedy="it is damaged; mark again",
        )
    if summary is None and not store.stat_many([layout.deleted + "_SUCCESS"]):
        raise MarkError(f"mark {mark_id} was not finished: it has no _SUCCESS file", remedy="mark again")
    made_at = max(info.last_modified for info in store.stat_many(keys).values()) if keys else _EPOCH
    mark = Mark(
        mark_id=mark_id,
        repository=repository,
        namespace=namespace,
        folder=layout.folder,
        made_by="lakeFS Spark client",
        created_at=made_at,
        # Without a summary nothing says the cutoff; what was there when the mark was written is the best that is known.
        cutoff=summary.cutoff_time if summary is not None else made_at,
        digest="",
        parts=tuple(parts),
        candidates=candidates,
        candidate_bytes=None,
        counts={},
        reasons={},
        checks=(),
        rules=None,
        run={},
        inputs={},
        versions={},
        # Digests of such marks stay what they were: an approval that names one still holds.
        schema_version=_BRAKES,
    )
    return replace(mark, digest=digest_of(mark))


def _read_summary(store: ObjectStore, key: str, mark_id: str) -> Summary:
    summary = Summary.from_json(store.read(key), key)
    if not summary.success:
        raise MarkError(f"the run of mark {mark_id} failed", remedy="mark again; a failed mark is never swept")
    return summary


def part_content(marked: pa.Table) -> bytes:
    """A file for ``deleted/``: the column that lakeFS's client reads, and beside it what we know of each object."""
    return parquet_bytes(marked.combine_chunks().to_batches()[0], compression="snappy")


def read_part(store: ObjectStore, part: MarkPart) -> pa.Table:
    """One part of a mark, verified: ``address``, and ``size`` and ``last_modified`` (null where not recorded).

    Raises ``MarkError`` when the file is not the one that was marked.
    """
    content = store.read(part.key)
    if hashlib.sha256(content).hexdigest() != part.sha256:
        raise MarkError(f"{part.key} was changed after the mark was made", remedy="do not sweep this mark; mark again")
    return part_rows(content, part.key)


def part_rows(content: bytes, file: str) -> pa.Table:
    """What a Parquet file of a mark says.  Columns as ``read_part``.  Raises ``CorruptFileError``."""
    return read_columns(content, PART_SCHEMA, file, optional=("size", "last_modified"))
