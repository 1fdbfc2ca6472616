"""Recordings of a real lakeFS server (v1.84), and how tests read them.

Each scenario is a repository: its store (``namespace/``, ``listing.jsonl``), what the server answered
(``api/``, ``prepared/``) and what garbage collection must do with it (``expected.json``); its ``README.md``
tells its story.  ``formats`` and ``spark-client`` are no repositories but SSTables with dumps: ``formats`` by lakeFS's
own code, ``spark-client`` the tables that lakeFS's Spark client and Pebble test with.

Every recording is packed beside this module, so a clone runs all tests.  The large ones are packed without the files
that no test reads: of ``big-ranges`` the objects, the ledger and the table of shared ranges; of ``ugc-size`` the
ledger and the calls that make no progress; of ``spark-client`` the benchmark and the plain texts.
"""

from __future__ import annotations

import tarfile
from functools import lru_cache
from pathlib import Path

LARGE = ("big-ranges", "ugc-size")
"""Repositories with more than 100,000 objects or entries: only tests that need this many read them."""
_TABLES = ("formats", "spark-client")

_PACKED = Path(__file__).parent


def scenarios() -> list[str]:
    """Return the names of the repositories that are not large."""
    names = (path.name.removesuffix(".tar.xz") for path in _PACKED.glob("*.tar.xz"))
    return sorted(name for name in names if name not in (*LARGE, *_TABLES))


def scenario(name: str, folder: Path) -> Path:
    """Unpack a scenario below ``folder`` (a ``tmp_path``), and return its folder."""
    with tarfile.open(_PACKED / f"{name}.tar.xz") as archive:
        # Python 3.11 before 3.11.4 has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(folder)
    return folder / name


@lru_cache(maxsize=4)
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
