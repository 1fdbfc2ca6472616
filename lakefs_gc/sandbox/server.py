"""Run a sandbox in a thread of a test or demo, or in the foreground for the command line."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType

import uvicorn

from lakefs_gc.errors import ConfigurationError, ServerUnavailableError
from lakefs_gc.sandbox.app import create_app
from lakefs_gc.sandbox.auth import Credentials
from lakefs_gc.sandbox.clock import Clock, system_clock
from lakefs_gc.sandbox.context import Sandbox, SandboxOptions
from lakefs_gc.sandbox.gateway.app import Gateway
from lakefs_gc.storage.location import StoreLocation

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
_START_SECONDS = 30
_STOP_SECONDS = 30
_WARNING = "this is a sandbox for demos and tests, not a lakeFS server: do not store data in it that must be kept"


class SandboxServer:
    """A sandbox on a free port of this machine's loopback interface, for the duration of a ``with`` block.

    A new server on the same ``folder`` and ``store`` has all existing data. Its uploads go into a new slice, as after
    the restart of a lakeFS server.
    """

    def __init__(
        self,
        folder: Path,
        store: StoreLocation,
        *,
        credentials: Credentials | None = None,
        options: SandboxOptions | None = None,
        clock: Clock = system_clock,
        port: int = 0,
    ) -> None:
        """Create the server. ``port`` 0 selects a free port. For the other parameters see ``Sandbox``."""
        self._socket = _bound(LOOPBACK, port)
        try:
            self.sandbox = Sandbox(folder, store, credentials=credentials, options=options, clock=clock)
        except BaseException:
            self._socket.close()
            raise
        self._server = _server(self.sandbox)
        self._thread = threading.Thread(target=self._run, name="sandbox-server", daemon=True)

    @property
    def endpoint_url(self) -> str:
        """Return the URL that a lakeFS client takes as host, without ``/api/v1``."""
        return f"http://{LOOPBACK}:{self._socket.getsockname()[1]}"

    @property
    def access_key_id(self) -> str:
        """Return the user of HTTP basic authentication."""
        return self.sandbox.credentials.access_key_id

    @property
    def secret_access_key(self) -> str:
        """Return the password of HTTP basic authentication."""
        return self.sandbox.credentials.secret_access_key

    def __enter__(self) -> SandboxServer:
        """Start to answer. Raise ``ServerUnavailableError`` if the thread does not start."""
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        if not self._server.started:
            raise ServerUnavailableError(
                "The sandbox did not start", remedy="Read its log for the reason, then start it again"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Finish the running requests, and stop."""
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS)
        self._socket.close()
        self.sandbox.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])


def serve(
    host: str,
    port: int,
    folder: Path,
    store: StoreLocation,
    credentials: Credentials | None = None,
    *,
    options: SandboxOptions | None = None,
) -> None:
    """Run a sandbox in the foreground until SIGINT or SIGTERM, then finish the running requests.

    Raise ``ConfigurationError`` for a host that is not loopback, or for a port that is in use.
    """
    refuse_other_hosts(host)
    listener = _bound(host, port)
    try:
        sandbox = Sandbox(folder, store, credentials=credentials, options=options)
    except BaseException:
        listener.close()
        raise
    server = _server(sandbox)
    try:
        logger.warning(_WARNING)
        logger.info("sandbox listens url=http://%s:%d store=%s", host, listener.getsockname()[1], store.url)
        with _stopped_by_signals(server):
            server.run(sockets=[listener])
        logger.info("sandbox stopped")
    finally:
        listener.close()
        sandbox.close()


def refuse_other_hosts(host: str) -> None:
    """Raise ``ConfigurationError`` for an address that other machines can reach."""
    if not _is_loopback(host):
        raise ConfigurationError(
            f"{host} is not a loopback address, so the whole network could reach the sandbox",
            remedy=f"Use {LOOPBACK}",
        )


class _Server(uvicorn.Server):
    """A server that does not handle signals, because uvicorn ends the process before anything can be closed."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def _stopped_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Stop the server gracefully at the first SIGINT or SIGTERM, and immediately at the second."""

    def stop(number: int, frame: FrameType | None) -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _server(sandbox: Sandbox) -> uvicorn.Server:
    config = uvicorn.Config(
        Gateway(sandbox, create_app(sandbox)),
        log_config=None,  # the caller's logging; requests are logged by ``uvicorn.access``
        lifespan="off",
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    return _Server(config)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"Cannot listen on {host}:{port}: {error.strerror}", remedy="Choose another host or port"
        ) from None
    return listener


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
