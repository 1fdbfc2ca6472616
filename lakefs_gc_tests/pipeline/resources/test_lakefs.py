"""The resource of the lakeFS server passes the settings on to the client."""

from __future__ import annotations

import pytest

from lakefs_gc.config import LakeFSSettings, Settings
from lakefs_gc.pipeline.code_location import build_resources


@pytest.mark.parametrize(
    "timeouts", [LakeFSSettings(), LakeFSSettings(connect_timeout_seconds=3, read_timeout_seconds=7)]
)
def test_the_client_has_the_timeouts_of_the_settings(monkeypatch: pytest.MonkeyPatch, timeouts: LakeFSSettings) -> None:
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", "http://lakefs")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "key")
    resources = build_resources(Settings(lakefs=timeouts, work_url="file:///work"))
    assert resources["engine"].context().server.timeouts_seconds == timeouts.timeouts_seconds
