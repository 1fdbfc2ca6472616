"""The records of a run in the workspace: the manifest of each stage, and the digest of the mark."""

from __future__ import annotations

from dataclasses import field
from types import MappingProxyType
from typing import Any, Self

from lakefs_gc.errors import CorruptFileError, InputOrderError
from lakefs_gc.formats.durable_record import DurableRecord, Time, record


@record
class DatasetManifest(DurableRecord):
    """How one materialization of a stage came about. Times are UTC, on this machine's clock.

    ``files`` maps each data file, by its name below the folder ``data``, to its size in bytes. ``footers`` is the sum
    of the CRC-32 of their footers (``data_files.footers_of``); 0 without files, and in an earlier version.
    """

    kind = "a manifest of a stage"
    version_keys = MappingProxyType({1: None})
    remedy = "Start a new run"

    stage: str
    run_key: str
    materialization_id: str
    began_at: Time
    ended_at: Time
    rows: int
    facts: dict[str, Any]
    inputs: dict[str, str]
    files: dict[str, int] = field(default_factory=dict)
    footers: int = 0

    def _fields(self) -> dict[str, Any]:
        """Return the fields of the file, without ``footers`` if there are none: an earlier version did not write it."""
        fields = super()._fields()
        return fields if self.footers else {name: value for name, value in fields.items() if name != "footers"}

    @classmethod
    def from_json(cls, data: bytes, file: str) -> Self:
        """Read a manifest.

        Raise ``CorruptFileError`` if the file is not a manifest or was changed, and ``InputOrderError`` if an older
        lakefs-gc wrote it.
        """
        manifest = super().from_json(data, file)
        if manifest.to_json() != data:
            raise CorruptFileError(file, "this manifest of a stage was changed after it was written", remedy=cls.remedy)
        return manifest

    @classmethod
    def upgrade(cls, content: dict[str, Any], version: int, file: str) -> dict[str, Any]:
        """Return the fields. Raise ``InputOrderError`` for a manifest without facts about files."""
        if "materialization_id" in content and "files" not in content:
            raise InputOrderError(f"{file} was written by an older lakefs-gc", remedy=cls.remedy)
        return content


@record
class MarkOfRun(DurableRecord):
    """The digest of the mark that was made from the stages of a run."""

    kind = "the record of a mark"
    version_keys = MappingProxyType({1: None})
    sorted_fields = False

    mark_id: str
    digest: str
