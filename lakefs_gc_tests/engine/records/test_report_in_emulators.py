"""In Azure's and Google's stores, marks are where lakeFS's own Spark client has them, and its marks are swept.

The files are read as the client reads them: below the namespace as lakeFS spells it, without code of lakefs-gc.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
import urllib3
from azure.storage.blob import ContainerClient
from pyspark.sql import SparkSession

from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.sandbox.azurite import ACCOUNT, Azurite
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.fake_gcs import FakeGCS
from lakefs_gc_tests.support.client_marks import UNIFIED, write_client_mark
from lakefs_gc_tests.support.collector import Collector, counts
from lakefs_gc_tests.support.emulators import EMULATORS, namespace_behind_proxy
from lakefs_gc_tests.support.lake import Lake, keys_below

_KEYS = ("data/s/one", "data/t/é +%", "data/t/100%25,signature")


@pytest.mark.of_ci
@pytest.mark.long(40)
@pytest.mark.parametrize("kind", ["azure", "gcs"])
def test_the_layout_of_marks(kind: str, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with (
        namespace_behind_proxy(kind, request) as (_, location),
        Lake(tmp_path / "lake", location, SandboxOptions(grace_period_seconds=0)) as lake,
    ):
        repository = lake.repository()
        for key in _KEYS:
            repository.put_stray(key)
        live = repository.put_stray("data/live")
        collector = Collector(spark, repository)

        mark = collector.mark_objects(*_KEYS)

        emulator = request.getfixturevalue(EMULATORS[kind])
        files = files_below(emulator, f"{repository.namespace}_lakefs/retention/gc/unified/{mark.mark_id}/")
        parquet = [content for name, content in files.items() if name.startswith("deleted/") and "parquet" in name]
        addresses = [address for one in parquet for address in pq.read_table(io.BytesIO(one))["address"].to_pylist()]
        assert sorted(addresses) == sorted(_KEYS)
        text = "".join(content.decode() for name, content in files.items() if name.startswith("deleted.text/"))
        assert sorted(text.splitlines()) == sorted(_KEYS)
        summary = json.loads(files["summary.json"])
        assert (summary["run_id"], summary["success"], summary["num_deleted_objects"]) == (mark.mark_id, True, 3)
        assert collector.read_mark(mark.mark_id) == mark

        write_client_mark(repository.store, UNIFIED, list(_KEYS[:2]), cutoff=utc_now() + timedelta(seconds=2))
        assert counts(collector.sweep(collector.read_mark("m1"), live=[])) == {"deleted": 2}
        assert repository.objects() == {live, _KEYS[2]}
        ledger = list(keys_below(repository.store, f"{UNIFIED}lakefs-gc/ledger/"))
        assert ledger, "the records are in the folder of the client's mark"


def files_below(emulator: Azurite | FakeGCS, url: str) -> Mapping[str, bytes]:
    """Return the files below a folder, by their names without it."""
    place = url.partition("://")[2]
    if isinstance(emulator, Azurite):
        host, container, prefix = place.split("/", 2)
        assert host == f"{ACCOUNT}.blob.core.windows.net"
        client = ContainerClient(emulator.endpoint, container, {"account_name": ACCOUNT, "account_key": emulator.key})
        names = [blob.name for blob in client.list_blobs(name_starts_with=prefix)]
        return {name.removeprefix(prefix): client.download_blob(name).readall() for name in names}
    bucket, prefix = place.split("/", 1)
    api = f"{emulator.endpoint}/storage/v1/b/{bucket}/o"
    names = [item["name"] for item in urllib3.request("GET", api, fields={"prefix": prefix}).json()["items"]]
    contents = (urllib3.request("GET", f"{api}/{quote(name, safe='')}?alt=media").data for name in names)
    return {name.removeprefix(prefix): content for name, content in zip(names, contents, strict=True)}
