"""A server with TLS that answers each connection in the same way."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serving_with_tls(certificate: Path, key: Path, answer: bytes) -> Iterator[str]:
    """Answer requests on a port of 127.0.0.1. Yields its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as plain, context.wrap_socket(plain, server_side=True) as server:

        def accept() -> None:
            while True:
                try:
                    with server.accept()[0] as connection:
                        connection.recv(65536)
                        connection.sendall(answer)
                except ssl.SSLError:  # the client does not trust the certificate
                    continue
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"https://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
