"""Generate the parts of the documentation that follow the code.

A page has generated parts between the comments ``<!-- generated: NAME -->`` and ``<!-- end of NAME -->``.  Everything
else on it is written by people.  ``CHANGELOG.md`` and ``CONTRIBUTING.md`` stay at the top of the repository, where
people look for them; the site has a copy of each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from lakefs_gc_tests.docs.checks_table import checks_table
from lakefs_gc_tests.docs.commands import commands
from lakefs_gc_tests.docs.exit_codes import exit_codes
from lakefs_gc_tests.docs.settings import settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

GENERATED: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "checks": checks_table,
    "exit codes": exit_codes,
}
"""What makes each generated part."""

COPIES: Mapping[Path, Path] = {
    DOCS / "changelog.md": ROOT / "CHANGELOG.md",
    DOCS / "contributing.md": ROOT / "CONTRIBUTING.md",
}
"""Page of the site, and the file at the top that it repeats."""

_PART = re.compile(
    r"(?P<begin><!-- generated: (?P<name>[a-z ]+) -->\n).*?(?P<end><!-- end of (?P=name) -->)", re.DOTALL
)
_LINK = re.compile(r"\]\(docs/")


def rendered() -> dict[Path, str]:
    """Return each page that has a generated part, as it must be."""
    pages = {page: page.read_text("utf-8") for page in sorted(DOCS.rglob("*.md"))}
    filled = {page: _PART.sub(_fill, text) for page, text in pages.items() if _PART.search(text)}
    return filled | {page: _copy(source) for page, source in COPIES.items()}


def _fill(part: re.Match[str]) -> str:
    return f"{part['begin']}\n{GENERATED[part['name']]().strip()}\n\n{part['end']}"


def _copy(source: Path) -> str:
    note = f"<!-- A copy of {source.name}, made by `make docs`: edit that file. -->\n\n"
    return note + _LINK.sub("](", source.read_text("utf-8"))
