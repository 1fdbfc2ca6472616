"""Peak memory of the driver while it marks repositories of growing size: it must not follow the number of objects.

    python -m lakefs_gc_tests.benchmarks.driver_memory [OBJECTS ...]     (default: 10000 100000 500000)

Each size runs in a process of its own, on the embedded server and a local folder of empty files, all of them garbage.
Printed: objects listed and marked, peak resident memory of the driver's Python in MiB, the time in seconds.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lakefs_gc.config import SafetyParameters, ServerCredentials, Settings
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.session import GCSession
from lakefs_gc.storage.base import StoreLocation

_SIZES = (10_000, 100_000, 500_000)
_OBJECTS_PER_SLICE = 10_000
_REPOSITORY = "memory"


def main() -> None:
    """Run each size in a fresh process and print a line for it."""
    sizes = [int(argument) for argument in sys.argv[1:]] or _SIZES
    for size in sizes:
        subprocess.run([sys.executable, "-m", __spec__.name, "--one", str(size)], check=True)


def measure(objects: int) -> dict[str, float]:
    """Mark a repository of ``objects`` objects in this process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        namespace = folder / "objects" / _REPOSITORY
        _write_files(namespace, objects)
        location = StoreLocation((folder / "objects").as_uri())
        with SandboxServer(folder / "state", location, options=SandboxOptions(grace_period_seconds=0)) as server:
            credentials = ServerCredentials(
                endpoint_url=server.endpoint_url,
                access_key_id=server.access_key_id,
                secret_access_key=server.secret_access_key,
            )
            _create_repository(credentials)
            settings = Settings(
                mounts={"local://": location.folder_url},
                work_url=(folder / "work").as_uri(),
                safety=SafetyParameters(min_age_hours=0),
            )
            began = time.monotonic()
            with GCSession.open(settings) as session:
                facts = session.mark(f"{_REPOSITORY}/{objects}")
            return {
                "listed": facts["store_listing_rows"],
                "marked": facts["dagster/row_count"],
                "driver_peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
                "seconds": round(time.monotonic() - began, 1),
            }


def _write_files(namespace: Path, objects: int) -> None:
    for begin in range(0, objects, _OBJECTS_PER_SLICE):
        folder = namespace / "data" / f"slice-{begin:012}"
        folder.mkdir(parents=True)
        for number in range(begin, min(objects, begin + _OBJECTS_PER_SLICE)):
            (folder / f"object-{number:014}").touch()


def _create_repository(credentials: ServerCredentials) -> None:
    import lakefs_sdk

    for variable, value in (
        ("LAKECTL_SERVER_ENDPOINT_URL", credentials.endpoint_url),
        ("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", credentials.access_key_id),
        ("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", credentials.secret_access_key),
    ):
        os.environ[variable] = value
    client = lakefs_sdk.ApiClient(
        lakefs_sdk.Configuration(
            host=f"{credentials.endpoint_url}/api/v1",
            username=credentials.access_key_id,
            password=credentials.secret_access_key,
        )
    )
    lakefs_sdk.RepositoriesApi(client).create_repository(
        lakefs_sdk.RepositoryCreation(
            name=_REPOSITORY, storage_namespace=f"local://{_REPOSITORY}", default_branch="main"
        )
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        sys.stdout.write(json.dumps(measure(int(sys.argv[2]))) + "\n")
    else:
        main()
