"""The table of mutants fits the code. ``python -m lakefs_gc_tests.mutants`` checks that a test kills each mutant."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lakefs_gc_tests.mutants.mutant import PACKAGE, Mutant
from lakefs_gc_tests.mutants.table import MUTANTS

_RULES = 12


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule}-{mutant.removed_rule}")
def test_the_code_of_each_mutant_occurs_once(mutant: Mutant) -> None:
    source = (PACKAGE / mutant.file).read_text()
    changed = mutant.applied(source)
    assert changed != source
    ast.parse(changed)
    test = Path(__file__).parents[1] / mutant.test
    assert test.is_file()
    tests = [each for each in ast.parse(test.read_text()).body if isinstance(each, ast.FunctionDef)]
    assert tests
    selected = [each for each in tests if any(keyword in each.name for keyword in mutant.only.split(" or "))]
    for keyword in mutant.only.split(" or "):
        assert any(keyword in each.name for each in selected), "pytest -k would select no test"
    assert not all(_is_of_ci(each) for each in selected), "what is unsafe would be seen in CI alone"


def _is_of_ci(test: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator) == "pytest.mark.of_ci" for decorator in test.decorator_list)


def test_every_rule_has_a_mutant() -> None:
    assert {mutant.rule for mutant in MUTANTS} == set(range(1, _RULES + 1))
    assert len(set(MUTANTS)) == len(MUTANTS)


def test_a_mutant_whose_code_is_missing_is_an_error() -> None:
    with pytest.raises(ValueError, match="0 times, not once"):
        MUTANTS[0].applied("")
