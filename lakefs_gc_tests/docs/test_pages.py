"""The README is short, no link is broken, every page is in the navigation, and generated parts are up to date."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakefs_gc_tests.docs.generate import DOCS, GENERATED, ROOT, rendered
from lakefs_gc_tests.docs.pages import PAGES, anchors, links, name_of, slug, spans

README_BYTES = 6144


def test_the_readme_is_short() -> None:
    assert (ROOT / "README.md").stat().st_size <= README_BYTES


def test_generated_parts_are_up_to_date() -> None:
    stale = [name_of(page) for page, text in rendered().items() if page.read_text("utf-8") != text]
    assert stale == [], "run: python -m lakefs_gc_tests.docs"


def test_every_generated_part_is_on_a_page() -> None:
    begun = re.findall(r"<!-- generated: (.+) -->", "".join(page.read_text("utf-8") for page in PAGES))
    assert sorted(begun) == sorted(GENERATED)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    def is_broken(file: str, anchor: str) -> bool:
        target = (page.parent / file).resolve() if file else page
        return not target.exists() or bool(anchor and anchor not in anchors(target))

    assert [f"{file}#{anchor}" for file, anchor in links(page) if is_broken(file, anchor)] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "designs.md"], ids=name_of)
def test_headings_have_anchors_of_their_own(page: Path) -> None:
    """The site would number the second one, and a link to it would lead to the first."""
    assert [anchor for anchor, times in Counter(anchors(page)).items() if times > 1 or not anchor] == []


def test_pages_of_the_site_link_only_to_pages_of_the_site() -> None:
    """What is above docs/ is not on the site."""
    outside = [
        (name_of(page), file)
        for page in PAGES
        if page.is_relative_to(DOCS)
        for file, _ in links(page)
        if file and not (page.parent / file).resolve().is_relative_to(DOCS)
    ]
    assert outside == []


def test_every_page_is_in_the_navigation() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    assert sorted(_pages_of(nav)) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "changelog.md"], ids=name_of)
def test_files_that_are_named_exist(page: Path) -> None:
    file_or_folder = r"(lakefs_gc|lakefs_gc_tests|docs)/[\w/-]*(\.\w+|/)"
    named = [span for span in spans(page) if re.fullmatch(file_or_folder, span)]
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_pages_that_messages_name_exist() -> None:
    named = {
        page
        for file in (ROOT / "lakefs_gc").rglob("*.py")
        for page in re.findall(r"\b(docs/[\w/-]+\.md|README)\b", file.read_text("utf-8"))
    }
    assert "docs/reference/permissions.md" in named
    assert [page for page in sorted(named) if not (ROOT / page).exists()] == []


def _pages_of(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        for target in entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from _pages_of(target)


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("`safety.protect.days`", "safetyprotectdays"),
        ("Beside lakeFS's own client", "beside-lakefss-own-client"),
        ("12. Unknown is an answer of its own", "12-unknown-is-an-answer-of-its-own"),
        ("`lakefs-gc warm-up`", "lakefs-gc-warm-up"),
    ],
)
def test_anchors_are_those_of_the_site(heading: str, anchor: str) -> None:
    assert slug(heading) == anchor
