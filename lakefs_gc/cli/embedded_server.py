"""Runs the embedded lakeFS-compatible server. Imported late: it needs the extra ``demo``."""

from __future__ import annotations

from pathlib import Path

from lakefs_gc.sandbox.auth import new_credentials
from lakefs_gc.sandbox.server import refuse_other_hosts, serve
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.terminal.output import Output


def serve_sandbox(out: Output, folder: Path, host: str, port: int, store_url: str = "") -> None:
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
    serve(host, port, folder, store, credentials)
