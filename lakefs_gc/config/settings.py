"""The settings of a code location, with their defaults, and how they are loaded.

Settings come from ``lakefs-gc.toml`` (where ``LAKEFS_GC_CONFIG`` points, in the working directory, or in
``DAGSTER_HOME``). Without a file
the defaults apply, and every default is the safe choice. Credentials are never settings: those of lakeFS come from
``LAKECTL_*`` variables or ``~/.lakectl.yaml``, those of the store from its vendor's standard chain.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from lakefs_gc.config.backup import BackupSettings
from lakefs_gc.config.emr import EMRSettings
from lakefs_gc.config.lakefs import LakeFSSettings
from lakefs_gc.config.listing import ListingSettings
from lakefs_gc.config.metrics import MetricsSettings
from lakefs_gc.config.notify import NotifySettings
from lakefs_gc.config.safety import SafetyParameters
from lakefs_gc.config.schedule import ScheduleSettings
from lakefs_gc.config.section import Section, checked_url, looks_like_secret
from lakefs_gc.config.sweep import SweepSettings
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage.location import StoreLocation

CONFIG_VARIABLE = "LAKEFS_GC_CONFIG"
CONFIG_FILE = "lakefs-gc.toml"
_LOCAL = "local://"
_NOT_A_WORKSPACE = r"(gs|abfss?|wasbs?|adl|https?|hdfs|dbfs)://?"
"""The beginning of a URL of Azure's or Google's store, or of Hadoop's own file systems."""
REPOSITORY_NAME = "[a-z0-9][a-z0-9-]{2,62}"
"""lakeFS's own rule for names of repositories, as a regular expression."""


