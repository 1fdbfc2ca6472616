"""The cache folder of compiled code."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from lakefs_gc.cli import archive as package
from lakefs_gc.formats import jit


def test_a_folder_that_is_not_writable_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(jit, "CACHE_FOLDER", "")

    def double(number: int) -> int:
        return 2 * number

    assert jit.compiled(double)(21) == 42


def test_folders_are_tried_in_this_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "configured"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    bases = list(jit._candidate_bases())
    assert bases[0] == tmp_path / "configured"
    assert bases[1].name == "__pycache__"
    assert bases[2] == tmp_path / "xdg" / "lakefs-gc"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_a_folder_of_another_user_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_candidate_bases", lambda: iter([tmp_path / "theirs", tmp_path / "ours"]))
    theirs = Path(jit._cache_folder())
    os.chown(theirs, 65534, 65534)
    assert Path(jit._cache_folder()).parent == tmp_path / "ours"


def test_the_package_may_be_in_a_zip_file(tmp_path: Path) -> None:
    root = Path(jit.__file__).parents[1]
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        files = {root / name for name in ("__init__.py", "errors.py", *jit.COMPILED_MODULES)}
        for file in files | set((root / "formats").rglob("*.py")):
            archive.write(file, file.relative_to(root.parent))
    code = "from lakefs_gc.formats import ids, jit; print(jit.__file__)"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "package.zip"), "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    assert "package.zip" in result.stdout


def test_every_compiled_module_is_part_of_the_caches_name() -> None:
    root = Path(jit.__file__).parents[1]
    using = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "@compiled" in path.read_text() or "@inlined" in path.read_text()
    }
    assert using | {"formats/jit.py", "formats/verified_cache.py", "formats/sstable/memory.py"} == set(
        jit.COMPILED_MODULES
    )


@pytest.mark.of_ci
def test_a_second_process_compiles_nothing() -> None:
    package.warm_up()  # compiled at the latest now
    code = (
        "from lakefs_gc.cli import archive\n"
        "from lakefs_gc.formats.sstable import kernel\n"
        "from lakefs_gc.storage.s3 import page\n"
        "archive.warm_up()\n"
        "for stats in (kernel.decode_entries.stats, page.scan_objects.stats):\n"
        "    print(sum(stats.cache_misses.values()), sum(stats.cache_hits.values()) > 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["0", "True"] * 2


_CALLS = """
import logging
import pyarrow as pa
from lakefs_gc.formats import plain_addresses, plain_bytes
logging.basicConfig(format="%(message)s")
columns = [pa.array(["data/a", "s3://b/c"]), pa.array([1, 2], pa.int8())]
print(plain_addresses.are_only_keys(pa.RecordBatch.from_arrays(columns, ["address", "address_type"])))
stats = plain_bytes.are_only_keys.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


@pytest.mark.parametrize("kind", ["nbc", "nbi"])
def test_damaged_code_is_compiled_again(tmp_path: Path, kind: str) -> None:
    """One flipped bit may make a check let everything pass."""

    def called() -> tuple[list[str], str]:
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", _CALLS]
        result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return result.stdout.split(), result.stderr

    compiled, cached = (["False", "0", "1"], ""), (["False", "1", "0"], "")
    assert called() == compiled
    assert called() == cached
    [file] = tmp_path.rglob(f"plain_bytes.are_only_keys*.{kind}")
    content = file.read_bytes()
    for at in (0, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        answer, log = called()
        assert answer == compiled[0]
        assert f"{file} is damaged" in log
        assert called() == cached
