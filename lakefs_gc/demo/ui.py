"""Leaves Dagster's UI open with the runs of the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from lakefs_gc.cli.output import Output
from lakefs_gc.config import CONFIG_FILE, Settings

_INSTANCE = """\
telemetry:
  enabled: false
concurrency:
  runs:
    tag_concurrency_limits:
      - key: lakefs_gc/repository
        value: {applyLimitPerUniqueValue: true}
        limit: 1
run_monitoring:
  enabled: true
"""


def write_settings(home: Path, settings: Settings) -> Path:
    """The configuration of the demo, for the processes that Dagster starts; and the instance's own."""
    file = home / CONFIG_FILE
    file.write_text(
        "\n".join(
            [
                f"repositories = {_toml_list(settings.repositories)}",
                f"work_url = {_toml_string(settings.work_url)}",
                "",
                "[safety]",
                f"min_age_hours = {settings.safety.min_age_hours}",
                *_toml_table("mounts", settings.mounts),
                *_toml_table("spark", settings.spark),
            ]
        )
        + "\n",
        "utf-8",
    )
    (home / "dagster.yaml").write_text(_INSTANCE, "utf-8")
    return file


def serve(out: Output, environment: Mapping[str, str], port: int) -> None:
    """Run ``dagster dev`` until it is interrupted."""
    out.say(f"Dagster: http://127.0.0.1:{port}  (Ctrl-C ends the demo and removes its files)")
    out.say("   materialize sweep_approval for the last partition, and watch the sensor start the sweep")
    command = [
        sys.executable,
        "-m",
        "dagster",
        "dev",
        "-m",
        "lakefs_gc.definitions",
        "-h",
        "127.0.0.1",
        "-p",
        str(port),
    ]
    process = subprocess.Popen(command, env={**os.environ, **environment}, cwd=environment["DAGSTER_HOME"])
    try:
        process.wait()
    except KeyboardInterrupt:
        process.wait(timeout=30)


def _toml_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _toml_list(items: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(_toml_string, items)) + "]"


def _toml_table(name: str, values: Mapping[str, str]) -> list[str]:
    return ["", f"[{name}]", *(f"{_toml_string(k)} = {_toml_string(v)}" for k, v in values.items())] if values else []
