"""What lakeFS may still serve is not erased, where lakefs-gc looks at another store than lakeFS does."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lakefs_gc.engine.explain.copies import served
from lakefs_gc.engine.explain.erasure import ErasureProof, Verdict
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.lakefs_proxy import Answered, Asked, LakeFSProxy
from lakefs_gc_tests.support.proving import Prove, prover, verdicts

PATH = "people/anna.csv"


@pytest.fixture
def older(small: LakeRepository) -> str:
    """The address of an object that is older than all others, and of an old commit. A mirror has it, too."""
    key = small.put("older")
    small.commit()
    small.delete("older")
    small.commit()
    return key


def beside_a_mirror(small: LakeRepository, mirror: Path, *lacking: str, server: LakeFSClient | None = None) -> Prove:
    """Proofs that look at a mirror of the namespace without some objects."""
    shutil.copytree(small.folder.parent, mirror)
    for key in lacking:
        (mirror / small.folder.name / key).unlink()
    settings = small.lake.settings.model_copy(update={"mounts": {"local://": f"{mirror.as_uri()}/"}})
    return prover(small, settings, server)


def unread_beside_the_store(proof: ErasureProof) -> list[str]:
    """What was not looked at, beside the store of lakeFS itself: a mirror is another one, which every proof says."""
    of_store = [each for each in proof.not_looked_at if "is another store" in each]
    assert len(of_store) == 1
    return [each for each in proof.not_looked_at if each not in of_store]


def former_object(small: LakeRepository, branch: str = "main") -> tuple[str, list[str]]:
    """The address of an object that was at ``PATH``, and the commits that have it, the older first."""
    key = small.put(PATH, "Anna", branch=branch)
    commits = [small.commit(branch=branch, age_days=2)]
    small.put("other", branch=branch)
    commits.append(small.commit(branch=branch, age_days=1))
    small.delete(PATH, branch=branch)
    small.commit(branch=branch)
    return key, commits


@pytest.mark.usefixtures("older")
def test_what_a_branch_shows_and_nobody_committed_remains(small: LakeRepository, tmp_path: Path) -> None:
    gone, _ = former_object(small)
    small.store.delete_many([gone])
    staged = small.put(PATH, "Anna, again")
    mirror = tmp_path / "mirror"
    proof = beside_a_mirror(small, mirror, staged)(PATH, no_backups=True)
    assert verdicts(proof) == {gone: Verdict.ERASED, staged: Verdict.REMAINS}
    assert f"lakeFS serves its content: {PATH} of branch main" in [r for each in proof.objects for r in each.remains]


@pytest.mark.usefixtures("older")
def test_all_that_a_branch_shows_is_asked_for(
    small: LakeRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "_MOST_ASKED", 1)
    former, _ = former_object(small)
    staged = [small.put(f"people/{number}") for number in range(5)]
    small.store.delete_many([former])
    proof = beside_a_mirror(small, tmp_path / "mirror", *staged)("people/", no_backups=True)
    assert verdicts(proof) == dict.fromkeys(staged, Verdict.REMAINS) | {former: Verdict.ERASED}
    assert "6 of 6 objects that the store lacks, read through lakeFS" in proof.looked_at


@pytest.mark.usefixtures("older")
def test_what_is_not_asked_for_is_unknown_beside_a_mirror(
    small: LakeRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {small.put(path): path for path in ("people/a", "people/b", "people/c")}
    small.commit()
    for path in paths.values():
        small.delete(path)
    small.commit()
    first, left, last = sorted(paths)
    prove = beside_a_mirror(small, tmp_path / "mirror", *paths)
    small.store.delete_many([first, last])
    monkeypatch.setattr(served, "_MOST_ASKED", 2)
    proof = prove("people/", no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    [unread] = unread_beside_the_store(proof)
    assert "lakeFS was not asked for 1 of them, because it is asked for 2 at most" in unread
    assert "2 of 3 objects that the store lacks, read through lakeFS" in proof.looked_at
    monkeypatch.setattr(served, "_MOST_ASKED", 3)
    assert verdicts(prove("people/", no_backups=True))[left] is Verdict.REMAINS


@pytest.mark.usefixtures("older")
def test_a_commit_that_lakefs_does_not_find_says_nothing(small: LakeRepository, tmp_path: Path) -> None:
    """As one that was picked. An older one may be found. Without any, the answer may be that of a gateway."""
    key, commits = former_object(small)
    hidden: set[str] = set()

    def not_found(asked: Asked, answer: Answered) -> Answered:
        if not any(f"/refs/{commit}/" in asked.path for commit in hidden):
            return answer
        return replace(answer, status=404, body=json.dumps({"message": "commit not found: not found"}).encode())

    with LakeFSProxy(small.lake.credentials.endpoint_url) as proxy:
        proxy.instead("/objects/stat", not_found)
        server = LakeFSClient(small.lake.credentials.model_copy(update={"endpoint_url": proxy.url}))
        prove = beside_a_mirror(small, tmp_path / "mirror", key, server=server)
        hidden.add(commits[1])
        assert prove(PATH, no_backups=True).objects[0].remains == (
            f"lakeFS serves its content: {PATH} of commit {commits[0][:12]}",
        )
        hidden.update(commits)
        proof = prove(PATH, no_backups=True)
        assert proof.verdict is Verdict.UNKNOWN
        [unread] = unread_beside_the_store(proof)
        assert unread.startswith(f"{PATH} of commit {commits[1][:12]}, read through lakeFS: ")
        small.store.delete_many([key])
        hidden.remove(commits[0])
        gone = prove(PATH, no_backups=True)
        assert (verdicts(gone), unread_beside_the_store(gone)) == ({key: Verdict.ERASED}, [])


@pytest.mark.usefixtures("older")
def test_an_object_that_lakefs_cannot_be_asked_for_is_unknown_beside_a_mirror(
    small: LakeRepository, tmp_path: Path
) -> None:
    """Its branch was deleted. A branch at one of its commits makes lakeFS answer."""
    small.branch("dev")
    key, commits = former_object(small, "dev")
    small.delete_branch("dev")
    prove = beside_a_mirror(small, tmp_path / "mirror", key)
    proof = prove(PATH, no_backups=True)
    assert proof.verdict is Verdict.UNKNOWN
    [unread] = unread_beside_the_store(proof)
    assert unread.startswith(f"{key}: whether lakeFS serves it is unknown")
    small.branch("again", commits[0])
    assert prove(PATH, no_backups=True).verdict is Verdict.REMAINS


def test_without_a_mount_the_store_is_the_one_of_lakefs(s3_namespace: StoreLocation, tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", s3_namespace) as lake:
        repository = lake.repository()
        repository.put("live")
        repository.commit()
        repository.branch("dev")
        key, _ = former_object(repository, "dev")
        repository.delete_branch("dev")
        repository.store.delete_many([key])
        proof = prover(repository, lake.settings)(PATH, no_backups=True)
        assert proof.verdict is Verdict.ERASED
        assert "0 of 1 objects that the store lacks, read through lakeFS" in proof.looked_at
