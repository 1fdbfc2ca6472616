"""Where compiled code is kept."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lakefs_gc.formats import jit
from lakefs_gc.formats.ranges import read_range
from lakefs_gc.formats.table_writer import write_range


def test_a_folder_that_cannot_be_written_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where a folder is looked for")
    monkeypatch.setattr(jit, "_candidate_bases", lambda: iter([blocked, blocked / "x", tmp_path / "good"]))
    assert Path(jit._cache_folder()).parent == tmp_path / "good"


def test_without_any_folder_code_is_compiled_for_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setattr(jit, "_candidate_bases", lambda: iter([blocked]))
    assert jit._cache_folder() == ""
    assert "no folder for compiled code is writable" in caplog.text
    monkeypatch.setattr(jit, "_CACHE_FOLDER", "")

    def double(number: int) -> int:
        return 2 * number

    assert jit.compiled(double)(21) == 42


def test_places_are_tried_in_this_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "configured"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    bases = list(jit._candidate_bases())
    assert bases[0] == tmp_path / "configured"
    assert bases[1].name == "__pycache__"
    assert bases[2] == tmp_path / "xdg" / "lakefs-gc"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_that_somebody_else_made_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_candidate_bases", lambda: iter([tmp_path / "theirs", tmp_path / "ours"]))
    theirs = Path(jit._cache_folder())
    os.chown(theirs, 65534, 65534)
    assert Path(jit._cache_folder()).parent == tmp_path / "ours"


def test_the_package_may_lie_in_a_zip_file(tmp_path: Path) -> None:
    package = Path(jit.__file__).parents[1]
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        for file in [package / "__init__.py", package / "errors.py", *(package / "formats").glob("*.py")]:
            archive.write(file, file.relative_to(package.parent))
    code = "from lakefs_gc.formats import ids, jit, snappy; print(jit.__file__)"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "package.zip"), "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    assert "package.zip" in result.stdout


def test_every_compiled_module_is_part_of_the_caches_name() -> None:
    folder = Path(jit.__file__).parent
    using = {
        path.name for path in folder.glob("*.py") if "@compiled" in path.read_text() or "@inlined" in path.read_text()
    }
    assert using | {"jit.py", "memory.py"} == set(jit.COMPILED_MODULES)


def test_a_second_process_compiles_nothing() -> None:
    read_range(write_range([]).data, "f")  # compiled at the latest now
    code = (
        "from lakefs_gc.formats import kernel, ranges, table_writer as w\n"
        "ranges.read_range(w.write_range([]).data, 'f')\n"
        "stats = kernel.decode_range.stats\n"
        "print(sum(stats.cache_misses.values()), sum(stats.cache_hits.values()))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["0", "1"]
