"""Everything that can be set, with its default and the reason for it.

Settings come from ``lakefs-gc.toml`` (in the working directory, or where ``LAKEFS_GC_CONFIG`` points).  Without a file
the defaults hold, and every default is the safe choice.  Credentials are never settings: lakeFS's come from
``LAKECTL_*`` variables or ``~/.lakectl.yaml``, the store's from its vendor's standard chain.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Literal, Self
from zoneinfo import ZoneInfo

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from lakefs_gc.config_section import Section, looks_like_secret
from lakefs_gc.emr_settings import EMRSettings
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.urls import has_credentials

CONFIG_VARIABLE = "LAKEFS_GC_CONFIG"
CONFIG_FILE = "lakefs-gc.toml"
_LOCAL = "local://"
REPOSITORY_NAME = "[a-z0-9][a-z0-9-]{2,62}"
"""lakeFS's own rule for the names of repositories, as a regular expression."""

SweepPolicy = Literal["manual", "after", "immediately"]
MANUAL: SweepPolicy = "manual"


def _checked_url(url: str, *schemes: str) -> str:
    """Empty, or one of these and more."""
    if url and not any(url.startswith(scheme) and url != scheme for scheme in schemes):
        raise ValueError(f"{url!r} does not begin with {' or '.join(schemes)}")
    return url


class Protections(Section):
    """What is kept beyond the server's retention rules.  Each can only keep more."""

    tags: tuple[str, ...] = Field(
        default=(), description='Patterns of tags, e.g. ["release-*"]: the commit of each such tag is active.'
    )
    branches: tuple[str, ...] = Field(
        default=(), description="Patterns of branches: every commit in the history of each such branch is active."
    )
    days: float = Field(
        default=0,
        ge=0,
        description="Every commit younger than this many days that a branch or a tag leads to is active, and so is "
        "what any metarange names that the store was given in these days: so commits of deleted branches are kept.  Of "
        "those, one is not kept whose metarange is older: its very content had been committed before.",
    )
    last_commits: int = Field(
        default=0, ge=0, description="The last so many commits of each branch, by first parents, are active."
    )
    path_prefixes: tuple[str, ...] = Field(
        default=(),
        description='Prefixes of paths, e.g. ["audit/"]: what any commit has there is never collected, however old the '
        "commit.",
    )

    @property
    def of_commits(self) -> bool:
        """Whether some commit may be protected."""
        return bool(self.tags or self.branches or self.days or self.last_commits)


