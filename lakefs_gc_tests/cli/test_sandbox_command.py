"""The options of ``lakefs-gc sandbox``, on a server that the command started."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import lakefs_sdk
import pytest
from lakefs_sdk.client import LakeFSClient as SDKClient
from lakefs_sdk.exceptions import ApiException

from lakefs_gc.cli.embedded_server import sandbox_options
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.differences import like_lakefs
from lakefs_gc_tests.support.commands import Run

_START_SECONDS = 60


@contextmanager
def started(folder: Path, *options: str) -> Iterator[SDKClient]:
    """Run the command, and give a client of its server with a repository ``lake``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "lakefs_gc", "sandbox", "--folder", str(folder), "--port", str(port), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            printed = dict(process.stdout.readline().strip().split("=", 1) for _ in range(3))
            until = time.monotonic() + _START_SECONDS
            while time.monotonic() < until:
                try:
                    httpx.get(f"http://127.0.0.1:{port}/api/v1/healthcheck")
                    break
                except httpx.TransportError:
                    time.sleep(0.1)
            client = SDKClient(
                lakefs_sdk.Configuration(
                    host=printed["LAKECTL_SERVER_ENDPOINT_URL"] + "/api/v1",
                    username=printed["LAKECTL_CREDENTIALS_ACCESS_KEY_ID"],
                    password=printed["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"],
                )
            )
            repository = lakefs_sdk.RepositoryCreation(name="lake", storage_namespace="local://lake")
            client.repositories_api.create_repository(repository)
            yield client
        finally:
            process.send_signal(signal.SIGINT)


def link(client: SDKClient, folder: Path, location: lakefs_sdk.StagingLocation) -> int:
    """Write an object at an issued address and link it; the status of the answer."""
    file = folder / "objects" / str(location.physical_address).removeprefix("local://")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x")
    body = lakefs_sdk.StagingMetadata(staging=location, checksum="c", size_bytes=1)
    try:
        client.staging_api.link_physical_address("lake", "main", "x", body)
    except ApiException as error:
        return int(error.status)
    return 200


def test_expiry_and_slices_can_be_tried_manually(tmp_path: Path) -> None:
    with started(tmp_path, "--grace-period", "7s", "--token-lifetime", "1s", "--slice-size", "1") as client:
        assert client.internal_api.get_garbage_collection_config().grace_period == 7
        issued = [client.staging_api.get_physical_address("lake", "main", "x") for _ in range(2)]
        assert len({str(location.physical_address).split("/")[-2] for location in issued}) == 2, "a slice for each"
        time.sleep(2.1)
        assert link(client, tmp_path, issued[0]) == 400


@pytest.mark.parametrize(("options", "again"), [((), 400), (("--like-lakefs",), 200)])
def test_a_link_is_used_twice_only_as_lakefs_lets_it(tmp_path: Path, options: tuple[str, ...], again: int) -> None:
    with started(tmp_path, *options) as client:
        location = client.staging_api.get_physical_address("lake", "main", "x")
        assert [link(client, tmp_path, location) for _ in range(2)] == [200, again]


def test_the_defaults_are_those_of_python() -> None:
    for is_like_lakefs, expected in ((False, SandboxOptions()), (True, like_lakefs())):
        options = sandbox_options(
            grace_period="1d", token_lifetime="", slice_age="1h", slice_size=50_000, is_like_lakefs=is_like_lakefs
        )
        assert options == expected


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--grace-period", "5", "is not a duration"),
        ("--grace-period", "0s", "less than a second"),
        ("--token-lifetime", "2d", "would outlive the grace period"),
        ("--slice-size", "0", "slice-size"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str, value: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = run("sandbox", option, value)
    assert (refused.exit_code, refused.out) == (2, "")
    assert reason in refused.err
    assert list(tmp_path.iterdir()) == []


def test_a_fraction_of_a_second_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"--token-lifetime 0\.1s is less than a second"):
        sandbox_options(grace_period="1d", token_lifetime="0.1s", slice_age="1h", slice_size=1, is_like_lakefs=False)
