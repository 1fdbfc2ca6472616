"""The pages of the documentation, and what they contain: headings, links, code."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from lakefs_gc_tests.docs.generate import DOCS, ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(r"^( *)(`{3,})([a-z]*)\n(.*?)^\1\2$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    """Return the path of a page in the repository, for the names of tests."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in a language."""
    return [match[4] for match in _FENCE.finditer(page.read_text("utf-8")) if match[3] == language]


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return _FENCE.sub("", page.read_text("utf-8"))


def spans(page: Path) -> list[str]:
    """Return the inline code of a page."""
    return _SPAN.findall(prose(page))


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the links of a page that stay in the repository: file (empty for the page itself) and anchor."""
    for target in _LINK.findall(_SPAN.sub("code", prose(page))):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            yield file, anchor


def anchors(page: Path) -> list[str]:
    """Return the anchors of a page's headings, as the site makes them."""
    return [slug(heading) for heading in _HEADING.findall(prose(page))]


def slug(heading: str) -> str:
    """Return the anchor of a heading, as Python-Markdown makes it."""
    text = unicodedata.normalize("NFKD", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading))
    text = re.sub(r"[^\w\s-]", "", text.encode("ascii", "ignore").decode()).strip().lower()
    return re.sub(r"[-\s]+", "-", text)
