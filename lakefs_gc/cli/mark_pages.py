"""The page of a mark as it is now, read from the namespace. Needs no Dagster and no Spark session."""

from __future__ import annotations

import csv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefs_gc.cli.mark_reports import find_mark, mark_facts
from lakefs_gc.config import Settings, load_server_credentials
from lakefs_gc.engine.records.mark import Mark
from lakefs_gc.engine.records.mark_parts import PART_SCHEMA, overview, read_part
from lakefs_gc.engine.records.stored_marks import Marked, list_marks, open_namespace
from lakefs_gc.errors import MarkError
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.report.current import current_page, has_workspace, stored_curve
from lakefs_gc.report.facts import page_facts
from lakefs_gc.report.html import as_html
from lakefs_gc.report.text import as_text

_PATHS = pa.schema([(name, pa.string()) for name in ("address", "path", "commit_id", "branch")])


def show(settings: Settings, repository: str, mark_id: str) -> tuple[Mark, str, dict[str, Any]]:
    """Return a mark, its page as text, and the same as JSON for scripts."""
    marked = find_mark(settings, repository, mark_id)
    page = current_page(settings, marked, overview(marked.store, marked.mark))
    facts = {**mark_facts(marked.mark), "reasons": marked.mark.reasons, **page_facts(page)}
    return marked.mark, as_text(page), facts


def text(settings: Settings, mark: Mark) -> str:
    """Return the page of a mark as text."""
    return show(settings, mark.repository, mark.mark_id)[1]


def html(settings: Settings, repository: str, mark_id: str) -> str:
    """Return the page of a mark as HTML, with the curve of the forecast of its run, if this machine has one."""
    marked = find_mark(settings, repository, mark_id)
    return as_html(current_page(settings, marked, forecast=stored_curve(settings, marked.mark)))


def latest_mark(settings: Settings, repository: str) -> str:
    """Return the id of the newest mark of a repository. Raise ``MarkError`` without marks."""
    server = LakeFSClient(load_server_credentials(), settings.lakefs)
    for mark_id in list_marks(open_namespace(repository, server, settings).store):
        return mark_id
    raise MarkError(f"Repository {repository} has no mark", remedy=f"Run `lakefs-gc mark {repository}`")


def write_list(settings: Settings, repository: str, mark_id: str, file: Path) -> int:
    """Write the marked objects as CSV, and return their number. Raise ``MarkError`` if a part was changed.

    An expired object has its path, with the last commit that had it there and the branch, where they are known.
    """
    marked, objects = find_mark(settings, repository, mark_id), 0
    paths = _paths(settings, marked)
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*PART_SCHEMA.names, *_PATHS.names[1:]])
        for part in marked.mark.parts:
            rows = read_part(marked.store, part).join(paths, "address", join_type="left outer").sort_by("address")
            for row in rows.to_pylist():
                modified = row["last_modified"]
                writer.writerow({**row, "last_modified": modified.isoformat() if modified else ""}.values())
                objects += 1
    return objects


def _paths(settings: Settings, marked: Marked) -> pa.Table:
    mark = marked.mark
    if mark.reasons.get("expired", {}).get("objects") == 0:
        return _PATHS.empty_table()
    from lakefs_gc.cli.explanations import sources_of  # loads the decoder of metadata files
    from lakefs_gc.engine.explain.expired_paths import expired_paths

    chunks = [chunk for part in mark.parts for chunk in _may_have_paths(read_part(marked.store, part)).chunks]
    with TemporaryDirectory(prefix="lakefs-gc-") as folder:
        if not has_workspace(settings):
            settings = settings.model_copy(update={"work_url": f"file://{folder}"})
        return expired_paths(sources_of(settings, mark.repository), mark, pa.chunked_array(chunks, pa.string()))


def _may_have_paths(part: pa.Table) -> pa.ChunkedArray:
    """Return the addresses of a part that are expired, or whose reason is unknown: lakeFS's own client records none."""
    reason = pc.fill_null(part["reason"], "")
    return part.filter(pc.not_equal(reason, "never_committed"))["address"]
