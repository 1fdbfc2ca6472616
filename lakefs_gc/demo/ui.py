"""Serves Dagster's UI with the runs of the demo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lakefs_gc.config import CONFIG_FILE, Settings
from lakefs_gc.config.instance import INSTANCE_FILE, instance_configuration
from lakefs_gc.terminal.dagster_ui import serve_dagster
from lakefs_gc.terminal.output import Output


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
    (home / INSTANCE_FILE).write_text(instance_configuration(), "utf-8")
    return file


def serve(out: Output, environment: Mapping[str, str], port: int) -> None:
    """Run ``dagster dev`` until it is interrupted."""
    out.say(f"Dagster UI: http://127.0.0.1:{port} (Ctrl-C ends the demo and removes its files)")
    out.say("   Materialize sweep_approval for the last partition, then watch the sensor start the sweep.")
    serve_dagster(environment, "127.0.0.1", port)


def _toml_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _toml_list(items: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(_toml_string, items)) + "]"


def _toml_table(name: str, values: Mapping[str, str]) -> list[str]:
    return ["", f"[{name}]", *(f"{_toml_string(k)} = {_toml_string(v)}" for k, v in values.items())] if values else []
