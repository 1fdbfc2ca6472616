"""How many processes run the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefs_gc_tests.support import processes_of_tests as module
from lakefs_gc_tests.support.processes_of_tests import processes, processes_here

_GIB = 1024**3


@pytest.mark.parametrize(
    ("cores", "memory_gib", "expected"),
    [
        pytest.param(2, 24, 3, id="more than cores"),
        pytest.param(2, 8, 2, id="little memory"),
        pytest.param(1, 2, 2, id="never less than two"),
        pytest.param(8, 32, 6, id="as many as fit"),
    ],
)
def test_processes(cores: int, memory_gib: int, expected: int) -> None:
    assert processes(cores, memory_gib * _GIB) == expected


@pytest.mark.parametrize(("limit", "expected"), [(f"{6 * _GIB}\n", 2), ("max\n", 96)])
def test_the_limit_of_a_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, expected: int) -> None:
    file = tmp_path / "memory.max"
    monkeypatch.setattr(module, "_LIMIT_OF_CONTAINER", file)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 512 * _GIB // 4096, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert processes_here() == 96, "no such file"
    file.write_text(limit)
    assert processes_here() == expected
