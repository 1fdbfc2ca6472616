"""The environment of somebody who runs the documentation's commands in a shell."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from lakefs_gc_tests.support.lake import Lake

TIMEOUT_SECONDS = 500
"""For all commands of one page, on a busy machine."""

# Installing is not what this is about, and the environment of the tests must stay as it is.
_PIP = '#!/bin/sh\necho "pip $*" >> "$HOME/installed"\n'


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
