"""Commands, and the demo's repository with a configuration that reaches it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakefs_gc.config import ServerCredentials
from lakefs_gc.demo.story import REPOSITORY, Storyteller
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.commands import run

__all__ = ["run"]


UNTIL_OLD_ENOUGH_SECONDS = 1.2


@pytest.fixture
def lake(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    connect_to_lakefs: Callable[..., LakeFSClient],
    small_spark_config: dict[str, str],
) -> Iterator[Storyteller]:
    """The repository of the demo on a sandbox, and a configuration that reaches it."""
    (tmp_path / "objects").mkdir()
    objects = StoreLocation((tmp_path / "objects").as_uri())
    options = SandboxOptions(grace_period_seconds=1)
    with SandboxServer(tmp_path / "state", objects, options=options) as server:
        connect_to_lakefs(server.endpoint_url, server.access_key_id, server.secret_access_key)
        spark = "\n".join(f'"{name}" = "{value}"' for name, value in small_spark_config.items())
        safety = "[safety]\nlongest_commit_minutes = 0"
        config = f'[mounts]\n"local://" = "{objects.folder_url}"\n{safety}\n[spark]\n{spark}\n'
        (tmp_path / "lakefs-gc.toml").write_text(config)
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("DAGSTER_HOME", raising=False)
        credentials = ServerCredentials(
            endpoint_url=server.endpoint_url,
            access_key_id=server.access_key_id,
            secret_access_key=server.secret_access_key,
        )
        teller = Storyteller(credentials, tmp_path / "upload")
        list(teller.tell(f"local://{REPOSITORY}", open_store(objects), "landing/x.csv", "local://landing/x.csv"))
        time.sleep(UNTIL_OLD_ENOUGH_SECONDS)
        yield teller
