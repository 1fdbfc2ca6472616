"""Objects whose store reports no MD5, or one that somebody declared, in the emulators of Azure's and Google's store."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import urllib3
from azure.storage.blob import BlobBlock, BlobServiceClient, ContentSettings

from lakefs_gc.sandbox.azurite import ACCOUNT, Azurite
from lakefs_gc.sandbox.fake_gcs import FakeGCS
from lakefs_gc.storage.azure.store import AzureStore
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.gcs.store import GCSStore
from lakefs_gc_tests.support.gcs_stand_in import GCSStandIn


def put_blocks(
    azurite: Azurite, store: ObjectStore, key: str, content: bytes, *, declared: bytes | None = None
) -> None:
    """Write a blob in blocks. It has the MD5 of ``declared``, which Azure does not compare with it, or none."""
    blob = _blob(azurite, store, key)
    blob.stage_block("one", content)
    md5 = None if declared is None else bytearray(hashlib.md5(declared).digest())
    blob.commit_block_list([BlobBlock("one")], content_settings=ContentSettings(content_md5=md5))


def put_append_blob(azurite: Azurite, store: ObjectStore, key: str, content: bytes) -> None:
    """Write an append blob that has the MD5 of what it was before the last append: nothing."""
    blob = _blob(azurite, store, key)
    blob.create_append_blob(ContentSettings(content_md5=bytearray(hashlib.md5(b"").digest())))
    blob.append_block(content)


def _blob(azurite: Azurite, store: ObjectStore, key: str) -> Any:
    assert isinstance(store, AzureStore)
    service: Any = BlobServiceClient(azurite.endpoint, {"account_name": ACCOUNT, "account_key": azurite.key})
    return service.get_blob_client(store.folder.container, store.root + key)


def compose(fake_gcs: FakeGCS, stand_in: GCSStandIn, store: ObjectStore, key: str, *parts: bytes) -> None:
    """Compose an object of parts, which are deleted."""
    assert isinstance(store, GCSStore)
    names = [f"{key}-part-{number}" for number in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        store.put(name, part)
    url = f"{fake_gcs.endpoint}{store._client().path(store.root + key)}/compose"
    body = {"sourceObjects": [{"name": store.root + name} for name in names], "destination": {}}
    assert urllib3.request("POST", url, json=body).status == 200
    stand_in.composites.add(f"/{store.root}{key}")
    assert store.content_md5([key]) == {}
    assert base64.b64decode(store.content_facts(key).checksums["crc32c"])  # type: ignore[union-attr]
    store.delete_many(names)


@contextmanager
def before_fake_gcs_with_composites(fake_gcs: FakeGCS) -> Iterator[tuple[GCSStandIn, dict[str, str]]]:
    """Yield the stand-in before the emulator, and the variable that leads to it."""
    stand_in = GCSStandIn(fake_gcs.endpoint)
    try:
        yield stand_in, {"STORAGE_EMULATOR_HOST": stand_in.endpoint}
    finally:
        stand_in.close()
