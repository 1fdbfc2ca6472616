"""The repository of the demo, and the proofs that the demo shows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from lakefs_gc.config import ServerCredentials
from lakefs_gc.demo.play import Proofs
from lakefs_gc.demo.story import EXPIRED, KEPT, NEVER_COMMITTED, REPOSITORY, Storyteller
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store


def test_every_upload_has_one_fate(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    objects = StoreLocation((tmp_path / "objects").as_uri())
    with SandboxServer(tmp_path / "state", objects, options=SandboxOptions(grace_period_seconds=1)) as server:
        credentials = ServerCredentials(
            endpoint_url=server.endpoint_url,
            access_key_id=server.access_key_id,
            secret_access_key=server.secret_access_key,
        )
        teller = Storyteller(credentials, tmp_path / "upload")
        landing = "local://landing/x.csv"
        branches = dict(teller.tell(f"local://{REPOSITORY}", open_store(objects), "landing/x.csv", landing))
        assert list(branches) == ["main", "backfill", "experiment", "draft", "mistake", "vendor"]
        fates = teller.fates()
        addresses = [version.address for fate in fates for version in fate.versions]
        stored = [key for batch in open_store(objects).list("lake/data/") for key in batch["address"].to_pylist()]
        assert sorted(addresses) == sorted([landing, *(f"local://{key}" for key in stored)])
        total: Counter[str] = Counter()
        for fate in fates:
            total[fate.decision] += len(fate.versions)
        assert total == {EXPIRED: 39, NEVER_COMMITTED: 16, KEPT: 78}
        revived = teller.branch_from_oldest("audit", "events/day-060/part-00.parquet")
        assert {version.path.partition("/part")[0] for version in revived} == {"events/day-060", "reports/daily.csv"}
        assert len(revived) == 13
        places = teller.places()
        assert places.keys() - set(addresses) == set()
        kept = [version for fate in fates if fate.decision == KEPT for version in fate.versions]
        assert all(teller.checksum(*places[version.address]) == version.sha256 for version in kept[::10])


def test_a_claim_without_a_single_case_is_broken() -> None:
    proofs = Proofs()
    proofs.add("all are readable", 3, 3)
    proofs.add("all are gone", 2, 3)
    proofs.add("more than expected", 4, 3)
    proofs.add("nothing to look at", 0, 0)
    assert proofs.broken == ["all are gone", "more than expected", "nothing to look at"]
    assert [row[0] for row in proofs.rows] == ["✓", "✗", "✗", "✗"]
