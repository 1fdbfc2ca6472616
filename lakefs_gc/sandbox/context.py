"""The context of a running sandbox: its settings and parts, which all operations use."""

from __future__ import annotations

import secrets
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.sandbox.auth import Authenticator, Credentials, new_credentials
from lakefs_gc.sandbox.clock import Clock, system_clock
from lakefs_gc.sandbox.data.addresses import AddressProvider, AddressSigner
from lakefs_gc.sandbox.data.namespaces import Namespaces
from lakefs_gc.sandbox.data.presigning import Presigner
from lakefs_gc.sandbox.data.staging import Staging
from lakefs_gc.sandbox.data.tracking import LinkTokens, TrackedCopies
from lakefs_gc.sandbox.problems import read_only
from lakefs_gc.sandbox.state.database import Database
from lakefs_gc.sandbox.tasks import Tasks
from lakefs_gc.sandbox.versions.ranges import Committed, RangeLimits
from lakefs_gc.sandbox.versions.refs import Refs, Repository
from lakefs_gc.storage.location import StoreLocation

_DATABASE_FILE = "sandbox.sqlite"
_BACKGROUND_THREADS = 4
_READING_THREADS = 8
_DAY_SECONDS = 86_400
_PREPARATION_SECONDS = _DAY_SECONDS


@dataclass(frozen=True)
class SandboxOptions:
    """The settings of a sandbox.

    ``grace_period_seconds`` is the value that the server reports to collectors. A link token is valid for
    ``link_lifetime_seconds``: by default the grace period, or a day if that is 0 (as for a demo). It must not exceed
    the grace period, because a collector would delete an object that a client is about to link. A page of
    prepare_uncommited ends after ``uncommitted_page_bytes`` of addresses or ``uncommitted_page_seconds``.

    ``single_use_links``, ``stage_inside_namespace`` and ``shallow_copies`` select the intended differences from lakeFS:
    see ``lakefs_gc.sandbox.differences``. ``issues_folder_addresses``: upload addresses contain the folder of a local
    store (``local:///folder/...``) instead of the namespace, as on a lakeFS server. ``sharded_addresses``: slices are
    in shards (``formats.ids.SHARD_MARK``).
    """

    grace_period_seconds: int = _DAY_SECONDS
    link_lifetime_seconds: int | None = None
    slice_seconds: float = 3600.0
    slice_size: int = 50_000
    single_use_links: bool = True
    stage_inside_namespace: bool = False
    shallow_copies: bool = True
    issues_folder_addresses: bool = False
    sharded_addresses: bool = False
    range_limits: RangeLimits = field(default_factory=RangeLimits)
    uncommitted_page_bytes: int = 20 << 20
    uncommitted_page_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Raise ``ConfigurationError`` for link tokens that outlive the grace period."""
        lifetime, grace = self.link_lifetime_seconds, self.grace_period_seconds
        if lifetime is not None and grace and lifetime > grace:
            raise ConfigurationError(
                f"Link tokens of {lifetime} s would outlive the grace period of {grace} s",
                remedy="Lower link_lifetime_seconds (--token-lifetime), or raise grace_period_seconds (--grace-period)",
            )

    @property
    def link_seconds(self) -> int:
        """Return how long a link token is valid."""
        return self.link_lifetime_seconds or self.grace_period_seconds or _DAY_SECONDS

    @property
    def copy_seconds(self) -> int:
        """Return how long a copy is tracked: the grace period plus the longest duration of a preparation."""
        return self.grace_period_seconds + _PREPARATION_SECONDS


class Sandbox:
    """The parts of a sandbox. Its state is in ``folder`` and in the store, and survives a restart."""

    def __init__(
        self,
        folder: Path,
        store: StoreLocation,
        *,
        credentials: Credentials | None = None,
        options: SandboxOptions | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """Create or reopen a sandbox.

        Without ``credentials``, use those of the folder's last run, or generate and store new ones.

        Raise ``ConfigurationError`` for a store that a sandbox cannot use.
        """
        self.folder = folder
        self.options = options or SandboxOptions()
        self.clock = clock
        self.namespaces = Namespaces(store)
        self.presigner = Presigner(self.namespaces)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.database = Database(folder / _DATABASE_FILE)
        generated = new_credentials()
        self.credentials = credentials or Credentials(
            self.database.setting("access_key_id", generated.access_key_id),
            self.database.setting("secret_access_key", generated.secret_access_key),
        )
        self.secret = self.database.setting("secret", secrets.token_hex(32))
        self.refs = Refs(self.database)
        self.staging = Staging(self.database)
        self.tasks = Tasks(self.database, clock)
        self.tasks.fail_unfinished()
        self.authenticator = Authenticator(self.credentials, self.secret, clock)
        self.addresses = AddressProvider(
            clock,
            slice_seconds=self.options.slice_seconds,
            slice_size=self.options.slice_size,
            is_sharded=self.options.sharded_addresses,
        )
        self.signer = AddressSigner(self.secret, clock, lifetime_seconds=self.options.link_seconds)
        self.link_tokens = LinkTokens(self.database, clock, lifetime_seconds=self.options.link_seconds)
        self.copies = TrackedCopies(self.database, clock, lifetime_seconds=self.options.copy_seconds)
        self._committed: dict[str, Committed] = {}
        self._locks: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        self._guard = threading.Lock()
        self._background = ThreadPoolExecutor(_BACKGROUND_THREADS, thread_name_prefix="sandbox-task")
        self.readers = ThreadPoolExecutor(_READING_THREADS, thread_name_prefix="sandbox-read")
        """The threads that read ahead. Each has a connection to the database, so requests share them."""

    def lock(self, repository: Repository) -> threading.RLock:
        """Return the lock that every operation holds while it moves a branch of the repository."""
        with self._guard:
            return self._locks[repository.name]

    def committed(self, repository: Repository) -> Committed:
        """Return the committed data of a repository."""
        with self._guard:
            if repository.folder not in self._committed:
                store = self.namespaces.store(repository.folder)
                self._committed[repository.folder] = Committed(store, self.options.range_limits)
            return self._committed[repository.folder]

    def now_seconds(self) -> int:
        """Return the time in whole seconds since 1970."""
        return int(self.clock().timestamp())

    def in_background(self, task: Callable[[], None]) -> Future[None]:
        """Run a task in the background. The task stores its own outcome."""
        return self._background.submit(task)

    def close(self) -> None:
        """Finish the background tasks, and close the database."""
        self._background.shutdown(wait=True)
        self.readers.shutdown(wait=True, cancel_futures=True)
        self.database.close()


def writable(repository: Repository, *, force: bool = False) -> Repository:
    """Return the repository if it is not read-only. As in lakeFS, ``force`` permits a write to a read-only one."""
    if repository.read_only and not force:
        raise read_only()
    return repository
