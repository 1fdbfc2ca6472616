"""The S3 server of the demo."""

from __future__ import annotations

import importlib.metadata
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError

from lakefs_gc.errors import ConfigurationError, StoreUnavailableError
from lakefs_gc.sandbox import seaweedfs
from lakefs_gc.sandbox.seaweedfs import SeaweedFS


@pytest.fixture(autouse=True)
def _installed() -> None:
    try:
        seaweedfs.weed_program()
    except ConfigurationError as error:
        pytest.skip(error.message)


@pytest.mark.of_ci
def test_the_server_runs_keeps_its_data_and_ends(tmp_path: Path) -> None:
    with SeaweedFS(tmp_path, "the-key", "the-secret") as server:
        client = server.client()
        client.create_bucket(Bucket="bucket")
        client.put_object(Bucket="bucket", Key="a/b", Body=b"content")
        assert [bucket["Name"] for bucket in client.list_buckets()["Buckets"]] == ["bucket"]
        stranger = SeaweedFS(tmp_path, "the-key", "another-secret")
        stranger.endpoint = server.endpoint
        with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
            stranger.client().list_buckets()
        url = urlsplit(server.endpoint)
        assert url.hostname == "127.0.0.1"
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", url.port or 0)) != 0
    with SeaweedFS(tmp_path, "the-key", "the-secret") as server:
        assert server.client().get_object(Bucket="bucket", Key="a/b")["Body"].read() == b"content"


def test_a_server_that_does_not_start_is_an_error_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "weed"
    program.write_text("#!/bin/sh\necho the disk is on fire\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(seaweedfs, "weed_program", lambda: program)
    with pytest.raises(StoreUnavailableError, match="the disk is on fire"), SeaweedFS(tmp_path / "data"):
        pass


def test_a_missing_package_is_an_error_with_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", files)
    with pytest.raises(ConfigurationError, match="s3-demo"), SeaweedFS(tmp_path):
        pass
