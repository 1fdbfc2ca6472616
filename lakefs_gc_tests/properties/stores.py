"""The stores of random histories: a local folder, Azurite, or fake-gcs-server, each with objects of any age."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lakefs_gc.sandbox.azurite import ACCOUNT, Azurite
from lakefs_gc.sandbox.fake_gcs import FakeGCS
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.aging_proxy import AgingProxy, aging_azurite, aging_gcs
from lakefs_gc_tests.support.impatient_daemon import KILL_FILE, KILL_FILE_VARIABLE
from lakefs_gc_tests.support.lake import MakeOld

LOCAL, AZURE, GCS = "local", "azure", "gcs"
KINDS = (LOCAL, AZURE, GCS)
_CONTAINER = "histories"
_AZURE_DOMAIN, _OTHER_AZURE_DOMAIN = ".blob.core.windows.net/", ".blob.core.chinacloudapi.cn/"


@dataclass(frozen=True)
class RemoteStore:
    """A running emulator for many histories.

    ``environment`` leads to it. ``kill_file`` is the one of ``impatient_daemon``.
    """

    kind: str
    location: StoreLocation
    environment: Mapping[str, str]
    make_old: MakeOld
    kill_file: Path

    def new_location(self) -> StoreLocation:
        """Return an empty folder for one history."""
        return StoreLocation(f"{self.location.folder_url}{uuid.uuid4().hex}")

    def other_spelling(self, url: str) -> str:
        """Return another URL that lakeFS reads as the same: of an Azure address it uses the account and the path."""
        return url.replace(_AZURE_DOMAIN, _OTHER_AZURE_DOMAIN)

    def path(self, url: str) -> str:
        """Return the bucket and the key of a URL, without its scheme; without an account in Azure."""
        below = url.partition("://")[2]
        host, _, path = below.partition("/")
        if self.kind == AZURE:
            return path if host.partition(".")[0] == ACCOUNT else f"{host}/{path}"
        return below


@contextmanager
def in_azurite(azurite: Azurite, location: StoreLocation, folder: Path) -> Iterator[RemoteStore]:
    """Yield a store below ``location``, in a container that exists."""
    with aging_azurite(azurite) as (proxy, environment):
        yield _remote(AZURE, location, environment, proxy, folder)


@contextmanager
def in_fake_gcs(fake_gcs: FakeGCS, location: StoreLocation, folder: Path) -> Iterator[RemoteStore]:
    """Yield a store below ``location``, in a bucket that exists."""
    with aging_gcs(fake_gcs) as (proxy, environment):
        yield _remote(GCS, location, environment, proxy, folder)


def _remote(
    kind: str, location: StoreLocation, environment: Mapping[str, str], proxy: AgingProxy, folder: Path
) -> RemoteStore:
    file = folder / KILL_FILE
    return RemoteStore(kind, location, {**environment, KILL_FILE_VARIABLE: str(file)}, proxy.make_old, file)


@contextmanager
def running(kind: str, folder: Path) -> Iterator[RemoteStore | None]:
    """Run the emulator of a kind, with its variables in the environment; None for local files.

    Raise ``ConfigurationError`` if it is not installed.
    """
    if kind == LOCAL:
        yield None
    elif kind == AZURE:
        with Azurite(folder / "azurite") as azurite:
            os.environ.update(azurite.environment)
            azurite.create_container(_CONTAINER)
            with in_azurite(azurite, StoreLocation(azurite.url(_CONTAINER)), folder) as store:
                os.environ.update(store.environment)
                yield store
    else:
        with FakeGCS(folder / "fake-gcs") as fake_gcs:
            fake_gcs.create_bucket(_CONTAINER)
            with in_fake_gcs(fake_gcs, StoreLocation(f"gs://{_CONTAINER}"), folder) as store:
                os.environ.update(store.environment)
                yield store
