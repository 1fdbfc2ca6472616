"""The report of a run, which holds a mark, in the layout of lakeFS's own Spark client.

Either tool can sweep the marks of the other. Below the namespace, for run id ``<id>``::

    _lakefs/retention/gc/unified/<id>/deleted/       Parquet, column ``address`` (relative to the namespace)
    _lakefs/retention/gc/unified/<id>/deleted.text/  the same, one address per line
    _lakefs/retention/gc/unified/<id>/summary.json

Source: lakeFS ``clients/spark/src/main/scala/io/treeverse/gc/GarbageCollection.scala``. Before version 0.10 of that
client (commit 9621f07e2), two programs marked committed and uncommitted objects, each with its own layout.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from lakefs_gc.errors import CorruptFileError, MarkError
from lakefs_gc.formats.json_object import read_json_object
from lakefs_gc.formats.parquet import parquet_bytes, read_strings

MARKS_FOLDER = "_lakefs/retention/gc/unified/"
"""The folder of the marks in a namespace, one folder for each."""

DELETED_SCHEMA = pa.schema([pa.field("address", pa.string())])
"""The column of the Parquet files below ``deleted/``."""

MADE_BY_LAKEFS_GC = "lakefs-gc"
"""The origin in marks of lakefs-gc, so that a mark without its manifest does not count as the Spark client's."""

_RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_LINE_BREAK = re.compile(r"[\n\r]")
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")


@dataclass(frozen=True)
class ReportPaths:
    """Keys of a report, relative to the namespace; folders end in a slash.

    ``deleted`` has Parquet files, ``deleted_text`` text files; ``summary`` is None in a layout without one.
    """

    run_id: str
    folder: str
    deleted: str
    deleted_text: str
    summary: str | None


@dataclass(frozen=True)
class Summary:
    """The content of ``summary.json``.

    ``first_slice`` is the newest slice of the listing with an object older than ``cutoff_time``, or empty.
    ``cutoff_time`` is the time before which objects could be marked. ``num_deleted_objects`` is the number of *marked*
    objects. ``made_by`` is ``MADE_BY_LAKEFS_GC`` in marks of lakefs-gc, and empty in the Spark client's, which ignores
    the field.
    """

    run_id: str
    success: bool
    first_slice: str
    start_time: datetime
    cutoff_time: datetime
    num_deleted_objects: int
    made_by: str = ""

    def to_json(self) -> bytes:
        """Return the summary as the client writes it: one line without blanks, in this order, times in ISO 8601."""
        fields = {
            "run_id": self.run_id,
            "success": self.success,
            "first_slice": self.first_slice,
            "start_time": _format_instant(self.start_time),
            "cutoff_time": _format_instant(self.cutoff_time),
            "num_deleted_objects": self.num_deleted_objects,
            **({"made_by": self.made_by} if self.made_by else {}),
        }
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, data: bytes, file: str) -> Summary:
        """Read the summary of either tool; fields of later versions are ignored. Raise ``CorruptFileError``."""
        fields = read_json_object(data, file, "a summary")
        return cls(
            run_id=_field(fields, "run_id", str, file),
            success=_field(fields, "success", bool, file),
            first_slice=_field(fields, "first_slice", str, file),
            start_time=_parse_instant(_field(fields, "start_time", str, file), file),
            cutoff_time=_parse_instant(_field(fields, "cutoff_time", str, file), file),
            num_deleted_objects=_field(fields, "num_deleted_objects", int, file),
            made_by=str(fields.get("made_by", "")),
        )


def report_paths(run_id: str) -> ReportPaths:
    """Return the keys of a run's report. Raise ``MarkError`` for an id that could lead to another folder."""
    return find_report_layouts(run_id)[0]


def find_report_layouts(mark_id: str) -> list[ReportPaths]:
    """Return the possible keys of a mark: the current layout, then the layouts of the client's earlier programs.

    Raise ``MarkError`` for an id that could lead to another folder.
    """
    if not _RUN_ID.fullmatch(mark_id):
        raise MarkError(
            f"{mark_id!r} is not a mark id",
            remedy="Pass the id as `lakefs-gc history` shows it: letters, digits, - . _",
        )
    gc = "_lakefs/retention/gc"
    by_run = [f"{MARKS_FOLDER}{mark_id}/", f"{gc}/uncommitted/{mark_id}/"]
    return [
        *(
            ReportPaths(mark_id, folder, f"{folder}deleted/", f"{folder}deleted.text/", f"{folder}summary.json")
            for folder in by_run
        ),
        ReportPaths(
            mark_id,
            folder=f"{gc}/addresses/mark_id={mark_id}/",
            deleted=f"{gc}/addresses/mark_id={mark_id}/",
            deleted_text=f"{gc}/addresses.text/mark_id={mark_id}/",
            summary=None,
        ),
    ]


def folder_before_marks(run_id: str) -> str:
    """Return the folder in which the client before 0.4 listed the objects of a run, relative to the namespace.

    Nothing there is read. That client had no marks: the run that wrote the list also deleted its objects (except with
    the debug setting ``no_delete``). The list may contain addresses outside the namespace, which the client excludes
    since 0.4 (#4222). Spark wrote its ``_SUCCESS`` into the folder of all runs, so no file shows whether one is
    complete. Raise ``MarkError`` for an id that could lead to another folder.
    """
    return f"_lakefs/retention/gc/addresses/run_id={report_paths(run_id).run_id}/"


def deleted_parquet(batch: pa.RecordBatch) -> bytes:
    """Return a Parquet file for ``deleted/`` with the column ``address`` of a batch, as Spark writes it."""
    addresses = batch.column("address").cast(pa.string())
    return parquet_bytes(pa.RecordBatch.from_arrays([addresses], schema=DELETED_SCHEMA), compression="snappy")


def read_deleted_addresses(data: bytes, file: str) -> pa.StringArray:
    """Return the addresses of a Parquet file of a mark. Raise ``CorruptFileError``."""
    return read_strings(data, "address", file)


def deleted_text(addresses: pa.StringArray) -> bytes:
    """Return a file for ``deleted.text/`` with one address per line, for people, ``grep`` and rclone.

    An address with a line break is omitted, because its parts could name other objects.
    """
    one_line = (address for address in addresses.to_pylist() if not _LINE_BREAK.search(address))
    return "".join(f"{address}\n" for address in one_line).encode()


def _field(fields: dict[str, Any], name: str, kind: type, file: str) -> Any:
    value = fields.get(name)
    if type(value) is not kind:  # not isinstance: true is an instance of int
        raise CorruptFileError(file, f"the summary's {name!r} is {value!r}, not a {kind.__name__}")
    return value


def _format_instant(moment: datetime) -> str:
    """Format a time as Java's ``ISO_INSTANT``: UTC, with zero, three or six decimals."""
    utc = moment.astimezone(UTC)
    if utc.microsecond == 0:
        decimals = ""
    elif utc.microsecond % 1000 == 0:
        decimals = f".{utc.microsecond // 1000:03}"
    else:
        decimals = f".{utc.microsecond:06}"
    return f"{utc:%Y-%m-%dT%H:%M:%S}{decimals}Z"


def _parse_instant(text: str, file: str) -> datetime:
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise CorruptFileError(file, f"the summary has {text!r} where a time in UTC is required")
    try:
        seconds = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    except ValueError:
        raise CorruptFileError(file, f"the summary has the invalid time {text!r}") from None
    return seconds.replace(microsecond=int((match[2] or "").ljust(6, "0")[:6]))
