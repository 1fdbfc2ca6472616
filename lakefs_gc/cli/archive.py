"""Writes the archive for Spark's executors: this package, the packages that its workers import, and Python.

The archive works in any folder: the script ``python/bin/python3`` finds its own location, and ``site-packages`` is
beside ``python``. It contains bytecode and the decoder's compiled code, so the first task of a worker compiles nothing.
The same environment produces the same bytes.

Executors need the processor architecture and the C library of the machine that made the archive. The compiled code is
for that machine's processor. Other processors compile once.

venv-pack would not replace it. For the same environment its archive has 792 MB instead of 204 MB (1,408 MB instead of
548 MB when unpacked), because it includes Spark, Dagster and tests. It contains no Python, only a link to one that each
executor must have at the same path. The first decode takes 15.1 s instead of 2.4 s, because it compiles. conda-pack
packs only conda environments.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import json
import logging
import platform
import py_compile
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import lakefs_gc
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.jit import COMPILED_FOLDER

logger = logging.getLogger(__name__)

ALIAS = "lakefs-gc"
"""Name of the folder in the working directory of executors to which they unpack the archive."""
SUFFIXES = (".tar.gz", ".tgz")
"""Spark unpacks other formats, too, but does not make their files executable."""

_THIS = "lakefs-gc"
_DRIVER_ONLY = frozenset(
    {
        *("dagster", "dagster-webserver", "dagster-pyspark", "dagster-aws"),
        *("jinja2", "markupsafe", "typer", "rich", "packaging", "starlette", "uvicorn", "python-multipart"),
    }
)
_SPARKS_OWN = frozenset({"pyspark", "py4j"})
"""Packages that Spark provides to its executors in its own version."""

_STORE_EXTRAS = ("azure", "gcs")
"""The extras of stores. The archive contains those that are installed on this machine."""

_UNUSED = (
    "__pycache__/*",
    "*/__pycache__/*",
    "*.pth",
    "*.pyi",
    "*.dist-info/RECORD",
    "*.dist-info/INSTALLER",
    "*.dist-info/REQUESTED",
    "*.dist-info/direct_url.json",
    "*.dist-info/licenses/*",
    "numba/tests/*",
    "numpy/*/tests/*",
    "pandas/tests/*",
    "pyarrow/tests/*",
    "pyarrow/include/*",
    "pyarrow/src/*",
)
"""Files of distributions that no worker needs. ``*`` also matches slashes."""
_BOTOCORE_DATA = "botocore/data/"
_BOTOCORE_SERVICES = frozenset({"s3", "sts", "sso", "sso-oidc", "signin"})
"""The services of the store and of credentials."""
_UNUSED_OF_PYTHON = frozenset(
    {"test", "tests", "idlelib", "turtledemo", "tkinter", "ensurepip", "site-packages", "dist-packages", "__pycache__"}
)

_TIMESTAMP = 315532800  # 1980: the oldest time that every tool supports
_LAUNCHER = """#!/bin/sh
# Runs the Python of this archive in any folder.
bin=$(dirname "$(readlink -f "$0")")
root=$(dirname "$(dirname "$bin")")
unset PYTHONHOME
export PYTHONNOUSERSITE=1
export PYTHONPATH="$root/site-packages${PYTHONPATH:+:$PYTHONPATH}"
export LD_LIBRARY_PATH="$root/python/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$bin/%s" "$@"
"""
_PAGE = (
    b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>data/a/b</Key>"
    b"<LastModified>2025-06-01T12:00:00.000Z</LastModified><Size>1</Size></Contents></ListBucketResult>"
)
_WARM_UP = """
from lakefs_gc.formats import jit
from lakefs_gc.cli.archive import warm_up
warm_up()
print(jit.CACHE_FOLDER)
"""

Content = bytes | Path


@dataclass(frozen=True)
class Package:
    """A written archive. ``distributions`` are ``name==version``."""

    file: Path
    size_bytes: int
    sha256: str
    distributions: tuple[str, ...]
    spark: dict[str, str]
    """The Spark settings that make executors use it."""

    def facts(self) -> dict[str, Any]:
        """Return the archive as plain values."""
        return {
            "archive": str(self.file),
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
            "python": platform.python_version(),
            "platform": " ".join(filter(None, (sys.platform, platform.machine(), *platform.libc_ver()))),
            "distributions": list(self.distributions),
            "spark": self.spark,
        }


def spark_settings(url: str) -> dict[str, str]:
    """Return the settings that make Spark's executors use the archive at ``url``."""
    return {"spark.archives": f"{url}#{ALIAS}", "spark.pyspark.python": f"./{ALIAS}/python/bin/python3"}


