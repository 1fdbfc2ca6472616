"""The records of a run in the workspace: the manifest of each stage, and the digest of the mark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from lakefs_gc.errors import CorruptFileError, InputOrderError
from lakefs_gc.formats.durable_record import DurableRecord, SealedRecord, Time, as_written, record

_VERSION = 2


@record
class DatasetManifest(SealedRecord):
    """How one materialization of a stage came about. Times are UTC, on this machine's clock.

    ``files`` maps each data file, by its name below the folder ``data``, to its size in bytes. ``footers`` is the sum
    of the CRC-32 of their footers (``data_files.footers_of``); 0 without files.

    Later stages and the mark believe its numbers and facts: with one changed digit a stage may seem to have no rows, or
    a run a later cutoff. So it has a digest. Version 1 had neither a digest nor ``footers``, which is then 0.
    """

    kind = "a manifest of a stage"
    current_version = _VERSION
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
    schema_version: int = field(default=_VERSION, kw_only=True)

    @classmethod
    def changed(cls, file: str) -> CorruptFileError:
        return CorruptFileError(
            file,
            "this manifest of a stage was changed after it was written",
            remedy="Start a new run, and find out what changes files in the workspace (work_url)",
        )

    @classmethod
    def check_intact(cls, content: Mapping[str, Any], data: bytes, file: str) -> None:
        """Compare the digest with the file; of a file of version 1, only the form of the JSON."""
        if cls._version_of(content, file) > 1:
            super().check_intact(content, data, file)
        elif as_written(content, sort_keys=cls.sorted_fields) != data:
            raise cls.changed(file)

    @classmethod
    def upgrade(cls, content: dict[str, Any], version: int, file: str) -> dict[str, Any]:
        """Return the fields. Raise ``InputOrderError`` for a manifest without facts about files."""
        if version > 1:
            return content
        if "materialization_id" in content and "files" not in content:
            raise InputOrderError(f"{file} was written by an older lakefs-gc", remedy=cls.remedy)
        if "digest" in content:
            raise ValueError("a digest without its schema version")
        return {"digest": "", "footers": 0} | content


@record
class MarkOfRun(DurableRecord):
    """The digest of the mark that was made from the stages of a run."""

    kind = "the record of a mark"
    version_keys = MappingProxyType({1: None})
    sorted_fields = False

    mark_id: str
    digest: str
