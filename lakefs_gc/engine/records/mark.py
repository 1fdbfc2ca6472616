"""The manifest of a mark, and the keys of the files of a mark.

The layout is in ``formats.report``. A manifest is never trusted: it must fit its digest, and the parts must fit the
checksums in it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from lakefs_gc.config import MANUAL
from lakefs_gc.engine.records.check import FORMER_NAMES, Answer, Check, Severity
from lakefs_gc.engine.scope import PARTS, Scope
from lakefs_gc.errors import MarkError
from lakefs_gc.formats.durable_record import SealedRecord, Time, first_problem, record
from lakefs_gc.formats.report import (
    MADE_BY_LAKEFS_GC,
    ReportPaths,
    report_paths,
)

logger = logging.getLogger(__name__)

_VERSION = 4
_BRAKES = 3
"""The version that called checks brakes, and some of them by former names. Its marks can still be swept."""
_TWO_ANSWERS = 2
"""The version whose checks have no answer "unknown". Its marks are read and restored, but not swept."""


@dataclass(frozen=True)
class MarkPaths:
    """Keys of the files that lakefs-gc keeps in the folder of a mark, whatever tool made it; folders end in a slash."""

    report: ReportPaths

    @classmethod
    def of(cls, mark_id: str) -> MarkPaths:
        """Return the keys of a mark. Raise ``MarkError`` for an id that could lead to another folder."""
        return cls(report_paths(mark_id))

    @property
    def manifest(self) -> str:
        return f"{self.report.folder}lakefs-gc.json"

    @property
    def summary(self) -> str:
        """The file that completes a mark, for lakefs-gc and for lakeFS's own client."""
        return f"{self.report.folder}summary.json"

    @property
    def folder(self) -> str:
        """The folder of what happened to the mark: approvals, summaries of sweeps, the ledger and restores."""
        return f"{self.report.folder}lakefs-gc/"

    @property
    def approval(self) -> str:
        """The approval of the whole mark."""
        return self.approval_of(Scope.all)

    @property
    def sweep_summary(self) -> str:
        """The summary of a sweep of the whole mark."""
        return self.sweep_summary_of(Scope.all)

    def approval_of(self, only: Scope) -> str:
        """Return the key of the approval of the whole mark, or of one part."""
        return f"{self.folder}approval{only.suffix}.json"

    def sweep_summary_of(self, only: Scope) -> str:
        """Return the key of the summary of a sweep of the whole mark, or of one part."""
        return f"{self.folder}sweep{only.suffix}.json"

    @property
    def ledger(self) -> str:
        return f"{self.folder}ledger/"

    @property
    def claims(self) -> str:
        """The folder of the notes of sweeps that have begun, for which the backup of the mark is kept."""
        return f"{self.folder}claims/"

    @property
    def passes(self) -> str:
        """The folder of the files by which a sweep, a backup and a restore know their store again, also in workers."""
        return f"{self.folder}passes/"

    @property
    def restores(self) -> str:
        return f"{self.folder}restores/"


@record
class MarkPart:
    """One Parquet file of marked objects; ``key`` is relative to the namespace, ``sha256`` is of its bytes."""

    key: str
    objects: int
    size_bytes: int
    sha256: str


class _SweptBy(BaseModel):
    """The facts in ``Mark.run`` that a sweep needs. A missing one must not pass for no wait or no backup (rule 12)."""

    model_config = ConfigDict(strict=True, extra="ignore")

    run_key: str
    server: dict[str, str]
    unreadable: list[str]
    not_asked: list[str]
    named_at_root: str | None
    sweep_policy: str
    sweep_delay_hours: float
    needs_backup: bool
    longest_commit_minutes: float
    only: Literal["all", "expired", "never_committed"] = "all"  # marks of all objects do not record it


