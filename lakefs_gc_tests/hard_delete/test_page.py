"""The committed page is what the searches find. The suite repeats a small part of them, and all after a change."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import lakefs_gc
from lakefs_gc.hard_delete import page
from lakefs_gc.hard_delete.combinations import combine
from lakefs_gc.hard_delete.designs import DESIGNS, search_design
from lakefs_gc.hard_delete.model import Design

PAGE = Path(lakefs_gc.__file__).parents[1] / "docs" / "designs.md"
COMPARED = Path(__file__).with_name("compared.sha256")
"""The digest of the models and of the page when all searches last gave this page."""
MAX_BYTES = 25_000


def rows() -> dict[str, list[str]]:
    """Return the rows of the page's table, by their first cells."""
    cells = [line.strip("| ").split(" | ") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    return {name: others for name, *others in cells[1:]}


def test_the_page_is_a_document_that_a_person_reads() -> None:
    text = PAGE.read_text("utf-8")
    assert len(text.encode()) <= MAX_BYTES
    assert len([line for line in text.splitlines() if line.startswith("|---")]) == 1
    assert all(design.picture in text for design in DESIGNS)
    assert all(one.topic in text for design in DESIGNS for one in design.opens)
    assert "base assumptions" in text


def test_the_numbers_of_combinations_are_those_of_the_generator() -> None:
    expected = {
        page.row_name(design.number, reading): f"{len(list(combine(reading))):,}"
        for design in DESIGNS
        for reading in design.readings
    }
    assert {name: cells[-2] for name, cells in rows().items()} == expected


@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)
def test_what_small_combinations_break_is_not_ticked(design: Design) -> None:
    ticked = rows()
    for search in search_design(design, 1 if design.number in (3, 6) else 2).searches:
        cells = page.row(search)[:5]
        for found, full in zip(cells, ticked[page.row_name(design.number, search.reading)][:5], strict=True):
            assert count(found) <= count(full)


def count(cell: str) -> int:
    """Return the number of combinations in a cell."""
    return 0 if cell == "✓" else int(cell.removeprefix("✗ ").replace(",", ""))


@pytest.mark.of_ci
@pytest.mark.long(400)
def test_the_page_is_up_to_date() -> None:
    """The searches take minutes, so they run only if the models or the page changed since they were last compared."""
    digest = digest_of_models_and_page()
    if COMPARED.read_text().strip() == digest:
        return
    assert PAGE.read_text("utf-8") == page.render(), "run: lakefs-gc designs page > docs/designs.md"
    pytest.fail(f"The page is what the models give. Write {digest} to {COMPARED.name}")


def digest_of_models_and_page() -> str:
    models = Path(page.__file__).parent
    digest = hashlib.sha256(PAGE.read_bytes())
    for file in sorted(models.rglob("*.py")):
        digest.update(file.relative_to(models).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()
