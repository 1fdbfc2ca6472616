"""Test modules share helpers through ``lakefs_gc_tests.support``, and never import from each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent


def _imported_modules(source: str) -> Iterator[str]:
    """Yield each module that the source imports, and each name that it imports from one, as ``module.name``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def _forbidden_imports(source: str) -> list[str]:
    """Return the imports of test modules and of conftests; importing from ``support`` and the like is allowed."""
    return [
        module
        for module in _imported_modules(source)
        if module.startswith(".")
        or (
            module.startswith("lakefs_gc_tests.")
            and any(part.startswith("test_") or part == "conftest" for part in module.split("."))
        )
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "from lakefs_gc_tests.cli.test_main import run",
        "from lakefs_gc_tests.cli import test_main",
        "import lakefs_gc_tests.cli.test_main as main",
        "from lakefs_gc_tests.engine.conftest import lake",
        "from lakefs_gc_tests.engine import conftest",
        "def f():\n    from lakefs_gc_tests.test_golden import names",
        "from .test_main import run",
        "from . import conftest",
    ],
)
def test_imports_from_test_modules_are_recognized(statement: str) -> None:
    assert _forbidden_imports(statement)


def test_imports_from_other_modules_are_allowed() -> None:
    assert _forbidden_imports("from lakefs_gc_tests.support.processes import kill_workers\nimport pytest") == []


def test_no_module_imports_from_a_test_module_or_a_conftest() -> None:
    files = sorted(_TESTS.rglob("*.py"))
    assert len(files) > 100
    found = {str(file.relative_to(_TESTS)): _forbidden_imports(file.read_text()) for file in files}
    assert {file: imports for file, imports in found.items() if imports} == {}
