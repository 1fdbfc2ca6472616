"""The shell blocks of the quickstart, as they are written, in one shell, against the embedded server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from lakefs_gc_tests.docs.generate import DOCS
from lakefs_gc_tests.docs.pages import blocks
from lakefs_gc_tests.support.collector import Lake
from lakefs_gc_tests.support.lake_fixtures import lake

__all__ = ["lake"]

TIMEOUT_SECONDS = 500
# Installing is not what this is about, and the environment of the tests must stay as it is.
_PIP = '#!/bin/sh\necho "pip $*" >> "$HOME/installed"\n'


@pytest.mark.long(110)
def test_the_quickstart_runs_as_it_is_written(lake: Lake, tmp_path: Path, spark_config: dict[str, str]) -> None:
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
        env=environment_of_user(lake, home, spark_config),
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


def environment_of_user(
    lake: Lake, home: Path, spark_config: Mapping[str, str], safety: str = "", *, backup: bool = True
) -> dict[str, str]:
    """A user's: the server and its keys by variables, the settings of this machine in a file, a new home."""
    programs = home / "bin"
    programs.mkdir()
    for name, text in {
        "pip": _PIP,
        "lakefs-gc": f'#!/bin/sh\nexec "{sys.executable}" -m lakefs_gc "$@"\n',
    }.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    spark = "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in spark_config.items())
    backups = f'[backup]\nurl = "file://{home}/backups"\nrequired_before_sweep = true\n' if backup else ""
    (home / "settings.toml").write_text(
        f'{backups}[mounts]\n"local://" = {json.dumps(lake.location.folder_url)}\n'
        # Nobody commits meanwhile: the sweep need not wait for 20 minutes.
        f"[safety]\nlongest_commit_minutes = 0\n{safety}[spark]\n{spark}"
    )
    return {
        **os.environ,
        "HOME": str(home),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "LAKEFS_GC_CONFIG": str(home / "settings.toml"),
        "LAKECTL_SERVER_ENDPOINT_URL": lake.credentials.endpoint_url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": lake.credentials.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lake.credentials.secret_access_key,
    }