class SafetyParameters(Section):
    """All timings and limits that keep live data safe (rule 11).  A smaller number is less safe unless it says so."""

    min_age_hours: float = Field(
        default=24.0,
        ge=0,
        description="Objects younger than this when the run starts are never candidates.  The server's grace period "
        "(24 h unless it was changed) is the floor: an upload link is valid that long, so a younger object "
        "may be waiting for its link.",
    )
    allow_min_age_below_grace: bool = Field(
        default=False,
        description="Let min_age_hours go below the server's grace period.  Only right when nobody uploads: an object "
        "that was uploaded and is not linked yet would be deleted.",
    )
    max_clock_skew_seconds: float = Field(
        default=300.0,
        gt=0,
        description="Refuse to run when this machine's clock and the store's differ by more (a greater number is less "
        "safe).  Five minutes is what S3 itself tolerates in signatures, within a factor of three.  It is asked when a "
        "run, a stage or a sweep begins.",
    )
    check_foreign_references: bool = Field(
        default=True,
        description="Read the metadata of every other repository that these credentials can see, and keep what they "
        "refer to by full address.  Costs a read of each of their ranges.  When it is off, each mark needs an override "
        "of other_repositories_were_read.",
    )
    repositories_not_read: tuple[str, ...] = Field(
        default=(),
        description="Names of other repositories whose store will never answer from here: they are not asked, and "
        "each mark warns that they may refer to its objects.  Only right when nothing was imported to them.  One "
        "that cannot be read and is not named here blocks every sweep.",
    )
    protect: Protections = Protections()
    longest_commit_minutes: float = Field(
        default=10.0,
        ge=0,
        description="No sweep looks again earlier than this, and twice max_clock_skew_seconds on top, after its mark "
        "was made: it waits.  While a commit is under way, what it takes along may be in no list (when its path was "
        "written anew meanwhile); a commit that lasts from the mark to the second look would hide it twice.  0 is no "
        "wait at all, and only right where nobody commits.",
    )
    max_marked_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="A mark of more than this share of the listed objects, or bytes, is not swept before a person has "
        "overridden the brake.",
    )
    share_counts_from_objects: int = Field(
        default=1000,
        ge=0,
        description="Marks of up to so many objects, and of up to share_counts_from_bytes, may be any share of a small "
        "repository.",
    )
    share_counts_from_bytes: int = Field(
        default=1024**3,
        ge=0,
        description="Marks of more bytes than this count for max_marked_share, however few their objects are.",
    )
    max_mark_age_days: float = Field(
        default=30.0, gt=0, description="An older mark is not swept before a person has overridden the brake."
    )
    head_sample_objects: int = Field(
        default=500,
        ge=0,
        description="How many objects that branches show are looked for in each mark, as a last check of all else.  "
        "With 0 each mark needs an override of no_head_object_marked.",
    )
    max_commits: int = Field(
        default=200_000,
        ge=0,
        description="Compute the active commits here too, and keep what either this or the server's list has, in "
        "repositories of up to so many commits: the server's own list leaves out commits that the rules retain, "
        "depending on the order of their ids.  Beyond that the server's list cannot be checked: each mark needs an "
        "override of server_list_is_complete, and protections of commits are refused.",
    )
    max_twin_lookups: int = Field(
        default=10_000,
        ge=0,
        description="How many paths of branches may be looked up to find objects that a branch shows and the server's "
        "uncommitted list leaves out.  Beyond that, objects that may be such are kept, and counted as shielded.",
    )
    max_uncommitted_pages: int = Field(
        default=100_000,
        gt=0,
        description="Give up when the server has not finished its uncommitted list after this many pages: a badly "
        "configured server hands out continuation tokens for ever.",
    )
    prepare_timeout_hours: float = Field(
        default=6.0,
        gt=0,
        description="How long the server may take to list the active commits before the run is given up.",
    )

    @property
    def two_clocks_apart(self) -> timedelta:
        """How far two clocks may be apart, each of which is off by ``max_clock_skew_seconds``."""
        return timedelta(seconds=2 * self.max_clock_skew_seconds)


class ListingSettings(Section):
    """Where the listing of the object store comes from, and how many requests it makes."""

    source: Literal["store", "inventory"] = Field(
        default="store",
        description="store: list the namespace, 1000 objects a request.  inventory: read the newest inventory report "
        "of S3, Azure or Google Cloud Storage, for namespaces whose listing takes too long or costs too much.",
    )
    mode: Literal["clean", "optimized", "auto"] = Field(
        default="clean",
        description="clean: list everything.  optimized: list young slices only, and take the old ones over from the "
        "run before, less what was swept; an error where that is not possible.  auto: optimized where possible.  "
        "An optimized run does not notice objects that others deleted from old slices.",
    )
    margin_hours: float = Field(
        default=168.0,
        gt=0,
        description="An optimized run lists again every slice that was younger than this at the run before: longer "
        "than any upload takes from its beginning, or from the moment that its address was handed out.",
    )
    optimized_runs: int = Field(
        default=10, ge=1, description="So many runs in a row may be optimized; the next one is clean."
    )
    inventory_url: str = Field(
        default="",
        description="With the source inventory: the folder with the reports of one configuration, e.g. "
        "s3://reports/prefix/<source bucket>/<configuration>.  They must cover the whole namespace: their "
        "configuration has no prefix, or one that the namespace begins with.",
    )
    max_inventory_age_hours: float = Field(
        default=48.0,
        gt=0,
        description="Refuse to run on an older report.  An old one is safe, but finds less garbage and has to look up "
        "more objects that were stored since.  Stores write a daily report within 48 hours.",
    )
    requests_at_once: int = Field(
        default=32,
        ge=1,
        le=64,
        description="The most list requests that one Spark task has under way.  It begins with 4, takes more while "
        "that makes it quicker, and half as many when the store says SlowDown.",
    )
    cut_after_pages: int = Field(
        default=24,
        ge=0,
        description="A prefix that has gone on for so many pages of 1000 objects may be cut into key ranges that are "
        "listed at once, which costs about ten requests a cut.  0: never cut.",
    )
    pages_per_range: int = Field(
        default=100,
        ge=0,
        description="A prefix that has gone on for so many pages (four times as many in each later round) is shared "
        "out to all tasks.  A slice of lakeFS has 20.  0: it stays one task's.",
    )

    @model_validator(mode="after")
    def _an_inventory_has_a_place(self) -> ListingSettings:
        if self.source == "inventory" and not self.inventory_url:
            raise ValueError('source = "inventory" needs inventory_url')
        return self