def make_package(output: Path, *, url: str = "", with_driver: bool = False) -> Package:
    """Write the archive to ``output`` (``SUFFIXES``), which appears when it is complete.

    ``url`` is where executors read it; default: ``output``. ``with_driver`` adds what the driver needs, for runs that
    are submitted to a cluster as a whole. Raises ``ConfigurationError`` for another suffix, and for an environment
    whose files are not recorded.
    """
    if not output.name.endswith(SUFFIXES):
        raise ConfigurationError(
            f"Spark cannot unpack {output.name}: unknown extension", remedy=f"use {' or '.join(SUFFIXES)}"
        )
    distributions = runtime_distributions(with_driver=with_driver)
    entries = {f"site-packages/{name}": content for name, content in _packages(distributions)}
    entries |= {f"python/{name}": content for name, content in _interpreter()}
    output.parent.mkdir(parents=True, exist_ok=True)
    aside = output.with_name(f".{output.name}.{uuid4().hex}.partial")  # another process may write the same archive
    try:
        with aside.open("wb") as file:
            write_archive(file, entries)
        with aside.open("rb") as archive:
            digest = hashlib.file_digest(archive, "sha256").hexdigest()
        size_bytes = aside.stat().st_size
        aside.replace(output)
    finally:
        aside.unlink(missing_ok=True)
    logger.info("package %s: %d files", output, len(entries), extra={"size_bytes": size_bytes})
    return Package(
        file=output,
        size_bytes=size_bytes,
        sha256=digest,
        distributions=tuple(f"{d.name}=={d.version}" for d in distributions),
        spark=spark_settings(url or output.absolute().as_uri()),
    )


def write_archive(stream: IO[bytes], entries: Mapping[str, Content]) -> None:
    """Write files sorted by name, all with the same time and without an owner."""
    with (
        # A higher level takes three times as long and saves a tenth.
        gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=stream, mtime=_TIMESTAMP) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name in sorted(entries):
            content = entries[name]
            data = content if isinstance(content, bytes) else content.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), _TIMESTAMP
            entry.mode = 0o755 if name.startswith("python/bin/") else 0o644
            archive.addfile(entry, io.BytesIO(data))


def runtime_distributions(*, with_driver: bool = False) -> list[Distribution]:
    """Return the distributions that workers (and the driver) import, sorted by name, without this one.

    They include the SDKs of ``_STORE_EXTRAS``. Raises ``ConfigurationError`` if a requirement is not installed.
    """
    excluded = _SPARKS_OWN if with_driver else _SPARKS_OWN | _DRIVER_ONLY
    distributions: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = list(_requirements(_this(), _installed_stores(_this())))
    while todo:
        wanted = todo.pop()
        name, extras = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if name in excluded or (name, extras) in seen:
            continue
        seen.add((name, extras))
        distributions[name] = _installed(name)
        todo += _requirements(distributions[name], extras)
    return [distributions[name] for name in sorted(distributions)]


def _installed_stores(package: Distribution) -> frozenset[str]:
    always = {requirement.name for requirement in _requirements(package, frozenset())}
    return frozenset(
        extra
        for extra in _STORE_EXTRAS
        if all(
            _is_installed(requirement.name)
            for requirement in _requirements(package, frozenset({extra}))
            if requirement.name not in always
        )
    )


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _this() -> Distribution:
    return _installed(_THIS)


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise ConfigurationError(
            f"{name} is not installed, so it cannot be packed", remedy="install lakefs-gc with pip into a virtualenv"
        ) from None


