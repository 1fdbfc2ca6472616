"""The shell blocks of the quickstart, as they are written, in one shell, against the embedded server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lakefs_gc_tests.docs.generate import DOCS
from lakefs_gc_tests.docs.pages import blocks
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lake_fixtures import lake
from lakefs_gc_tests.support.user_environment import TIMEOUT_SECONDS, environment_of_user

__all__ = ["lake"]


@pytest.mark.of_ci  # each command starts Java; cli/ tests the commands in one process
@pytest.mark.long(110)
def test_the_quickstart_runs_as_it_is_written(lake: Lake, tmp_path: Path, small_spark_config: dict[str, str]) -> None:
    repository = lake.repository("my-repo")
    live = repository.put("live")
    repository.commit()
    garbage = repository.put_stray("data/old/garbage", b"garbage")
    home = tmp_path / "home"
    home.mkdir()
    (home / "backups").mkdir()
    script = "set -eux\n" + "\n".join(blocks(DOCS / "quickstart.md", "sh"))

    ended = subprocess.run(
        ["sh", "-c", script],
        cwd=home,
        env=environment_of_user(lake, home, small_spark_config),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert (home / "installed").read_text() == "pip install lakefs-gc[java]\n"
    assert "swept" in ended.stdout.splitlines()[-1], ended.stdout
    assert 'repositories = ["my-repo"]' in (home / "lakefs-gc" / "lakefs-gc.toml").read_text()
    assert [file.read_bytes() for file in (home / "backups").rglob("garbage")] == [b"garbage"]
    assert set(repository.store.stat_many([live, garbage])) == {live}
