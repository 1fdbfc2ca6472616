"""Compiling what reads ranges and pages of listings, and where the compiled code is kept.

Compiling takes seconds, loading compiled code takes milliseconds, and Spark starts many workers: the code
must be cached. numba would cache next to the source, cannot where the package is read-only (it then raises
at import when the home directory is read-only too), and does not notice when a function *called* from
another module has changed. So the cache lies in a folder named after the content of all compiled modules,
at the first of these places that is writable: ``NUMBA_CACHE_DIR``, the package's ``__pycache__``, the
user's cache folder, a private folder for temporary files. With none of them each process compiles for
itself.

numba names what it caches after the folder of the source, so a cache that was moved is no use to it. An archive
for executors (``lakefs_gc.cli.archive``) has one in ``COMPILED_FOLDER`` beside this file, which is copied to
where numba looks.
"""

from __future__ import annotations

import getpass
import hashlib
import logging
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.core.config
from llvmlite import binding

logger = logging.getLogger(__name__)

COMPILED_MODULES = (
    "formats/jit.py",
    *(f"formats/sstable/{name}.py" for name in ("memory", "crc32c", "snappy", "blocks", "kernel")),
    "storage/s3/page.py",
)
"""The modules of lakefs_gc with compiled code: a change in any of them begins a new cache."""

COMPILED_FOLDER = "compiled"
"""The folder of this package that compiled code is shipped in, below the name of its cache."""

USE_SSE42 = (
    platform.machine() == "x86_64"
    and bool(binding.get_host_cpu_features().get("sse4.2", False))
    and not os.environ.get("LAKEFS_GC_PORTABLE_CRC")
)
"""Whether checksums use the processor's own CRC32C; ``LAKEFS_GC_PORTABLE_CRC=1`` turns it off."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a function on its first call, to run without the interpreter's lock, and keep the result on disk."""
    return _compile(function)


def inlined(function: _Function) -> _Function:
    """As ``compiled``, and become part of every compiled caller: for what runs several times for each entry."""
    return _compile(function, forceinline=True)


def _compile(function: _Function, **options: Any) -> _Function:
    # numba chooses the place when the decorator runs: set it for that moment, and leave other users of numba alone.
    settings: Any = numba.core.config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = CACHE_FOLDER
    try:
        made: Any = numba.njit(cache=bool(CACHE_FOLDER), nogil=True, **options)(function)
    except RuntimeError:  # numba finds no way to cache code from where this package lies
        return cast(_Function, numba.njit(nogil=True, **options)(function))
    finally:
        settings.CACHE_DIR = before
    stats = getattr(made, "stats", None)  # none where numba is told not to compile
    if stats is not None and stats.cache_path:
        _unpack_shipped(Path(stats.cache_path))
    return cast(_Function, made)


@lru_cache
def _unpack_shipped(target: Path) -> None:
    """Copy the code that was shipped to where numba looks for it, unless there is some."""
    shipped = Path(__file__).parent / COMPILED_FOLDER / Path(CACHE_FOLDER).name
    try:
        if not shipped.is_dir() or any(target.glob("*.nbi")):
            return
        # An index (.nbi) names files of code (.nbc), so it comes after them. Several processes may be at it.
        for file in sorted(shipped.glob("*.nb[ic]"), key=lambda file: (file.suffix != ".nbc", file.name)):
            aside = target / f".{file.name}-{os.getpid()}"
            shutil.copyfile(file, aside)
            aside.replace(target / file.name)
    except OSError as error:
        logger.warning("compiled code cannot be copied from %s: %s; it is compiled again", shipped, error)


def _cache_folder() -> str:
    """The folder for compiled code; empty when there is none to write to."""
    name = f"lakefs-gc-{_content_digest()}"
    for base in _candidate_bases():
        folder = base / name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # What lies in a cache is executed: never from a folder that somebody else made.
            if folder.stat().st_uid == os.getuid() or base == _PACKAGE_CACHE:
                with tempfile.TemporaryFile(dir=folder):
                    return str(folder)
        except OSError:
            continue
    logger.warning("no folder for compiled code is writable: each process compiles it for itself (seconds)")
    return ""


_PACKAGE_CACHE = Path(__file__).parent / "__pycache__"


def _candidate_bases() -> Iterator[Path]:
    if configured := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(configured)
    yield _PACKAGE_CACHE
    if cache_home := os.environ.get("XDG_CACHE_HOME"):
        yield Path(cache_home) / "lakefs-gc"
    with suppress(RuntimeError):  # no home directory: usual for the user of a container
        yield Path.home() / ".cache" / "lakefs-gc"
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    yield Path(tempfile.gettempdir()) / f"lakefs-gc-{user}"


def _content_digest() -> str:
    digest = hashlib.sha256(f"{numba.__version__} sse4.2={USE_SSE42}".encode())
    for name in COMPILED_MODULES:  # by way of resources: the package may lie in a zip file (spark-submit --py-files)
        digest.update((resources.files("lakefs_gc") / name).read_bytes())
    return digest.hexdigest()[:16]


CACHE_FOLDER = _cache_folder()
"""Where compiled code is kept, in a folder for each folder of ours; empty where nothing is."""
