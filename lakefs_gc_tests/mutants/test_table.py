"""The table of mutants fits the code; that each is killed, ``python -m lakefs_gc_tests.mutants`` shows."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lakefs_gc_tests.mutants.mutant import PACKAGE, Mutant
from lakefs_gc_tests.mutants.table import MUTANTS

_RULES = 12


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule}-{mutant.taken_out}")
def test_what_it_takes_out_is_there_once(mutant: Mutant) -> None:
    source = (PACKAGE / mutant.file).read_text()
    changed = mutant.applied(source)
    assert changed != source
    ast.parse(changed)
    test = Path(__file__).parents[1] / mutant.test
    assert test.is_file()
    assert "def test" in test.read_text()


def test_every_rule_has_one() -> None:
    assert {mutant.rule for mutant in MUTANTS} == set(range(1, _RULES + 1))
    assert len(set(MUTANTS)) == len(MUTANTS)


def test_code_that_is_not_there_is_said() -> None:
    with pytest.raises(ValueError, match="has 0 times"):
        MUTANTS[0].applied("")
