"""Everything that can be set, with its default and the reason for it.

Settings come from ``lakefs-gc.toml`` (in the working directory, or where ``LAKEFS_GC_CONFIG`` points).  Without a file
the defaults hold, and every default is the safe choice.  Credentials are never settings: lakeFS's come from
``LAKECTL_*`` variables or ``~/.lakectl.yaml``, the store's from its vendor's standard chain.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, field_validator, model_validator

from lakefs_gc.config.backup import BackupSettings
from lakefs_gc.config.emr import EMRSettings
from lakefs_gc.config.listing import ListingSettings
from lakefs_gc.config.safety import SafetyParameters
from lakefs_gc.config.schedule import ScheduleSettings
from lakefs_gc.config.section import Section, checked_url, looks_like_secret
from lakefs_gc.config.sweep import SweepSettings
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage.location import StoreLocation

CONFIG_VARIABLE = "LAKEFS_GC_CONFIG"
CONFIG_FILE = "lakefs-gc.toml"
_LOCAL = "local://"
REPOSITORY_NAME = "[a-z0-9][a-z0-9-]{2,62}"
"""lakeFS's own rule for the names of repositories, as a regular expression."""


class Settings(Section):
    """The whole configuration of one code location."""

    repositories: tuple[str, ...] = Field(default=(), description="Repositories that the schedule marks.")
    work_url: str = Field(
        default="",
        description="Folder for the DataFrames of each run (Parquet), which all machines of Spark see: file:///folder, "
        "s3://bucket/prefix, or s3a://bucket/prefix where Spark has Hadoop's client of that name.  "
        "Default: the folder work below DAGSTER_HOME, or below .dagster in the working directory.",
    )
    keep_runs: int = Field(
        default=10, ge=1, description="Runs of a repository whose DataFrames are kept in the workspace."
    )
    max_range_cache_bytes: int = Field(
        default=10 * 1024**3,
        ge=0,
        description="Room below work_url for the ranges that runs have read, so that the next one reads only new ones; "
        "about 40 bytes for each entry.  What was not used for longest is removed.  While a stage is at work its "
        "tasks may exceed it, by 32 MiB each.  0: keep none.",
    )
    mounts: dict[str, str] = Field(
        default_factory=dict,
        description="Where a namespace is to be reached from here when its own URL does not say: prefix of the "
        'namespace to URL, e.g. {"local://": "file:///var/lakefs/data/"} for a server with a local store.',
    )
    safety: SafetyParameters = SafetyParameters()
    listing: ListingSettings = ListingSettings()
    sweep: SweepSettings = SweepSettings()
    backup: BackupSettings = BackupSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    spark: dict[str, str] = Field(
        default_factory=dict, description='Spark configuration, e.g. {"spark.master": "local[8]"}.'
    )
    emr: EMRSettings | None = Field(
        default=None, description="Where marks, backups and sweeps run as jobs; without it they run in this process."
    )
    owner: str = Field(
        default="team:data-platform", description="Owner of the assets in the Dagster UI: team:NAME or an e-mail."
    )

    @field_validator("repositories")
    @classmethod
    def _repositories_can_be_marked(cls, repositories: tuple[str, ...]) -> tuple[str, ...]:
        """One that cannot would fail each tick of the schedule, for all."""
        for name in repositories:
            if not re.fullmatch(REPOSITORY_NAME, name):
                raise ValueError(
                    f"{name!r} is not the name of a repository; lakeFS's are 3 to 63 lower-case letters, digits and "
                    "hyphens, and do not begin with a hyphen"
                )
            if repositories.count(name) > 1:
                raise ValueError(f"{name!r} is there twice; write it once")
        return repositories

    @field_validator("work_url")
    @classmethod
    def _work_url_can_be_opened(cls, url: str) -> str:
        return checked_url(url, "file:///", "s3://", "s3a://")

    @field_validator("spark")
    @classmethod
    def _no_secrets_for_spark(cls, spark: dict[str, str]) -> dict[str, str]:
        """They would stand on the command line of the JVM, and in Dagster's history."""
        for name, value in spark.items():
            if looks_like_secret(name, value):
                raise ValueError(
                    f"{name} looks like a secret, and settings are shown; put it into spark-defaults.conf in "
                    "SPARK_CONF_DIR, or into the environment (SPARK_CONNECT_AUTHENTICATE_TOKEN)"
                )
        return spark

    @model_validator(mode="after")
    def _jobs_share_the_workspace(self) -> Self:
        if self.emr and not self.work_url:
            raise ValueError("emr needs work_url, a place that the jobs and this machine share: s3://bucket/prefix")
        if self.emr and "spark.remote" in self.spark:
            raise ValueError("spark.remote and emr exclude each other: a job on EMR has its own Spark")
        return self

    @field_validator("mounts")
    @classmethod
    def _mounts_end_in_slash(cls, mounts: dict[str, str]) -> dict[str, str]:
        for namespace_prefix, url in mounts.items():
            if not namespace_prefix.endswith("/") or not url.endswith("/"):
                raise ValueError(
                    f"mount {namespace_prefix!r} = {url!r}: both sides must end in '/', "
                    "or a sibling with a longer name would match"
                )
        return mounts

    def resolved_work_url(self) -> str:
        """``work_url``, or its default, without a final slash."""
        if self.work_url:
            return self.work_url.rstrip("/")
        home = Path(os.environ.get("DAGSTER_HOME") or Path.cwd() / ".dagster")
        # Not as_uri(): the stores and Spark take the path as it is written, blanks and all.
        return f"file://{(home / 'work').absolute()}"

    def locate(self, namespace: str) -> StoreLocation:
        """Where the store of a storage namespace is, seen from here: the longest mount that fits, else itself."""
        folder = namespace.rstrip("/") + "/"
        fitting = [prefix for prefix in self.mounts if folder.startswith(prefix)]
        if not fitting:
            return StoreLocation(folder)
        prefix = max(fitting, key=len)
        return StoreLocation(self.mounts[prefix] + folder.removeprefix(prefix))

    def reach(self, namespace: str) -> StoreLocation:
        """``locate``, for a namespace that is to be opened.

        Raises ``ConfigurationError`` for one on the server's own disk that no mount leads to.
        """
        location = self.locate(namespace)
        if location.url.startswith(_LOCAL):
            raise ConfigurationError(
                f"{namespace} is on the lakeFS server's own disk, and nothing says where that is from here",
                remedy=f'set `mounts` in {CONFIG_FILE}, e.g. mounts = {{"{_LOCAL}" = "file:///var/lakefs/data/"}}',
            )
        return location


def load_settings(file: Path | None = None) -> Settings:
    """Settings from ``file``, from where ``LAKEFS_GC_CONFIG`` points, from ``./lakefs-gc.toml``, or the defaults.

    Raises ``ConfigurationError`` for a file that is named but missing, does not parse, or has an unknown or bad
    setting.
    """
    named = file or (Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None)
    path = named or Path(CONFIG_FILE)
    if not path.exists():
        if named is None:
            return Settings()
        raise ConfigurationError(
            f"the configuration file {path} does not exist",
            remedy=f"create it, or correct --config or {CONFIG_VARIABLE}",
        )
    try:
        return Settings.model_validate(tomllib.loads(path.read_text("utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}", remedy="correct the file") from error
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {_plain(e['type'], e['msg'])}" for e in error.errors())
        raise ConfigurationError(
            f"{path}: {problems}", remedy="correct these settings; README, Configuration, lists all of them"
        ) from error


_PLAIN = {"extra_forbidden": "there is no such setting", "tuple_type": "write a list: [...]"}


def _plain(kind: str, message: str) -> str:
    """pydantic's words, or ours where its are those of a programmer."""
    return _PLAIN.get(kind, message.removeprefix("Value error, "))
