"""The list of active commits."""

from __future__ import annotations

import re

import pytest

from lakefs_gc.errors import CorruptFileError
from lakefs_gc.formats.commits_csv import ACTIVE_COMMITS_SCHEMA, read_active_commits, write_active_commits
from lakefs_gc_tests.golden import golden_files, scenarios

RECORDED = [(name, path) for name in scenarios() for path in golden_files(name) if path.endswith("/commits.csv")]
HEADER = b"commit_id,expired,metarange_id\n"
A, B, M = "a" * 64, "b" * 64, "0" * 64


@pytest.mark.parametrize(("name", "path"), RECORDED)
def test_recorded_lists(name: str, path: str) -> None:
    data = golden_files(name)[path]
    batch = read_active_commits(data, path)
    assert batch.schema == ACTIVE_COMMITS_SCHEMA
    assert batch.num_rows == data.count(b"\n") - 1 > 0
    rows = zip(batch["commit_id"].to_pylist(), batch["metarange_id"].to_pylist(), strict=True)
    assert write_active_commits(rows) == data


def test_a_commit_without_content_has_no_metarange() -> None:
    data = write_active_commits([(A, ""), (B, M)])
    assert read_active_commits(data, "f").to_pydict() == {"commit_id": [A, B], "metarange_id": ["", M]}


def test_a_list_without_rows_is_empty() -> None:
    batch = read_active_commits(HEADER, "f")
    assert (batch.num_rows, batch.schema) == (0, ACTIVE_COMMITS_SCHEMA)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated"),
        (HEADER.rstrip(), "truncated"),
        (b"\n", "the header is"),
        (f"{A},false,{M}\n".encode(), "the header is"),
        (HEADER.replace(b",", b";"), "the header is"),
        (HEADER.replace(b"\n", b"\r\n"), "the header is"),
        (HEADER + f"{A},false,{M}".encode(), "truncated"),
        (HEADER + f"{A},false,{M[:-1]}\n".encode(), "line 2 is not a row"),
        (HEADER + f"{A},false\n".encode(), "line 2 is not a row"),
        (HEADER + f"{A},false,{M},\n".encode(), "line 2 is not a row"),
        (HEADER + f"{A.upper()},false,{M}\n".encode(), "line 2 is not a row"),
        (HEADER + f"{A},False,{M}\n".encode(), "line 2 is not a row"),
        (HEADER + f"{A},false,{M}\n\n".encode(), "line 3 is not a row"),
        (HEADER + f"{A},true,{M}\n".encode(), "is listed as expired"),
        (HEADER + f"{A},false,{M}\n{A},false,{M}\n".encode(), "listed twice"),
        (HEADER + b"\xff\x00\n", "line 2 is not a row"),
    ],
)
def test_anything_else_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptFileError, match=rf"^commits\.csv: .*{re.escape(reason)}"):
        read_active_commits(data, "commits.csv")


@pytest.mark.parametrize("cut", range(1, 200, 7))
def test_a_list_truncated_within_a_line_is_refused(cut: int) -> None:
    data = write_active_commits([(A, M), (B, M)])
    with pytest.raises(CorruptFileError):
        read_active_commits(data[:-cut], "f")
