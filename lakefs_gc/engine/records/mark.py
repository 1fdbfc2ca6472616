"""A mark as it stands in a namespace: ours, or one that lakeFS's own client made.

The layouts are in ``formats.report``.  Reading a mark never trusts it: the manifest must fit its digest, the parts
their checksums, and the addresses the places that garbage can be in.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from lakefs_gc.config import MANUAL
from lakefs_gc.engine.records.check import FORMER_NAMES, Answer, Check, Severity, former_name
from lakefs_gc.errors import CorruptFileError, MarkError
from lakefs_gc.formats.json_object import read_json_object
from lakefs_gc.formats.report import (
    MADE_BY_LAKEFS_GC,
    ReportPaths,
    report_paths,
)

logger = logging.getLogger(__name__)

_VERSION = 4
_BRAKES = 3
"""The version before: it calls checks brakes, and some of them by former names.  It is still swept."""
_TWO_ANSWERS = 2
"""Its checks have passed or not, and say nothing of what could not be looked at.  It is read, but not swept."""
_DIGEST_PREFIX = "sha256:"


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


def digest_of(mark: Mark) -> str:
    """The digest that binds a mark to its content: SHA-256 of everything else in it, as canonical JSON."""
    canonical = json.dumps(_content(mark), sort_keys=True, separators=(",", ":")).encode()
    return _DIGEST_PREFIX + hashlib.sha256(canonical).hexdigest()
