"""Peak memory of the driver while it marks repositories of growing size: it must not follow the number of objects.

Each size runs in a separate process, on the embedded server and a local folder of empty files, all of them garbage.
Figures: objects listed and marked, peak resident memory of the driver's Python in MiB, the time in seconds.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lakefs_gc.config import SafetyParameters, ServerCredentials, Settings
from lakefs_gc.pipeline.session import GCSession
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.benchmarks.harness import Benchmark, Case, Figure, Options, in_fresh_process

_SIZES = (10_000, 100_000, 500_000)
_OBJECTS_PER_SLICE = 10_000
_REPOSITORY = "memory"


def measure_one(objects: int) -> dict[str, Figure]:
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


def measure(options: Options) -> Iterator[Case]:
    for number, objects in enumerate(options.counts("objects", _SIZES)):
        yield Case(f"{objects:,} objects", in_fresh_process(measure_one, objects), baseline=number == 0)


BENCHMARK = Benchmark(
    "Memory of the driver while it marks",
    compare="driver_peak_mib",
    higher_is_better=False,
    measure=measure,
    settings={"objects": "sizes, separated by commas"},
)
