"""Runs the embedded lakeFS-compatible server. Imported late: it needs the extra ``demo``."""

from __future__ import annotations

from pathlib import Path

from lakefs_gc.config import parse_duration_hours
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.sandbox.auth import new_credentials
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.differences import like_lakefs
from lakefs_gc.sandbox.server import refuse_other_hosts, serve
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.terminal.output import Output


def sandbox_options(
    *, grace_period: str, token_lifetime: str, slice_age: str, slice_size: int, is_like_lakefs: bool
) -> SandboxOptions:
    """Return the options of a sandbox from the texts of the command line.

    Durations are rounded to whole seconds, except the age of a slice. Raise ``ConfigurationError`` for a duration
    without a unit or of less than a second, and for links that outlive the grace period.
    """
    options = SandboxOptions(
        grace_period_seconds=_whole_seconds("--grace-period", grace_period),
        link_lifetime_seconds=_whole_seconds("--token-lifetime", token_lifetime) if token_lifetime else None,
        slice_seconds=parse_duration_hours(slice_age) * 3600,
        slice_size=slice_size,
    )
    return like_lakefs(options) if is_like_lakefs else options


def _whole_seconds(option: str, duration: str) -> int:
    seconds = parse_duration_hours(duration) * 3600
    if round(seconds) < 1:
        raise ConfigurationError(f"{option} {duration} is less than a second", remedy="Pass at least 1s")
    return round(seconds)


def serve_sandbox(
    out: Output, folder: Path, host: str, port: int, store_url: str = "", options: SandboxOptions | None = None
) -> None:
    """Run the sandbox until it is interrupted. Prints its address and its keys, which no other server accepts."""
    refuse_other_hosts(host)
    store = StoreLocation(store_url)
    if not store_url:
        objects = folder.absolute() / "objects"
        objects.mkdir(parents=True, exist_ok=True)
        store = StoreLocation(f"file://{objects}/")
    credentials = new_credentials()
    out.say(f"LAKECTL_SERVER_ENDPOINT_URL=http://{host}:{port}")
    out.say(f"LAKECTL_CREDENTIALS_ACCESS_KEY_ID={credentials.access_key_id}")
    out.say(f"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY={credentials.secret_access_key}")
    if store.url.startswith("file://"):
        out.say(
            f'Set in lakefs-gc.toml: mounts = {{"local://" = "{store.folder_url}"}}. Create namespaces that begin with local://'
        )
    else:
        out.say(f"Create namespaces below {store.folder_url}")
    serve(host, port, folder, store, credentials, options=options)