class SweepSettings(Section):
    """When and how a mark is swept."""

    policy: SweepPolicy = Field(
        default="manual",
        description="manual: a person materializes sweep_approval.  after: delay_hours after the "
        "mark was made.  immediately: as soon as the sensor sees the mark.",
    )
    delay_hours: float = Field(
        default=24.0, gt=0, description="With the policy 'after': how long a person has to look at the mark."
    )
    objects_per_request: int = Field(
        default=1000, ge=1, le=1000, description="Keys in one bulk delete; 1000 is the most that S3 takes."
    )
    requests_at_once: int = Field(
        default=16,
        ge=1,
        le=64,
        description="Bulk deletes under way at once in a Spark task, at most.  A task begins with few, takes on more "
        "while that is quicker, and takes back half when the store says SlowDown.",
    )
    max_requests_per_second: float = Field(
        default=0.0,
        ge=0,
        description="Ceiling on a sweep's requests to the store, all tasks together; 0 is none.  For a store that "
        "others use at the same time.",
    )
    objects_per_look: int = Field(
        default=100_000,
        ge=1,
        description="After so many objects a sweep looks again at what is referenced.",
    )
    max_look_age_minutes: float = Field(
        default=15.0,
        gt=0,
        description="No bulk delete is begun on the word of a look that began longer ago than this by the store's "
        "clock, however slow the store is and however long Spark's tasks wait; one that has begun may "
        "still be tried for a minute and a half.  What is left is looked at again; a sweep that can delete nothing in "
        "that time ends with an error, and sweeping again goes on.",
    )
    retries: int = Field(
        default=2, ge=0, description="How many times a sweep comes back to the deletes that the store refused."
    )
    retry_pause_seconds: float = Field(
        default=5.0, ge=0, description="How long it waits before that; twice as long each time."
    )
    delete_versions: bool = Field(
        default=False,
        description="In a bucket that keeps versions, delete every version and delete marker of a swept object, for "
        "good.  Nothing of S3's own brings them back then; a backup of ours does.  What was written again since the "
        "mark keeps all its versions.",
    )

    @property
    def policy_delay_hours(self) -> float:
        """How old a mark must be before the policy sweeps it."""
        return self.delay_hours if self.policy == "after" else 0.0


class BackupSettings(Section):
    """Copies of what a sweep deletes: the undo."""

    url: str = Field(
        default="",
        description="Where backups go: s3://bucket/prefix or file:///folder, outside every repository's namespace.  "
        "Without it nothing can be backed up.",
    )
    required_before_sweep: bool = Field(
        default=False, description="Refuse to sweep a mark that has no complete, verified backup."
    )
    keep_days: float = Field(
        default=30.0,
        gt=0,
        description="How long a backup is kept after the sweep of its mark (after it was made, for a mark that nobody "
        "approved).  Removed at the end of the next backup, or by `lakefs-gc backups --prune`, if its mark is found.",
    )
    copies_at_once: int = Field(
        default=8,
        ge=1,
        le=256,
        description="Copies that one Spark task has under way.  One that is streamed needs up to 40 MiB.",
    )

    @field_validator("url")
    @classmethod
    def _url_can_be_opened(cls, url: str) -> str:
        return _checked_url(url, "file:///", "s3://")


