"""What proves a copy from or to Azure and Google: a checksum that both stores report, or reading both objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefs_gc.engine.records.backups.manifest import COPIED, FAILED, BackupPaths
from lakefs_gc.engine.undo.copy_object import CopyRecord, Planned, copy_one
from lakefs_gc.engine.undo.same_content import recorded_content
from lakefs_gc.errors import BackupError
from lakefs_gc.sandbox.azurite import Azurite
from lakefs_gc.sandbox.fake_gcs import FakeGCS
from lakefs_gc.storage.base import ObjectStore
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.uncertain_content import (
    before_fake_gcs_with_composites,
    compose,
    put_append_blob,
    put_blocks,
)

PATHS = BackupPaths("repository", "mark")
COPY = f"{PATHS.objects}data/s/a"
CONTENT = b"first part, second part"
OTHER = CONTENT[::-1]


@pytest.fixture
def stores(
    azurite: Azurite,
    azure_namespace: StoreLocation,
    fake_gcs: FakeGCS,
    gcs_namespace: StoreLocation,
    s3_namespace: StoreLocation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[dict[str, ObjectStore]]:
    """A store of each kind, and objects ``data/s/a`` whose content is uncertain in those of Azure and Google."""
    with before_fake_gcs_with_composites(fake_gcs) as (stand_in, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        places = {"azure": azure_namespace, "gcs": gcs_namespace, "s3": s3_namespace}
        stores = {kind: open_store(place) for kind, place in places.items()}
        (tmp_path / "backups").mkdir()
        stores["local"] = open_store(StoreLocation(f"file://{tmp_path}/backups"))
        put_blocks(azurite, stores["azure"], "data/s/a", CONTENT)
        compose(fake_gcs, stand_in, stores["gcs"], "data/s/a", CONTENT[:10], CONTENT[10:])
        yield stores


def backed_up(source: ObjectStore, target: ObjectStore) -> CopyRecord:
    record, _ = copy_one(source, target, PATHS, Planned("data/s/a", len(CONTENT), None))
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("source", "target", "proof"),
    [
        ("azure", "azure", "sha256 by reading"),
        ("azure", "local", "sha256 by reading"),
        ("azure", "s3", "md5 by reading"),
        ("azure", "gcs", "md5 by reading"),
        ("gcs", "gcs", "crc32c by stores"),
        ("gcs", "local", "sha256 by reading"),
        ("gcs", "azure", "md5 by reading"),
    ],
)
def test_an_object_without_an_md5(stores: dict[str, ObjectStore], source: str, target: str, proof: str) -> None:
    original, place = stores[source], stores[target]
    assert original.content_md5(["data/s/a"]) == {}
    record = backed_up(original, place)
    assert (record.outcome, record.proof) == (COPIED, proof)
    assert place.read(COPY) == CONTENT
    assert recorded_content(place, COPY, len(CONTENT), record.checksum) is not None

    # A copy of the same size with other content is noticed, in a restore and in a backup, which replaces it.
    place.put(COPY, OTHER)
    with pytest.raises(BackupError):
        recorded_content(place, COPY, len(CONTENT), record.checksum)
    assert backed_up(original, place).outcome == COPIED
    assert place.read(COPY) == CONTENT


def test_an_append_blob(stores: dict[str, ObjectStore], azurite: Azurite) -> None:
    """Its MD5 is that of an earlier content."""
    stores["azure"].delete_many(["data/s/a"])
    put_append_blob(azurite, stores["azure"], "data/s/a", CONTENT)
    for target in ("local", "s3"):
        assert backed_up(stores["azure"], stores[target]).outcome == COPIED
        assert stores[target].read(COPY) == CONTENT


@pytest.mark.parametrize("target", ["local", "s3", "gcs"])
def test_a_blob_with_the_md5_of_another_content(stores: dict[str, ObjectStore], azurite: Azurite, target: str) -> None:
    """Azure keeps what the writer of blocks declares. It is no proof of a copy elsewhere, so that is not accepted."""
    put_blocks(azurite, stores["azure"], "data/s/a", CONTENT, declared=OTHER)
    assert stores["azure"].content_md5(["data/s/a"])
    record = backed_up(stores["azure"], stores[target])
    assert (record.outcome, record.error) == (FAILED, "the copy differs from the original")
