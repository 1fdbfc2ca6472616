"""Compile the code that reads ranges and pages of listings, and cache the result on disk.

Compiling takes seconds and loading compiled code takes milliseconds. Spark starts many workers, so the code must be
cached. numba itself caches next to the source. That fails if the package is read-only (at import, if the home directory
is read-only too), and numba does not notice that a function *called* from another module has changed. The cache is
therefore in a folder named after the content of all compiled modules, in the first writable one of these locations:
``NUMBA_CACHE_DIR``, the package's ``__pycache__``, the user's cache folder, a private folder for temporary files. If
none is writable, each process compiles the code itself.

numba executes what it finds in a cached file. One flipped bit in it may let a check pass that should refuse, and
nothing else would notice. So each file ends with a digest of the rest, and the code of a damaged one is compiled again
(``verified_cache``).

numba names cached files after the folder of the source, so it cannot use a cache that was moved. An archive for
executors (``lakefs_gc.cli.archive``) has a cache in ``COMPILED_FOLDER`` beside this file, which is copied to the folder
that numba reads.
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
from numba.core.dispatcher import Dispatcher

from lakefs_gc.formats.verified_cache import VerifiedCache

logger = logging.getLogger(__name__)

COMPILED_MODULES = (
    "formats/jit.py",
    "formats/verified_cache.py",
    "formats/plain_bytes.py",
    *(f"formats/sstable/{name}.py" for name in ("memory", "crc32c", "snappy", "blocks", "kernel")),
    "storage/s3/page.py",
    "engine/decide/matching/address_table.py",
    "engine/workspace/fingerprints.py",
)
"""The modules of lakefs_gc with compiled code: a change in any of them starts a new cache."""

COMPILED_FOLDER = "compiled"
"""The folder of this package in which an archive ships compiled code, below the name of its cache."""

USE_SSE42 = (
    platform.machine() == "x86_64"
    and bool(binding.get_host_cpu_features().get("sse4.2", False))
    and not os.environ.get("LAKEFS_GC_PORTABLE_CRC")
)
"""Whether checksums use the processor's own CRC32C; ``LAKEFS_GC_PORTABLE_CRC=1`` disables it."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a function on its first call, to run without the interpreter's lock, and cache the result on disk."""
    return _compile(function)


def inlined(function: _Function) -> _Function:
    """As ``compiled``, and inlined into every compiled caller: for functions that run several times per entry."""
    return _compile(function, forceinline=True)


def _compile(function: _Function, **options: Any) -> _Function:
    dispatcher: Any = numba.njit(nogil=True, **options)(function)
    is_compiled = isinstance(dispatcher, Dispatcher)  # numba may be configured not to compile
    if not CACHE_FOLDER or not is_compiled:
        return cast(_Function, dispatcher)
    # numba reads the setting when a cache is made: set it only then, so that other users of numba keep theirs.
    settings: Any = numba.core.config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = CACHE_FOLDER
    try:
        cache = VerifiedCache(function)
    except RuntimeError:  # numba cannot cache code of a package in this location
        return cast(_Function, dispatcher)
    finally:
        settings.CACHE_DIR = before
    dispatcher._cache = cache
    _unpack_shipped(Path(cache.cache_path))
    return cast(_Function, dispatcher)


@lru_cache
def _unpack_shipped(target: Path) -> None:
    """Copy shipped code to the folder that numba reads, unless that folder has code already."""
    shipped = Path(__file__).parent / COMPILED_FOLDER / Path(CACHE_FOLDER).name
    try:
        if not shipped.is_dir() or any(target.glob("*.nbi")):
            return
        # An index (.nbi) names files of code (.nbc), so it is copied last. Several processes may do this at the same
        # time.
        for file in sorted(shipped.glob("*.nb[ic]"), key=lambda file: (file.suffix != ".nbc", file.name)):
            aside = target / f".{file.name}-{os.getpid()}"
            shutil.copyfile(file, aside)
            aside.replace(target / file.name)
    except OSError as error:
        logger.warning("cannot copy compiled code from %s: %s; it is compiled again", shipped, error)


def _cache_folder() -> str:
    """Return the folder for compiled code; empty if none is writable."""
    name = f"lakefs-gc-{_content_digest()}"
    for base in _candidate_bases():
        folder = base / name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Cached code is executed, so never use a folder that another user created.
            if folder.stat().st_uid == os.getuid() or base == _PACKAGE_CACHE:
                with tempfile.TemporaryFile(dir=folder):
                    return str(folder)
        except OSError:
            continue
    logger.warning(
        "no folder for compiled code is writable: each process compiles the code itself, which takes seconds"
    )
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
    for name in COMPILED_MODULES:  # through resources: the package may be in a zip file (spark-submit --py-files)
        digest.update((resources.files("lakefs_gc") / name).read_bytes())
    return digest.hexdigest()[:16]


CACHE_FOLDER = _cache_folder()
"""The folder of the compiled code, with a subfolder for each folder of this package; empty without a cache."""