class Settings(Section):
    """The whole configuration of one code location."""

    repositories: tuple[str, ...] = Field(
        default=(),
        description="Names of the repositories that the schedule marks. Other repositories can be marked manually.",
    )
    work_url: str = Field(
        default="",
        description="Workspace: the folder for the Parquet files of each run, which every machine of Spark must reach. "
        "file:///folder, s3://bucket/prefix, or s3a://bucket/prefix if Spark has Hadoop's S3A client. Set it if Spark "
        "runs on more than one machine. Empty: the folder `work` below DAGSTER_HOME, or below .dagster in the working "
        "directory.",
    )
    keep_runs: int = Field(
        default=10,
        ge=1,
        description="Number of runs per repository with Parquet files that stay in the workspace. A larger value needs "
        "more disk space; a smaller one removes sooner the tables that an optimized listing reads.",
    )
    max_range_cache_bytes: int = Field(
        default=10 * 1024**3,
        ge=0,
        description="Bytes below work_url for a cache of the ranges that runs have read, about 40 bytes per entry. The "
        "next run then reads only new ranges. The least recently used ranges are removed first. While a stage runs, "
        "each of its tasks may exceed the limit by 32 MiB. A smaller value makes runs slower, not less safe. 0: no "
        "cache.",
    )
    mounts: dict[str, str] = Field(
        default_factory=dict,
        description="URLs under which this machine reaches storage namespaces whose own URL does not work here: maps a "
        'prefix of the namespace to a URL, e.g. {"local://": "file:///var/lakefs/data/"} for a server with a local '
        "store. Both must end in a slash. Check a new mount with `lakefs-gc doctor`.",
    )
    safety: SafetyParameters = Field(
        default=SafetyParameters(), description="All timings and limits that keep live data safe."
    )
    lakefs: LakeFSSettings = Field(default=LakeFSSettings(), description="How long to wait for the lakeFS server.")
    listing: ListingSettings = Field(
        default=ListingSettings(), description="Where the listing comes from, and how many requests it makes."
    )
    sweep: SweepSettings = Field(default=SweepSettings(), description="When and how a mark is swept.")
    backup: BackupSettings = Field(
        default=BackupSettings(), description="Verified copies of the objects that a sweep deletes."
    )
    schedule: ScheduleSettings = Field(
        default=ScheduleSettings(), description="When the schedule marks each configured repository."
    )
    notify: NotifySettings = Field(
        default=NotifySettings(),
        description="Who is notified when a mark waits for approval, a check or a run failed, or a mark was swept.",
    )
    metrics: MetricsSettings = Field(
        default=MetricsSettings(),
        description="Where metrics for Prometheus go, from the records of all marks.",
    )
    spark: dict[str, str] = Field(
        default_factory=dict,
        description='Spark configuration properties, e.g. {"spark.master": "local[8]", "spark.driver.memory": "8g"}. '
        "Secrets are refused: put them into spark-defaults.conf or the environment.",
    )
    emr: EMRSettings | None = Field(
        default=None,
        description="Run marks, backups and sweeps as jobs on Amazon EMR. Without this table they run in the process "
        "of Dagster or of the command line.",
    )
    owner: str = Field(
        default="team:data-platform",
        description="Owner of the assets in the Dagster UI: team:NAME or an e-mail address.",
    )

    @field_validator("repositories")
    @classmethod
    def _repositories_can_be_marked(cls, repositories: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse invalid names: one of them would fail each tick of the schedule, for all repositories."""
        for name in repositories:
            if not re.fullmatch(REPOSITORY_NAME, name):
                raise ValueError(
                    f"{name!r} is not the name of a repository. A name has 3 to 63 lower-case letters, digits and "
                    "hyphens, and does not begin with a hyphen"
                )
            if repositories.count(name) > 1:
                raise ValueError(f"{name!r} is listed twice. Write it once")
        return repositories

    @field_validator("work_url")
    @classmethod
    def _work_url_can_be_opened(cls, url: str) -> str:
        if re.match(_NOT_A_WORKSPACE, url, re.IGNORECASE):
            raise ValueError(
                f"{url!r} is in a store where Spark's workspace cannot be. Use a folder that every machine of Spark "
                "sees at the same path, e.g. a share of Azure Files or Filestore, or a volume of Databricks: "
                "file:///folder. See docs/guides/clusters.md"
            )
        return checked_url(url, "file:///", "s3://", "s3a://")

    @field_validator("spark", mode="before")
    @classmethod
    def _spark_values_are_text(cls, spark: object) -> object:
        """Write numbers and booleans as Spark does. Dagster turns text of a component's YAML into them, also "4"."""
        if not isinstance(spark, Mapping):
            return spark
        return {
            name: str(value).lower() if isinstance(value, bool | int | float) else value
            for name, value in spark.items()
        }

    @field_validator("spark")
    @classmethod
    def _no_secrets_for_spark(cls, spark: dict[str, str]) -> dict[str, str]:
        """Refuse secrets: they would appear on the command line of the JVM and in Dagster's history."""
        for name, value in spark.items():
            if looks_like_secret(name, value):
                raise ValueError(
                    f"{name} looks like a secret, and settings are shown in Dagster. Put it into spark-defaults.conf "
                    "in SPARK_CONF_DIR, or into the environment (SPARK_CONNECT_AUTHENTICATE_TOKEN)"
                )
        return spark

    @model_validator(mode="after")
    def _jobs_share_the_workspace(self) -> Self:
        if self.emr and not self.work_url:
            raise ValueError("emr needs work_url, a location that the jobs and this machine share: s3://bucket/prefix")
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
        """Return ``work_url``, or its default, without a final slash."""
        if self.work_url:
            return self.work_url.rstrip("/")
        home = Path(os.environ.get("DAGSTER_HOME") or Path.cwd() / ".dagster")
        # Not as_uri(): the stores and Spark read the path as it is written, including blanks.
        return f"file://{(home / 'work').absolute()}"

    def locate(self, namespace: str) -> StoreLocation:
        """Return where this machine reaches a storage namespace: through the longest matching mount, or directly.

        A mount matches each spelling that lakeFS reads as the same (``s3://me@bucket/``).
        """
        prefix, rest = matching_mount(namespace, self.mounts)
        return StoreLocation(self.mounts[prefix] + rest if prefix else rest)

    def reach(self, namespace: str) -> StoreLocation:
        """Return the location of a namespace that is to be opened.

        Raise ``ConfigurationError`` if it is on the server's own disk and no mount matches.
        """
        location = self.locate(namespace)
        if location.url.startswith(_LOCAL):
            raise ConfigurationError(
                f"{namespace} is on the lakeFS server's own disk, and no mount leads to it from this machine",
                remedy=f'Set `mounts` in {CONFIG_FILE}, e.g. mounts = {{"{_LOCAL}" = "file:///var/lakefs/data/"}}',
            )
        return location


def matching_mount(namespace: str, mounts: Collection[str]) -> tuple[str, str]:
    """Return the longest of ``mounts`` (prefixes) that matches a namespace, and the rest of the namespace after it.

    Without a match, return an empty prefix and the whole namespace. Each ends in a slash.
    """
    folder = namespace.rstrip("/") + "/"
    if not mounts:
        return "", folder
    from lakefs_gc.formats.address_readings import other_readings  # imports pyarrow, which `--help` does not need

    for spelling in (folder, *(f"{reading.rstrip('/')}/" for reading in other_readings(folder))):
        if matching := [prefix for prefix in mounts if spelling.startswith(prefix)]:
            prefix = max(matching, key=len)
            return prefix, spelling.removeprefix(prefix)
    return "", folder


def load_settings(file: Path | None = None) -> Settings:
    """Return the settings from ``file``, from ``LAKEFS_GC_CONFIG``, or from ``lakefs-gc.toml``, or the defaults.

    ``lakefs-gc.toml`` is the one in the working directory, or else the one in ``DAGSTER_HOME``.


    Raise ``ConfigurationError`` if a named file is missing, cannot be parsed, or has an unknown or invalid setting.
    """
    named = file or (Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None)
    home = os.environ.get("DAGSTER_HOME")
    path = named or Path(CONFIG_FILE)
    if named is None and home and not path.exists():
        path = Path(home).expanduser() / CONFIG_FILE
    if not path.exists():
        if named is None:
            return Settings()
        raise ConfigurationError(
            f"The configuration file {path} does not exist",
            remedy=f"Create it, or correct --config or {CONFIG_VARIABLE}",
        )
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}", remedy="Correct the file") from error
    return settings_from(content, path)


def settings_from(content: Mapping[str, Any], source: object) -> Settings:
    """Return settings from their values. Raise ``ConfigurationError``, which names ``source`` and each problem."""
    try:
        return Settings.model_validate(dict(content))
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {_plain(e['type'], e['msg'])}" for e in error.errors())
        raise ConfigurationError(
            f"{source}: {problems}",
            remedy="Correct these settings. The configuration reference in the documentation lists all of them",
        ) from error


_PLAIN = {"extra_forbidden": "Unknown setting", "tuple_type": "Write a list: [...]"}


def _plain(kind: str, message: str) -> str:
    """Return pydantic's message, or one that users of the settings understand better."""
    return _PLAIN.get(kind, message.removeprefix("Value error, "))
