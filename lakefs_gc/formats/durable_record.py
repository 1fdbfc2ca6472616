"""Durable records: the JSON files that lakefs-gc writes for later runs, each a pydantic dataclass.

A record is read strictly. A field that is missing, unknown or of another type is an error, and no field gets a default
(rule 12): a missing field must never pass for "nothing to report". The schema version is checked first, so that a file
of a newer lakefs-gc is reported as such.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast, dataclass_transform

from pydantic import AwareDatetime, BeforeValidator, ConfigDict, PlainSerializer, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass

from lakefs_gc.errors import CorruptFileError, LakeFSGCError
from lakefs_gc.formats.json_object import read_json_object

T = TypeVar("T")

_VERSION_KEYS = ("schema_version", "format_version")


def _parse_time(value: Any) -> Any:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a class a frozen pydantic dataclass that converts no types and accepts no unknown fields."""
    decorated: Any = pydantic_dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))(cls)
    return cast(type[T], decorated)


Time = Annotated[AwareDatetime, BeforeValidator(_parse_time), PlainSerializer(datetime.isoformat)]
"""A time with its offset from UTC, in a file as ISO 8601."""


@dataclass(frozen=True)
class DurableRecord:
    """The base of durable records. A subclass is decorated with ``record``.

    ``schema_version`` is the version of the file that a record was read from. Instances pickle.
    """

    schema_version: int = field(default=1, kw_only=True)

    kind: ClassVar[str]
    """What the file is, for messages: ``an approval``."""
    current_version: ClassVar[int] = 1
    oldest_version: ClassVar[int] = 1
    """The oldest version that ``upgrade`` knows."""
    version_keys: ClassVar[Mapping[int, str | None]] = {}
    """The field that names the version in files of earlier schemas; None if such a file does not name its version."""
    remedy: ClassVar[str] = ""
    """What to do about a file that is not such a record."""
    sorted_fields: ClassVar[bool] = True
    """Whether the fields of a file are sorted by name, or in the order of their definition."""

    @classmethod
    def from_json(cls, data: bytes, file: str) -> Self:
        """Read a whole file.

        Raise ``CorruptFileError`` with the file and the field for anything that is not such a record, and what
        ``check_intact`` raises.
        """
        content = read_json_object(data, file, cls.kind, remedy=cls.remedy)
        version = cls._version_of(content, file)
        cls.check_intact(content, data, file)
        content.pop(cls._version_key(version) or "", None)
        try:
            upgraded = cls.upgrade(content, version, file)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise cls.corrupt(file, f"{type(error).__name__}: {error}") from None
        try:
            parsed: Self = TypeAdapter[Any](cls).validate_json(json.dumps(upgraded))
        except ValidationError as error:
            raise cls.corrupt(file, first_problem(error)) from None
        # A field with a default in memory has none in a file.
        written = json.loads(json.dumps(parsed._fields()))
        differing = sorted(name for name in written.keys() | upgraded.keys() if not _same(written, upgraded, name))
        if differing:
            raise cls.corrupt(file, f"field {differing[0]!r} is missing or incomplete")
        return replace(parsed, schema_version=version)

    def to_json(self) -> bytes:
        """Return the content of the file. The same record always gives the same bytes."""
        return as_written(self.content(), sort_keys=self.sorted_fields)

    def content(self) -> dict[str, Any]:
        """Return the fields of the file. Raise ``ValueError`` for a record of an earlier version: it is only read."""
        if self.schema_version != self.current_version:
            raise ValueError(f"{self.kind} of schema version {self.schema_version} cannot be written")
        key = self._version_key(self.schema_version)
        return self._fields() | ({key: self.schema_version} if key else {})

    @classmethod
    def upgrade(cls, content: dict[str, Any], version: int, file: str) -> dict[str, Any]:
        """Return the fields of a file as the current version names them.

        ``content`` lacks the version. ``KeyError``, ``TypeError``, ``ValueError`` and ``AttributeError`` become
        ``CorruptFileError``.
        """
        return content

    @classmethod
    def check_intact(cls, content: Mapping[str, Any], data: bytes, file: str) -> None:
        """Raise an error if the file was changed after it was written, for records that can tell."""

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = TypeAdapter[Any](type(self)).dump_python(self, exclude={"schema_version"})
        return fields

    @classmethod
    def _version_of(cls, content: Mapping[str, Any], file: str) -> int:
        named = [key for key in _VERSION_KEYS if key in content]
        version = content[named[0]] if named else 1
        if type(version) is not int:
            raise cls.corrupt(file, f"field {named[0]!r} is {version!r}, not a whole number")
        if version > cls.current_version:
            raise CorruptFileError(
                file,
                f"written by a newer lakefs-gc: schema version {version}, and this one reads up to "
                f"{cls.current_version}",
                remedy="Upgrade lakefs-gc",
            )
        expected = cls._version_key(version)
        if named != ([expected] if expected else []):
            raise cls.corrupt(file, f"field {expected or named[0]!r} of its schema version is missing or misplaced")
        if version < cls.oldest_version:
            raise CorruptFileError(
                file,
                f"written by an older lakefs-gc: schema version {version}, and this one reads {cls.oldest_version} "
                "and later",
                remedy=cls.remedy,
            )
        return version

    @classmethod
    def _version_key(cls, version: int) -> str | None:
        return cls.version_keys.get(version, _VERSION_KEYS[0])

    @classmethod
    def corrupt(cls, file: str, problem: str) -> CorruptFileError:
        """Return the error for a file that is not such a record."""
        return CorruptFileError(file, f"not {cls.kind}: {problem}", remedy=cls.remedy)


@dataclass(frozen=True)
class SealedRecord(DurableRecord, ABC):
    """A record with a digest: SHA-256 of all other fields, as canonical JSON. Files of any version have one."""

    digest: str = field(default="", kw_only=True)

    @classmethod
    @abstractmethod
    def changed(cls, file: str) -> LakeFSGCError:
        """Return the error for a file that was changed after it was written."""

    def sealed(self) -> Self:
        """Return the record with the digest of its content."""
        return replace(self, digest=digest_of(self.content()))

    @classmethod
    def check_intact(cls, content: Mapping[str, Any], data: bytes, file: str) -> None:
        """Compare the digest with the file as it is, before anything is converted."""
        if digest_of(content) != content.get("digest") or as_written(content, sort_keys=True) != data:
            raise cls.changed(file)


def digest_of(content: Mapping[str, Any]) -> str:
    """Return the digest of the fields of a file, without its field ``digest``."""
    covered = {name: value for name, value in content.items() if name != "digest"}
    canonical = json.dumps(covered, sort_keys=True, separators=(",", ":")).encode()
    return "sha256:" + hashlib.sha256(canonical).hexdigest()


def as_written(content: Mapping[str, Any], *, sort_keys: bool) -> bytes:
    """Return the bytes of a file with these fields: lakefs-gc writes one content in one way only."""
    return json.dumps(content, indent=2, sort_keys=sort_keys).encode()


def _same(written: Mapping[str, Any], read: Mapping[str, Any], name: str) -> bool:
    return name in written and name in read and bool(written[name] == read[name])


def first_problem(error: ValidationError, *parents: str) -> str:
    """Describe the first error of a validation, with its field; ``parents`` are the fields around it."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(map(str, (*parents, *first["loc"])))
    kind = str(first["type"])
    if kind.startswith("missing"):
        return f"field {field!r} is missing"
    if kind.startswith("unexpected"):
        return f"unknown field {field!r}"
    return f"field {field!r}: {first['msg']}"