def _requirements(package: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    for line in package.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
            yield requirement


def _packages(distributions: Iterable[Distribution]) -> Iterator[tuple[str, Content]]:
    for package in distributions:
        for name, file in _files(package):
            yield from _with_bytecode(name, file)
    own = Path(lakefs_gc.__file__).parent
    for file in _walk(own, lambda folder: folder in ("__pycache__", COMPILED_FOLDER)):
        yield from _with_bytecode(f"{own.name}/{file.relative_to(own).as_posix()}", file)
    compiled = _compiled_code()
    for file in sorted(compiled.glob("*/*.nb[ic]")):
        yield f"{own.name}/formats/{COMPILED_FOLDER}/{compiled.name}/{file.name}", file


def _files(package: Distribution) -> Iterator[tuple[str, Path]]:
    direct_url = json.loads(package.read_text("direct_url.json") or "{}")
    if not package.files or direct_url.get("dir_info", {}).get("editable"):
        raise ConfigurationError(
            f"the files of {package.name} are not recorded", remedy="install it with pip, and not as editable"
        )
    for listed in package.files:
        name = listed.as_posix()
        if ".." in listed.parts or listed.is_absolute() or any(fnmatch(name, pattern) for pattern in _UNUSED):
            continue
        service, slash, _ = name.removeprefix(_BOTOCORE_DATA).partition("/")
        if name.startswith(_BOTOCORE_DATA) and slash and service not in _BOTOCORE_SERVICES:
            continue
        file = Path(str(package.locate_file(listed)))
        if file.is_file():
            yield name, file


def _walk(folder: Path, is_excluded: Callable[[str], bool]) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if not entry.is_dir():
            yield entry
        elif not is_excluded(entry.name):
            yield from _walk(entry, is_excluded)


def _with_bytecode(name: str, file: Path) -> Iterator[tuple[str, Content]]:
    yield name, file
    if name.endswith(".py") and (bytecode := _bytecode(name, file)):
        folder, _, module = name.rpartition("/")
        cached = f"__pycache__/{module.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc"
        yield f"{folder}/{cached}" if folder else cached, bytecode


def _bytecode(name: str, file: Path) -> bytes:
    """Return bytecode that is valid for any time of the source (PEP 552). Empty for a source that does not compile."""
    source = file.read_bytes()
    header = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
    known = Path(importlib.util.cache_from_source(str(file)))
    if known.is_file():
        data, source_stat = known.read_bytes(), file.stat()
        mtime_and_size = (int(source_stat.st_mtime) & 0xFFFFFFFF, source_stat.st_size & 0xFFFFFFFF)
        valid = importlib.util.MAGIC_NUMBER + bytes(4) + b"".join(n.to_bytes(4, "little") for n in mtime_and_size)
        if data.startswith(valid):
            return header + data[16:]
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "module.pyc"
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        try:
            py_compile.compile(str(file), str(compiled), dfile=name, doraise=True, invalidation_mode=mode)
        except py_compile.PyCompileError:  # some packages contain templates or code for other versions of Python
            return b""
        return compiled.read_bytes()


def _compiled_code() -> Path:
    """Return the folder with the compiled code for this machine's processor, one subfolder for each module folder."""
    # In a separate process: this one may keep its code elsewhere, or not at all.
    command = [sys.executable, "-c", _WARM_UP]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        raise ConfigurationError(
            f"the readers of ranges and listings cannot be compiled: {error.stderr.strip()[-500:]}",
            remedy="run `python -c 'import lakefs_gc.formats.ranges'` to see the error",
        ) from None
    folder = ended.stdout.strip()
    if not folder:
        raise ConfigurationError(
            "no folder for compiled code is writable", remedy="set NUMBA_CACHE_DIR to a writable folder"
        )
    return Path(folder)


def warm_up() -> None:
    """Compile, or load, the code that reads ranges, metaranges and pages of listings, and compares addresses."""
    import pyarrow as pa

    from lakefs_gc.engine.decide.matching.address_table import AddressTable, hashes_of
    from lakefs_gc.formats.entry import AddressType, Entry, entry_identity
    from lakefs_gc.formats.ranges import read_metarange, read_range
    from lakefs_gc.formats.sstable.table_writer import write_metarange, write_range
    from lakefs_gc.storage.s3.listing import read_quickly

    entry = Entry("data/a", AddressType.RELATIVE, size_bytes=1, last_modified_ns=0)
    table = write_range([(b"a", entry_identity(entry), entry)])
    read_range(table.data, "warm-up")
    read_range(table.data, "warm-up", keys=True, details=True)
    read_metarange(write_metarange([table]).data, "warm-up")
    read_quickly(_PAGE, "")
    hashes, sizes = hashes_of(pa.array(["data/a"])), pa.array([1])
    compared = AddressTable(1)
    compared.add(hashes, sizes)
    compared.find(hashes, sizes)
    compared.unsettled(hashes)


def _interpreter() -> Iterator[tuple[str, Content]]:
    prefix, library = Path(sys.base_prefix), Path(sysconfig.get_paths()["stdlib"])
    program = f"python{sys.version_info.major}.{sys.version_info.minor}"
    yield "bin/python3", (_LAUNCHER % program).encode()
    yield f"bin/{program}", _program(prefix, program)
    shared = Path(sysconfig.get_config_var("LIBDIR") or prefix / "lib") / str(sysconfig.get_config_var("INSTSONAME"))
    if shared.suffix != ".a" and shared.is_file():
        yield f"lib/{shared.name}", shared
    below = library.relative_to(prefix) if library.is_relative_to(prefix) else Path("lib", program)
    for file in _walk(library, lambda folder: folder in _UNUSED_OF_PYTHON or folder.startswith("config-")):
        name = (below / file.relative_to(library)).as_posix()
        if file.is_file() and file.name != "EXTERNALLY-MANAGED":
            yield from _with_bytecode(name, file)


def _program(prefix: Path, program: str) -> Path:
    for candidate in (prefix / "bin" / program, prefix / "bin" / "python3", Path(sys.executable)):
        if candidate.exists():
            return candidate.resolve()
    raise ConfigurationError(f"{program} is not in {prefix}", remedy="use a standard installation of Python")
