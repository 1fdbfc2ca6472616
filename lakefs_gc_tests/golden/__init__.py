"""Recordings of a real lakeFS server (v1.84), and how tests read them.

Each scenario is a repository: its store (``namespace/``, ``listing.jsonl``), what the server answered
(``api/``, ``prepared/``) and what garbage collection must do with it (``expected.json``); its ``README.md``
tells its story. ``formats`` is no repository but SSTables with dumps made by lakeFS's own code.  The
scenarios are packed next to this module, the big ones (``BIG``) lie in a folder ``shared/golden`` beside
the repository, where there is one.
"""

from __future__ import annotations

import tarfile
from functools import lru_cache
from pathlib import Path

import pytest

BIG = ("big-ranges", "ugc-size", "formats/spark-client")
"""Recordings that are too big to be part of the repository: tests that need them are skipped without them."""

_PACKED = Path(__file__).parent
_SHARED = _PACKED.parents[2] / "shared" / "golden"


def scenarios() -> list[str]:
    """Names of the repositories that are always there."""
    return sorted(
        path.name.removesuffix(".tar.xz") for path in _PACKED.glob("*.tar.xz") if path.name != "formats.tar.xz"
    )


def scenario(name: str, folder: Path) -> Path:
    """The folder of a scenario: unpacked below ``folder`` (a ``tmp_path``), or the original of a big one.

    Skips the calling test if a big one is missing.  The originals are read-only: copy before changing.
    """
    if name in BIG:
        return big(name)
    with tarfile.open(_PACKED / f"{name}.tar.xz") as archive:
        # Python 3.11 before 3.11.4 has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(folder)
    return folder / name


def big(name: str) -> Path:
    """The folder of one of ``BIG``, read-only.  Skips the calling test if it is missing."""
    if not (_SHARED / name).is_dir():
        pytest.skip(f"the recording {name} is too big for the repository and not at ../shared/golden")
    return _SHARED / name


@lru_cache(maxsize=2)
def golden_files(name: str) -> dict[str, bytes]:
    """Path below the scenario → content, of every file of a packed scenario; nothing is unpacked to disk."""
    files = {}
    with tarfile.open(_PACKED / f"{name}.tar.xz") as archive:
        for member in archive:
            if content := archive.extractfile(member) if member.isfile() else None:
                files[member.name.removeprefix(f"{name}/")] = content.read()
    return files


def golden_file(name: str, path: str) -> bytes:
    """Content of one file of a packed scenario, ``golden_file("empty", "expected.json")``."""
    return golden_files(name)[path]
