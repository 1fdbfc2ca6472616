"""The report of a run: where a mark is kept, in the layout of lakeFS's own Spark client.

Either tool can sweep what the other has marked. Below the namespace, for run id ``<id>``::

    _lakefs/retention/gc/unified/<id>/deleted/       Parquet, column ``address`` (relative to the namespace)
    _lakefs/retention/gc/unified/<id>/deleted.text/  the same, one address a line
    _lakefs/retention/gc/unified/<id>/summary.json

Source: lakeFS ``clients/spark/src/main/scala/io/treeverse/gc/GarbageCollection.scala``; before version 0.10
of that client (commit 9621f07e2) committed and uncommitted objects were marked by two programs, with
layouts of their own.
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

DELETED_SCHEMA = pa.schema([pa.field("address", pa.string())])
"""The column of the Parquet files below ``deleted/``."""

MADE_BY_US = "lakefs-gc"
"""What our marks say of their origin, so that one that has lost its manifest is not taken for the client's."""

_RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_LINE_BREAK = re.compile(r"[\n\r]")
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")


@dataclass(frozen=True)
class ReportPaths:
    """Keys of a report, relative to the namespace; folders end in a slash.

    ``deleted`` holds Parquet files, ``deleted_text`` text files; ``summary`` is None in a layout without.
    """

    run_id: str
    folder: str
    deleted: str
    deleted_text: str
    summary: str | None


@dataclass(frozen=True)
class Summary:
    """The content of ``summary.json``.

    ``first_slice`` is the newest slice with a marked object (empty when there is none), ``cutoff_time`` the
    time before which objects could be marked, ``num_deleted_objects`` counts what was *marked*. ``made_by`` is
    ``MADE_BY_US`` in ours, and empty in the client's, which ignores it.
    """

    run_id: str
    success: bool
    first_slice: str
    start_time: datetime
    cutoff_time: datetime
    num_deleted_objects: int
    made_by: str = ""

    def to_json(self) -> bytes:
        """As the client writes it: on one line, without blanks, fields in this order, times in ISO 8601."""
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
        """The summary that either tool wrote; fields of later versions are ignored. Raises
        ``CorruptFileError``.
        """
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
    """Where the report of a run is written. Raises ``MarkError`` for an id that could name another place."""
    return find_report_layouts(run_id)[0]


def find_report_layouts(mark_id: str) -> list[ReportPaths]:
    """Where a mark of this id may lie: today's layout, then those of the client's earlier programs.

    Raises ``MarkError`` for an id that could name another place.
    """
    if not _RUN_ID.fullmatch(mark_id):
        raise MarkError(
            f"{mark_id!r} is no mark id",
            remedy="give the id of a run as its report shows it: letters, digits, - . _",
        )
    gc = "_lakefs/retention/gc"
    by_run = [f"{gc}/unified/{mark_id}/", f"{gc}/uncommitted/{mark_id}/"]
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


def deleted_parquet(batch: pa.RecordBatch) -> bytes:
    """A Parquet file for ``deleted/``, of the column ``address`` of a batch, as Spark writes it."""
    addresses = batch.column("address").cast(pa.string())
    return parquet_bytes(pa.RecordBatch.from_arrays([addresses], schema=DELETED_SCHEMA), compression="snappy")


def read_deleted_addresses(data: bytes, file: str) -> pa.StringArray:
    """The addresses of a Parquet file of a mark. Raises ``CorruptFileError``."""
    return read_strings(data, "address", file)


def deleted_text(addresses: pa.StringArray) -> bytes:
    """A file for ``deleted.text/``, one address a line: for people, ``grep`` and rclone.

    An address that has a line break in it is left out: its parts could name other objects.
    """
    one_line = (address for address in addresses.to_pylist() if not _LINE_BREAK.search(address))
    return "".join(f"{address}\n" for address in one_line).encode()


def _field(fields: dict[str, Any], name: str, kind: type, file: str) -> Any:
    value = fields.get(name)
    if type(value) is not kind:  # not isinstance: true is no number
        raise CorruptFileError(file, f"the summary's {name!r} is {value!r}, not a {kind.__name__}")
    return value


def _format_instant(moment: datetime) -> str:
    """As Java's ``ISO_INSTANT``: UTC, with no, three or six decimals."""
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
        raise CorruptFileError(file, f"the summary holds {text!r} where a time in UTC belongs")
    try:
        seconds = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    except ValueError:
        raise CorruptFileError(file, f"the summary holds the impossible time {text!r}") from None
    return seconds.replace(microsecond=int((match[2] or "").ljust(6, "0")[:6]))
