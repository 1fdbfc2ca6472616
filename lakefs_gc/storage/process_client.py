"""The client of a store in each process: connections do not survive a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Client = TypeVar("Client")


class _Creation:
    """A lock, because boto3 permits one creation of a client at a time; a fork may copy it locked, so renew it."""

    lock = threading.Lock()

    @classmethod
    def renew(cls) -> None:
        cls.lock = threading.Lock()


os.register_at_fork(after_in_child=_Creation.renew)


class ProcessClient(Generic[Client]):
    """Creates the client of a store when a process first needs it, so that the store may be used after a fork."""

    def __init__(self, create: Callable[[], Client]) -> None:
        self._create = create
        self._clients: dict[int, Client] = {}

    def __call__(self) -> Client:
        """Return the client of this process. Raise what its creation raises."""
        pid = os.getpid()
        if pid not in self._clients:
            with _Creation.lock:
                if pid not in self._clients:
                    self._clients[pid] = self._create()
        return self._clients[pid]

    @property
    def created(self) -> Iterable[Client]:
        """Return the clients that exist, without creating one."""
        return list(self._clients.values())