class ScheduleSettings(Section):
    """When the schedule marks each configured repository."""

    cron: str = Field(default="0 3 * * *", description="Cron expression, in the time zone of the schedule.")
    timezone: str = Field(default="UTC", description="IANA time zone of the cron expression.")

    @field_validator("timezone")
    @classmethod
    def _timezone_exists(cls, timezone: str) -> str:
        try:
            ZoneInfo(timezone)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"there is no time zone {timezone!r}; write one of IANA's, e.g. Europe/Berlin") from None
        return timezone


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
        default=10, ge=1, description="Runs of a repository whose DataFrames are kept in the work place."
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
        return _checked_url(url, "file:///", "s3://", "s3a://")

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
    def _jobs_share_the_work_place(self) -> Self:
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


class ServerCredentials(BaseModel):
    """Where the lakeFS server is, and the keys to it.  The secret is hidden when printed."""

    model_config = ConfigDict(frozen=True)

    endpoint_url: str
    access_key_id: str
    secret_access_key: str = Field(repr=False)


_VARIABLES = {
    "endpoint_url": "LAKECTL_SERVER_ENDPOINT_URL",
    "access_key_id": "LAKECTL_CREDENTIALS_ACCESS_KEY_ID",
    "secret_access_key": "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
}


def load_server_credentials(
    environment: Mapping[str, str] | None = None, home: Path | None = None
) -> ServerCredentials:
    """Credentials as ``lakectl`` finds them: its environment variables first, then ``~/.lakectl.yaml``.

    Raises ``ConfigurationError`` that names what is missing.
    """
    environment = os.environ if environment is None else environment
    file = (home or Path.home()) / ".lakectl.yaml"
    from_file = _read_lakectl_file(file)
    values = {field: environment.get(variable) or from_file.get(field, "") for field, variable in _VARIABLES.items()}
    missing = [_VARIABLES[field] for field, value in values.items() if not value]
    if missing:
        raise ConfigurationError(
            f"the lakeFS server is not configured: {', '.join(missing)} not set, and not in {file.name} either",
            remedy="set these variables, or run `lakectl config`",
        )
    return ServerCredentials(**{**values, "endpoint_url": server_root(values["endpoint_url"])})


def server_root(url: str) -> str:
    """The server's address without ``/api/v1``, which lakectl accepts with and without.

    Raises ``ConfigurationError`` for what is no URL, or has credentials in it: addresses are shown and logged.
    """
    url = url.strip()
    if has_credentials(url):
        raise ConfigurationError(
            "the lakeFS endpoint has credentials in its URL",
            remedy="remove what is before the @; the keys go to LAKECTL_CREDENTIALS_*",
        )
    if not re.match(r"https?://[^/]", url):
        raise ConfigurationError(
            # Not what it is: whoever mixes the settings up has the secret in it.
            "the lakeFS endpoint is not a URL",
            remedy="set LAKECTL_SERVER_ENDPOINT_URL; it must start with http:// or https://, and name a host",
        )
    return re.sub(r"(?<!:/)/api/v1/?$", "", url).rstrip("/")


def _read_lakectl_file(file: Path) -> dict[str, str]:
    if not file.exists():
        return {}
    try:
        content = yaml.safe_load(file.read_text("utf-8")) or {}
        credentials, server = content.get("credentials") or {}, content.get("server") or {}
        found = {
            "endpoint_url": server.get("endpoint_url"),
            "access_key_id": credentials.get("access_key_id"),
            "secret_access_key": credentials.get("secret_access_key"),
        }
    except (yaml.YAMLError, AttributeError, UnicodeDecodeError, RecursionError):
        # The parser's own message would quote the file, and with it the secret.
        raise ConfigurationError(f"{file} is not a lakectl configuration", remedy="run `lakectl config`") from None
    return {field: str(value) for field, value in found.items() if value}


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd])")
_HOURS = {"s": 1 / 3600, "m": 1 / 60, "h": 1.0, "d": 24.0}


def parse_duration_hours(text: str) -> float:
    """Hours from ``90m``, ``6h``, ``2d`` or ``30s``.  Raises ``ConfigurationError``: a bare number has no unit."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(
            f"{text!r} is not a duration", remedy="write a number and its unit, e.g. 30s, 90m, 6h or 2d"
        )
    return float(match[1]) * _HOURS[match[2]]
