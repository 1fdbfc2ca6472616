"""Writes the two files of a new installation: ``lakefs-gc.toml`` and Dagster's ``dagster.yaml``."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lakefs_gc.config import CONFIG_FILE, Settings, settings_from
from lakefs_gc.config.instance import INSTANCE_FILE, instance_configuration
from lakefs_gc.errors import ConfigurationError


@dataclass(frozen=True)
class Answers:
    """What a user chooses. Every other setting keeps its default."""

    repositories: Sequence[str] = ()
    backup_url: str = ""
    mounts: Mapping[str, str] = field(default_factory=dict)
    cron: str = ""


def refuse_existing(folder: Path) -> None:
    """Raise ``ConfigurationError`` if a file would be overwritten."""
    existing = [name for name in (CONFIG_FILE, INSTANCE_FILE) if (folder / name).exists()]
    if existing:
        raise ConfigurationError(
            f"{folder} already contains {' and '.join(existing)}",
            remedy="Choose another folder, or pass --force to replace the files",
        )


def write_files(folder: Path, answers: Answers) -> Settings:
    """Write both files, and return the settings. Raise ``ConfigurationError`` for an invalid answer, before writing."""
    text = settings_text(folder, answers)
    settings = settings_from(tomllib.loads(text), CONFIG_FILE)
    if answers.cron:
        from lakefs_gc.pipeline.automation.cron import refuse_cron  # loads Dagster, a second

        refuse_cron(answers.cron)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INSTANCE_FILE).write_text(instance_configuration(), "utf-8")
    (folder / CONFIG_FILE).write_text(text, "utf-8")
    return settings


def settings_text(folder: Path, answers: Answers) -> str:
    """Return ``lakefs-gc.toml``."""
    lines = [
        "# The settings of lakefs-gc. `lakefs-gc doctor REPOSITORY` checks them; the documentation lists all of them.",
        "",
        "# The schedule `mark_repositories` marks these. A mark deletes nothing.",
        f"repositories = {json.dumps(list(answers.repositories))}",
        "# Tables of the runs, and a cache. If Spark runs on several machines: a URL that all of them reach.",
        f"work_url = {_text(f'file://{folder.absolute()}/work')}",
        "",
        "[sweep]",
        "# manual: a sweep waits until a person approves its mark.",
        'policy = "manual"',
        "",
    ]
    if answers.backup_url:
        lines += [
            "[backup]",
            "# Copies of what a sweep deletes, in a location that no repository uses.",
            f"url = {_text(answers.backup_url)}",
            "required_before_sweep = true",
        ]
    else:
        lines += [
            "# Without a backup, objects that a sweep deletes cannot be restored.",
            "# [backup]",
            '# url = "s3://my-backups/lakefs-gc"',
            "# required_before_sweep = true",
        ]
    if answers.cron:
        lines += ["", "[schedule]", f"cron = {_text(answers.cron)}"]
    if answers.mounts:
        lines += ["", "[mounts]", *(f"{_text(prefix)} = {_text(url)}" for prefix, url in answers.mounts.items())]
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
