"""Serves Dagster's UI with the runs of the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import yaml

from lakefs_gc.config import CONFIG_FILE, Settings
from lakefs_gc.terminal.output import Output

_PACKAGE = files("lakefs_gc")
# By default Dagster keeps all of these below DAGSTER_HOME.
_STORAGE_SECTIONS = ("storage", "local_artifact_storage", "compute_logs")
# Dagster recommends its tool `dg`, which lakefs-gc does not need.
_NO_DG_WARNING = "ignore:Function `dev_command` is superseded"
_SHUTDOWN_SECONDS = 30


def write_settings(home: Path, settings: Settings) -> Path:
    """Write the settings of the demo and the configuration of its Dagster instance. Return the file of the settings."""
    file = home / CONFIG_FILE
    file.write_text(
        "\n".join(
            [
                f"repositories = {_toml_list(settings.repositories)}",
                f"work_url = {_toml_string(settings.work_url)}",
                "",
                "[safety]",
                f"min_age_hours = {settings.safety.min_age_hours}",
                f"longest_commit_minutes = {settings.safety.longest_commit_minutes}",
                *_toml_table("backup", {"url": settings.backup.url}),
                *_toml_table("mounts", settings.mounts),
                *_toml_table("spark", settings.spark),
            ]
        )
        + "\n",
        "utf-8",
    )
    instance = yaml.safe_load((_PACKAGE / "dagster.yaml").read_text("utf-8"))
    for section in _STORAGE_SECTIONS:
        del instance[section]
    (home / "dagster.yaml").write_text(yaml.safe_dump(instance), "utf-8")
    (home / "workspace.yaml").write_text((_PACKAGE / "workspace.yaml").read_text("utf-8"), "utf-8")
    return file


def serve(out: Output, environment: Mapping[str, str], port: int) -> None:
    """Run ``dagster dev`` until it is interrupted."""
    out.say(f"Dagster UI: http://127.0.0.1:{port} (Ctrl-C ends the demo and removes its files)")
    out.say("   Materialize sweep_approval for the last partition, then watch the sensor start the sweep.")
    command = [sys.executable, "-W", _NO_DG_WARNING, "-m", "dagster", "dev"]
    command += ["-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, env={**os.environ, **environment}, cwd=environment["DAGSTER_HOME"])
    try:
        process.wait()
    except KeyboardInterrupt:
        # The terminal sent Dagster the same signal, so it ends its daemon and its server.
        process.wait(timeout=_SHUTDOWN_SECONDS)
    finally:
        process.terminate()


def _toml_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _toml_list(items: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(_toml_string, items)) + "]"


def _toml_table(name: str, values: Mapping[str, str]) -> list[str]:
    return ["", f"[{name}]", *(f"{_toml_string(k)} = {_toml_string(v)}" for k, v in values.items())] if values else []