@record
class Mark(SealedRecord):
    """A finished mark, of lakefs-gc or of lakeFS's own client. ``candidate_bytes`` is None if the mark has no sizes."""

    kind = "a mark manifest"
    current_version = _VERSION
    oldest_version = _TWO_ANSWERS
    version_keys = MappingProxyType({1: "format_version", _TWO_ANSWERS: "format_version", _BRAKES: "format_version"})
    remedy = "Mark again, or sweep the mark with the lakefs-gc that made it"

    mark_id: str
    repository: str
    namespace: str
    folder: str
    made_by: str
    created_at: Time
    cutoff: Time
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
    schema_version: int = field(default=_VERSION, kw_only=True)

    @property
    def location(self) -> str:
        """The report's folder as a URL."""
        return self.namespace + self.folder

    @property
    def run_key(self) -> str:
        """The key of the run that made the mark. For a mark of another tool, it is made from the mark id."""
        return str(self.run.get("run_key") or f"{self.repository}/{self.mark_id}")

    @property
    def is_ours(self) -> bool:
        """Whether lakefs-gc made the mark, and not lakeFS's own client."""
        return self.made_by == MADE_BY_LAKEFS_GC

    @property
    def is_current(self) -> bool:
        """Whether the mark records everything that a sweep needs."""
        return self.schema_version > _TWO_ANSWERS

    @property
    def only(self) -> Scope:
        """Which candidates the mark holds: all, or those with one reason."""
        return Scope(self.run.get("only", Scope.all))

    def objects_of(self, only: Scope) -> int:
        """Return the number of objects of a part, or of the whole mark. Raise ``MarkError`` as ``refuse_no_part``."""
        self.refuse_no_part(only)
        return self.reasons[only]["objects"] if only.is_part else self.candidates

    def bytes_of(self, only: Scope) -> int | None:
        """Return the bytes of a part, or of the whole mark. Raise ``MarkError`` as ``refuse_no_part``."""
        self.refuse_no_part(only)
        return self.reasons[only]["size_bytes"] if only.is_part else self.candidate_bytes

    def refuse_no_part(self, only: Scope) -> None:
        """Raise ``MarkError`` if the mark does not record which of its objects are of the part ``only``."""
        if not only.is_part:
            return
        if not self.is_ours or self.reasons.keys() != set(PARTS):
            raise MarkError(
                f"Mark {self.mark_id} does not record why each object is marked, so no part of it can be selected",
                remedy=f"Approve or sweep the whole mark, or run `lakefs-gc mark {self.repository}{only.option}`",
            )
        if not self.only.covers(only):
            raise MarkError(
                f"Mark {self.mark_id} was made with{self.only.option}, so it holds no {only.value} objects",
                remedy=f"Run `lakefs-gc mark {self.repository}{only.option}`",
            )

    @property
    def unreadable(self) -> frozenset[str]:
        """The other repositories that could not be read when the mark was made."""
        return frozenset(self.run.get("unreadable", ()))

    @property
    def repositories(self) -> frozenset[str]:
        """The other repositories that the server listed for the mark; none if an earlier version made it."""
        return frozenset(self.run.get("repositories", ()))

    @property
    def mounts(self) -> frozenset[str] | None:
        """The prefixes of the mounts with which lakefs-gc made the mark. None: an earlier version did not record them.

        Empty for a mark of lakeFS's own client: its sweep reads the other repositories first.
        """
        return frozenset(self.run["mounts"]) if "mounts" in self.run else None if self.is_ours else frozenset()

    @property
    def sweep_policy(self) -> str:
        """The policy that may sweep the mark without a person, as of the settings of the run (``SweepSettings``)."""
        return str(self.run.get("sweep_policy", MANUAL))

    @property
    def sweep_delay_hours(self) -> float:
        """How old the mark must be before its policy may sweep it."""
        return float(self.run.get("sweep_delay_hours", 0.0))

    @property
    def needs_backup(self) -> bool:
        """Whether the settings of the run require a backup of every object that is swept."""
        return self.run.get("needs_backup") is True

    @property
    def longest_commit_minutes(self) -> float:
        """How long a commit of the repository may take, in the settings of the run."""
        return float(self.run.get("longest_commit_minutes", 0.0))

    @property
    def named_at_root(self) -> str:
        """An address at the root with a name that lakeFS does not generate, which the run recorded; or empty.

        If it is empty, no object with such a name may be swept.
        """
        return str(self.run.get("named_at_root") or "")

    @property
    def not_lakefs(self) -> tuple[int, int] | None:
        """Objects and bytes at the root that are kept only because of their names; None if they were not counted."""
        objects, size_bytes = self.run.get("not_lakefs"), self.run.get("not_lakefs_bytes")
        return None if objects is None or size_bytes is None else (int(objects), int(size_bytes))

    @property
    def not_asked(self) -> frozenset[str]:
        """The other repositories that ``safety.repositories_not_read`` named when the mark was made."""
        return frozenset(self.run.get("not_asked", ()))

    @classmethod
    def from_json(cls, data: bytes, file: str) -> Self:
        """Read a manifest of any version.

        Raise ``CorruptFileError`` if the file is not a manifest, and ``MarkError`` if it was changed.
        """
        mark = super().from_json(data, file)
        if mark.is_current:
            if not mark.is_ours:
                raise cls.corrupt(file, f"field 'made_by' is {mark.made_by!r}: only lakefs-gc writes manifests")
            try:
                _SweptBy.model_validate(mark.run)
            except ValidationError as error:
                raise cls.corrupt(file, first_problem(error, "run")) from None
        if mark.schema_version < _VERSION:
            warn_of_former_marks()
        return mark

    @classmethod
    def changed(cls, file: str) -> MarkError:
        """Return the error for a manifest that was changed after it was written."""
        return MarkError(
            f"{file} was changed after it was written: its digest does not fit its content",
            remedy="Do not sweep this mark. Mark again, and find out what changes files below _lakefs/retention/",
        )

    @classmethod
    def upgrade(cls, content: dict[str, Any], version: int, file: str) -> dict[str, Any]:
        """Return the fields with checks instead of brakes, as versions 2 and 3 called them."""
        if version == _VERSION:
            return content
        fields = {name: value for name, value in content.items() if name != "brakes"}
        if "checks" in fields:
            raise ValueError(f"version {version} has no field 'checks'")
        return fields | {"checks": [_upgraded_check(brake, version) for brake in content["brakes"]]}


def _upgraded_check(brake: dict[str, Any], version: int) -> dict[str, Any]:
    answer = "passed" if version == _TWO_ANSWERS else "answer"
    if brake.keys() != {"name", answer, "message", "blocks"}:
        raise ValueError(f"a check with the fields {', '.join(sorted(brake))}")
    if type(brake["blocks"]) is not bool or (version == _TWO_ANSWERS and type(brake["passed"]) is not bool):
        raise TypeError(f"a field of the check {brake['name']!r} is not true or false")
    passed = {True: Answer.SAFE, False: Answer.UNSAFE}
    return {
        "name": FORMER_NAMES.get(brake["name"], brake["name"]),
        "answer": passed[brake["passed"]] if version == _TWO_ANSWERS else brake["answer"],
        "message": brake["message"],
        "severity": Severity.ERROR if brake["blocks"] else Severity.WARN,
    }


@cache
def warn_of_former_marks() -> None:
    """Log a warning, once per process: a repository may have many such marks."""
    logger.warning(
        "an earlier lakefs-gc made at least one of these marks, with former names of checks: the next release cannot "
        "read such marks, so sweep them or mark again before you upgrade"
    )
