"""One running sandbox: its settings and its parts, as the modules of operations use them."""

from __future__ import annotations

import secrets
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from lakefs_gc.sandbox.addresses import AddressProvider, AddressSigner
from lakefs_gc.sandbox.auth import Authenticator, Credentials, new_credentials
from lakefs_gc.sandbox.clock import Clock, system_clock
from lakefs_gc.sandbox.committed import Committed, RangeLimits
from lakefs_gc.sandbox.database import Database
from lakefs_gc.sandbox.namespaces import Namespaces
from lakefs_gc.sandbox.problems import read_only
from lakefs_gc.sandbox.refs import Refs, Repository
from lakefs_gc.sandbox.staging import Staging
from lakefs_gc.sandbox.tasks import Tasks
from lakefs_gc.storage.base import StoreLocation

_DATABASE_FILE = "sandbox.sqlite"
_BACKGROUND_THREADS = 4
_DAY_SECONDS = 86_400


@dataclass(frozen=True)
class SandboxOptions:
    """What may differ from a lakeFS server's own settings; every default is lakeFS's.

    ``grace_period_seconds`` is what the server tells collectors, and how long a link token holds (a day if it is
    0, as for a demo); ``single_use_links`` refuses the second use of one, which lakeFS does not.  A page of
    prepare_uncommited ends after ``uncommitted_page_bytes`` of addresses or ``uncommitted_page_seconds``.
    """

    grace_period_seconds: int = _DAY_SECONDS
    slice_seconds: float = 3600.0
    slice_size: int = 50_000
    single_use_links: bool = False
    range_limits: RangeLimits = field(default_factory=RangeLimits)
    uncommitted_page_bytes: int = 20 << 20
    uncommitted_page_seconds: float = 60.0


class Sandbox:
    """The parts of a sandbox.  Its state is in ``folder`` and in the store; both together survive a
    restart.
    """

    def __init__(
        self,
        folder: Path,
        store: StoreLocation,
        *,
        credentials: Credentials | None = None,
        options: SandboxOptions | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """Without ``credentials``, those of the folder's last run are used, or made up and kept there.

        Raises ``ConfigurationError`` for a store that a sandbox cannot use.
        """
        self.options = options or SandboxOptions()
        self.clock = clock
        self.namespaces = Namespaces(store)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.database = Database(folder / _DATABASE_FILE)
        made_up = new_credentials()
        self.credentials = credentials or Credentials(
            self.database.setting("access_key_id", made_up.access_key_id),
            self.database.setting("secret_access_key", made_up.secret_access_key),
        )
        self.secret = self.database.setting("secret", secrets.token_hex(32))
        self.refs = Refs(self.database)
        self.staging = Staging(self.database)
        self.tasks = Tasks(self.database, clock)
        self.tasks.fail_unfinished()
        self.authenticator = Authenticator(self.credentials, self.secret, clock)
        self.addresses = AddressProvider(
            clock, slice_seconds=self.options.slice_seconds, slice_size=self.options.slice_size
        )
        self.signer = AddressSigner(self.secret, clock, lifetime_seconds=self.options.grace_period_seconds or 86_400)
        self._committed: dict[str, Committed] = {}
        self._locks: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        self._guard = threading.Lock()
        self._background = ThreadPoolExecutor(_BACKGROUND_THREADS, thread_name_prefix="sandbox-task")

    def lock(self, repository: Repository) -> threading.RLock:
        """Held by everything that moves a branch of the repository, for as long as it takes."""
        with self._guard:
            return self._locks[repository.name]

    def committed(self, repository: Repository) -> Committed:
        """The committed data of a repository."""
        with self._guard:
            if repository.folder not in self._committed:
                store = self.namespaces.store(repository.folder)
                self._committed[repository.folder] = Committed(store, self.options.range_limits)
            return self._committed[repository.folder]

    def now_seconds(self) -> int:
        """Whole seconds since 1970."""
        return int(self.clock().timestamp())

    def in_background(self, task: Callable[[], None]) -> Future[None]:
        """Run a task beside the requests; it stores its own outcome."""
        return self._background.submit(task)

    def close(self) -> None:
        """Finish what runs in the background, and let go of the database."""
        self._background.shutdown(wait=True)
        self.database.close()


def writable(repository: Repository, *, force: bool = False) -> Repository:
    """The repository, unless it is read-only; lakeFS lets ``force`` write all the same."""
    if repository.read_only and not force:
        raise read_only()
    return repository
