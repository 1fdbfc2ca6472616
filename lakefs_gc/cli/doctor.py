"""Checks what a run needs: ``lakefs-gc doctor``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

from lakefs_gc.config import ServerCredentials, Settings
from lakefs_gc.engine.records.backups.location import open_backup_location
from lakefs_gc.engine.run import effective_min_age_seconds, refuse_overlaps
from lakefs_gc.engine.spark.compat import examine_spark
from lakefs_gc.engine.spark.java import ensure_java, java_version
from lakefs_gc.engine.workspace.range_cache import METADATA_FOLDER
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import AccessDeniedError, LakeFSGCError
from lakefs_gc.formats.addresses import normalize_namespace
from lakefs_gc.formats.ids import is_shard, is_slice_id
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.lakefs.models import Repository
from lakefs_gc.lakefs.server_version import LEAST_VERSION_TEXT, is_new_enough
from lakefs_gc.pipeline.automation.cron import refuse_cron
from lakefs_gc.pipeline.instances import configured_instance, traits
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.freed_space import freed_space, hides_versions
from lakefs_gc.storage.open import open_store
from lakefs_gc.terminal.findings import Finding, Verdict
from lakefs_gc.units import human_duration

_PROBE_FOLDER = "_lakefs/retention/gc/"
_SPACE = "space after deletes"
_OPTIMIZED = "optimized listings"
_DATA = "data/"


def examine(
    settings: Settings, find_credentials: Callable[[], ServerCredentials], repository: str = ""
) -> list[Finding]:
    """Check Spark, Java, the Dagster instance, the lakeFS server and, with a repository, its namespace and its store.

    Changes nothing, except that it writes and deletes a probe object in the folder of the reports, and that Dagster
    creates its database in a new ``DAGSTER_HOME``.
    """
    findings = [_spark(settings), _java(), *_dagster(), _schedule(settings)]
    try:
        server = LakeFSClient(find_credentials(), settings.lakefs)
        version = server.version()
        findings.append(Finding("lakeFS", "ok", f"{server.endpoint_url}, version {version}"))
        findings.append(_version(version))
        findings.append(_grace_period(server, settings))
        if repository:
            findings += _repository(server, settings, server.repository(repository))
    except LakeFSGCError as error:
        findings.append(_failed("lakeFS", error))
    return findings


def _spark(settings: Settings) -> Finding:
    try:
        detail, remedy = examine_spark(connect="spark.remote" in settings.spark)
    except LakeFSGCError as error:
        return _failed("Spark", error)
    return Finding("Spark", "warn" if remedy else "ok", detail, remedy)


def _java() -> Finding:
    try:
        home = ensure_java()
    except LakeFSGCError as error:
        return _failed("Java", error)
    return Finding("Java", "ok", f"version {java_version(home / 'bin' / 'java')} in {home}")


def _dagster() -> Iterator[Finding]:
    check = "Dagster instance"
    try:
        with configured_instance() as instance:
            if instance is None:
                yield Finding(
                    check,
                    "warn",
                    "none: DAGSTER_HOME is not set. Each command works in a temporary folder and keeps nothing there",
                    "run `lakefs-gc init`, and set DAGSTER_HOME as it says",
                )
                return
            found = list(traits(instance))
    except LakeFSGCError as error:
        yield _failed(check, error)
        return
    if not any(trait.remedy for trait in found):
        yield Finding(check, "ok", "; ".join(trait.detail for trait in found))
    for trait in found:
        if trait.remedy:
            yield Finding(check, "warn", trait.detail, trait.remedy)


def _schedule(settings: Settings) -> Finding:
    def examine_schedule() -> tuple[Verdict, str]:
        refuse_cron(settings.schedule.cron)
        return "ok", f"{settings.schedule.cron} ({settings.schedule.timezone})"

    return _attempt("schedule", examine_schedule)


def _version(version: str) -> Finding:
    check, needed = "lakeFS version", f"lakefs-gc needs {LEAST_VERSION_TEXT} or newer"
    match is_new_enough(version):
        case True:
            return Finding(check, "ok", f"{version}; {needed}")
        case False:
            return Finding(check, "fail", f"{version}; {needed}", "upgrade the lakeFS server")
        case _:
            detail = f"{version!r} is not a version of lakeFS, so whether it is new enough is unknown; {needed}"
            return Finding(check, "warn", detail, "compare the version of the server manually")


def _grace_period(server: LakeFSClient, settings: Settings) -> Finding:
    grace_seconds, min_age_hours = server.grace_period_seconds(), settings.safety.min_age_hours
    try:
        effective_hours = effective_min_age_seconds(settings.safety, grace_seconds) / 3600
    except LakeFSGCError as error:
        return _failed("grace period", error)
    detail = f"{human_duration(grace_seconds)} on the server; minimum age {human_duration(effective_hours * 3600)}"
    if effective_hours != min_age_hours:
        detail += f", raised from {human_duration(min_age_hours * 3600)}"
    if effective_hours * 3600 < grace_seconds:
        return Finding(
            "grace period",
            "warn",
            detail,
            "objects that are being uploaded may be deleted: ensure that no client uploads",
        )
    return Finding("grace period", "ok", detail)


def _repository(server: LakeFSClient, settings: Settings, repository: Repository) -> Iterator[Finding]:
    if repository.read_only:
        yield Finding(
            "repository",
            "fail",
            f"{repository.name} is read-only",
            "objects of a read-only repository cannot be deleted",
        )
        return
    yield Finding("repository", "ok", f"{repository.name} at {repository.storage_namespace}")
    yield _rules(server, repository)
    yield _attempt("other repositories", lambda: _other_repositories(server, settings, repository))
    namespace = normalize_namespace(repository.storage_namespace)
    location = settings.reach(namespace)
    try:
        store = open_store(location)
        levels, _ = store.list_level("")
    except LakeFSGCError as error:
        yield _failed("store: list", error)
        return
    yield Finding("store: list", "ok", f"{location.folder_url} ({', '.join(levels) or 'empty'})")
    try:
        folders, _ = store.list_level(_DATA)
        yield _optimized_listings(folders, settings)
    except LakeFSGCError as error:
        yield _failed(_OPTIMIZED, error)
    yield _attempt("store: read", lambda: _read(store, server, repository))
    yield _attempt("store: write and delete", lambda: _write_and_delete(store))
    yield _clock(store, settings)
    yield _space_after_deletes(store, settings, namespace)
    yield _backups(settings, server)


def _optimized_listings(folders: list[str], settings: Settings) -> Finding:
    """Return whether the layout of the namespace lets a listing be optimized. ``folders`` are those below ``data/``."""
    names = [folder.removeprefix(_DATA).rstrip("/") for folder in folders]
    shards = sorted(filter(is_shard, names))
    slices = sum(map(is_slice_id, names))
    mode = settings.listing.mode
    if not shards:
        return Finding(_OPTIMIZED, "ok", f"possible: number of slices {slices:,}, no shards (listing.mode is {mode})")
    layout = f"the namespace is sharded: number of shards {len(shards):,} (data/{shards[0]}/), of slices {slices:,}"
    if mode == "clean" or settings.listing.source != "store":
        return Finding(_OPTIMIZED, "ok", f"{layout}; an optimized listing lists all shards in full")
    verdict: Verdict = "fail" if mode == "optimized" and not slices else "warn"
    return Finding(
        _OPTIMIZED,
        verdict,
        f"{layout}; listing.mode is {mode}, but every listing lists all shards in full",
        'set mode = "clean" in [listing]. To make listings cheaper, use an inventory report (listing.source)',
    )


def _rules(server: LakeFSClient, repository: Repository) -> Finding:
    rules = server.retention_rules(repository.name)
    if rules is None:
        return Finding(
            "retention rules",
            "warn",
            "none: every commit is active, so only objects that were never committed are collected",
            "to have deleted data expire, set rules with `lakectl gc set-config`",
        )
    branches = ", ".join(f"{branch} {days} d" for branch, days in sorted(rules.branches.items()))
    return Finding(
        "retention rules", "ok", f"default {rules.default_retention_days} d; {branches or 'no rules for branches'}"
    )


def _other_repositories(server: LakeFSClient, settings: Settings, repository: Repository) -> tuple[Verdict, str]:
    refuse_overlaps(repository, server.other_repositories(repository.name), settings)
    return "ok", "no other visible repository shares the namespace"


def _read(store: ObjectStore, server: LakeFSClient, repository: Repository) -> tuple[Verdict, str]:
    """Read what must exist: a folder that is not mounted is empty, like that of a new repository."""
    heads = server.heads_of(repository.name, repository.default_branch)
    metarange_id = server.metarange_of(repository.name, heads[repository.default_branch])
    if not metarange_id:
        return "ok", f"nothing to read yet: branch {repository.default_branch} has no objects"
    key = f"{METADATA_FOLDER}{metarange_id}"
    store.read(key)
    return "ok", f"read {key}"


def _write_and_delete(store: ObjectStore) -> tuple[Verdict, str]:
    key = f"{_PROBE_FOLDER}lakefs-gc-doctor-{uuid4().hex}"
    store.put(key, b"lakefs-gc doctor")
    (deletion,) = store.delete_many([key])
    if deletion.error:
        raise AccessDeniedError(
            f"{key} was written, but cannot be deleted: {deletion.error}",
            remedy="allow deletes in the namespace (docs/reference/permissions.md), and remove the object",
        )
    return "ok", f"below {_PROBE_FOLDER}"


def _clock(store: ObjectStore, settings: Settings) -> Finding:
    skew_seconds = abs((store.now() - utc_now()).total_seconds())
    limit_seconds = settings.safety.max_clock_skew_seconds
    detail = f"the store's clock and this machine's are {skew_seconds:.1f} s apart (limit {limit_seconds:g} s)"
    if skew_seconds > limit_seconds:
        return Finding("clock", "fail", detail, "synchronize the clock of this machine or of the store")
    return Finding("clock", "ok", detail)


def _space_after_deletes(store: ObjectStore, settings: Settings, namespace: str = "") -> Finding:
    """Return whether the store keeps the bytes of deleted objects: versioning, soft delete or object lock."""
    space = freed_space(store, namespace)
    if namespace and settings.sweep.delete_versions and hides_versions(store, namespace):
        return Finding(
            _SPACE,
            "fail",
            f"{space.why}. sweep.delete_versions is set, and lakefs-gc refuses to sweep",
            "remove this mount, or set sweep.delete_versions to false",
        )
    if space.state == "freed at once":
        return Finding(_SPACE, "ok", str(space))
    if space.state == "unknown":
        return Finding(
            _SPACE,
            "warn",
            f"unknown whether it is freed: {space.why}",
            "allow it (docs/reference/permissions.md), or check the versioning of the bucket or container manually",
        )
    if not store.deletes_versions:
        rule = "add a lifecycle rule that deletes noncurrent versions, or wait until the store deletes them"
        if not settings.sweep.delete_versions:
            return Finding(_SPACE, "warn", f"not freed: {space.why}", rule)
        return Finding(
            _SPACE,
            "fail",
            f"not freed: {space.why}. sweep.delete_versions is set, but lakefs-gc does not delete versions in this "
            "store, and refuses to sweep",
            f"set sweep.delete_versions to false, and {rule}",
        )
    if settings.sweep.delete_versions:
        return Finding(_SPACE, "ok", f"freed by deleting all versions (sweep.delete_versions): {space.why}")
    return Finding(
        _SPACE,
        "warn",
        f"not freed: {space.why}",
        "add a lifecycle rule that expires noncurrent versions, or set sweep.delete_versions. With the latter, only a "
        "backup can restore deleted objects",
    )


def _backups(settings: Settings, server: LakeFSClient) -> Finding:
    if not settings.backup.url and not settings.backup.required_before_sweep:
        return Finding(
            "backups",
            "warn",
            "none: backup.url is not set, so objects that a sweep deletes cannot be restored",
            "set url in [backup] to a location that no repository uses, and required_before_sweep = true",
        )
    return _attempt("backups", lambda: _write_backup(settings, server))


def _write_backup(settings: Settings, server: LakeFSClient) -> tuple[Verdict, str]:
    location = open_store(open_backup_location(settings, server))
    probe = f".lakefs-gc-doctor-{uuid4().hex}"
    location.put(probe, b"lakefs-gc doctor")
    (deletion,) = location.delete_many([probe])
    if deletion.error:
        raise AccessDeniedError(
            f"{probe} was written to {settings.backup.url}, but cannot be deleted: {deletion.error}",
            remedy="allow deletes there, because expired backups are removed, and remove the object",
        )
    required = ", required before a sweep" if settings.backup.required_before_sweep else ""
    return "ok", f"in {settings.backup.url}, kept for {settings.backup.keep_days:g} days{required}"


def _attempt(check: str, examine_one: Callable[[], tuple[Verdict, str]]) -> Finding:
    try:
        verdict, detail = examine_one()
    except LakeFSGCError as error:
        return _failed(check, error)
    return Finding(check, verdict, detail)


def _failed(check: str, error: LakeFSGCError) -> Finding:
    return Finding(check, "fail", error.message, error.remedy)
