"""The HTML report shows strings of the store as text, and loads nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser

from lakefs_gc.report.build import Extras, mark_page
from lakefs_gc.report.html import as_html
from lakefs_gc.report.next_step import Standing
from lakefs_gc.report.page import CurvePoint, MarkPage, RunRow
from lakefs_gc.report.tables import tables
from lakefs_gc_tests.support.sample_mark import MARK, NOW
from lakefs_gc_tests.support.sample_page import FACTS, HOSTILE, OVERVIEW, SAMPLE, with_failed

EXTRAS = Extras(
    {"deleted": {"objects": 50, "size_bytes": 5_000}, "failed": {"objects": 5, "size_bytes": 500}},
    [RunRow("m0", "2026-06-24", "40", "3.9 KiB", HOSTILE, "")],
    [CurvePoint(0, 9_000), CurvePoint(30, 5_500), CurvePoint(90, 0)],
)


class Read(HTMLParser):
    """The tags and the texts of a document."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "rect", "polyline", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "polyline"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def pages() -> Iterator[MarkPage]:
    blocked = with_failed(SAMPLE, "share_of_objects")
    yield mark_page(replace(blocked, repository=HOSTILE), FACTS, OVERVIEW, extras=EXTRAS)
    yield mark_page(SAMPLE, FACTS, OVERVIEW)
    yield mark_page(SAMPLE, None, OVERVIEW)
    yield mark_page(MARK, replace(FACTS, paths=None))
    yield mark_page(replace(SAMPLE, candidate_bytes=None, counts={}, reasons={}, checks=(), run={}), None)


def test_a_cell_of_a_wide_table_has_the_name_of_its_column() -> None:
    """In a narrow window the row is a block, and the name stands beside the cell."""
    page = next(pages())
    read = Read(as_html(page))
    named = [attributes["data-column"] for tag, attributes in read.tags if tag == "td" and "data-column" in attributes]
    for table in tables(page):
        if table.name in ("failed_checks", "folders", "sample"):
            start = named.index(table.columns[0])
            assert tuple(named[start : start + len(table.columns)]) == table.columns


def test_what_the_store_names_is_text() -> None:
    html = as_html(next(pages()))
    assert html.count("&lt;script&gt;") >= 6, "repository, message, branch, folder, committer, sample, state"
    read = Read(html)
    assert {tag for tag, _ in read.tags} & {"script", "a", "img", "link", "iframe", "object", "form"} == set()
    assert any(HOSTILE in text for text in read.texts)
    assert any(f"lakefs-gc explain {HOSTILE} ADDRESS" in text for text in read.texts)


def test_nothing_is_loaded_and_nothing_runs() -> None:
    for page in pages():
        html = as_html(page)
        read = Read(html)
        assert read.open == [], "every tag is closed"
        names = {name for _, attributes in read.tags for name in attributes}
        assert {name for name in names if name.startswith("on")} | names & {"src", "href", "action"} == set()
        assert not re.search(r"url\(|@import", html)
        assert (
            "meta",
            {"http-equiv": "Content-Security-Policy", "content": "default-src 'none'; style-src 'unsafe-inline'"},
        ) in (read.tags)


def test_the_report_has_everything_of_the_page() -> None:
    page = next(pages())
    text = " ".join("".join(Read(as_html(page)).texts).split())
    for table in tables(page):
        if table.name != "bytes_by_age":  # a chart with the same numbers
            for row in table.rows:
                assert all(" ".join(cell.split()) in text for cell in row), (table.name, row)
    for expected in (page.next.headline, *page.consequences, "What another retention would free", *page.next.commands):
        assert " ".join(expected.split()) in text
    assert all(row.name in text for row in page.ages)
    without = as_html(mark_page(SAMPLE, FACTS, OVERVIEW))
    assert f"Otherwise `lakefs-gc forecast {SAMPLE.repository}` adds it" in without
    assert "<polyline" not in without
    flat = as_html(mark_page(SAMPLE, FACTS, OVERVIEW, extras=Extras(forecast=[CurvePoint(0, 1024)])))
    assert "Every retention frees the same: 1.0 KiB." in flat
    swept = mark_page(SAMPLE, FACTS, OVERVIEW, Standing(NOW, "swept"))
    assert "What another retention" not in as_html(swept), "it is too late for a forecast"
