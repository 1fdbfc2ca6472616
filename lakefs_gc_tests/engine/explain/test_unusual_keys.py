"""Objects whose keys have empty parts, or a slash at their end: S3 has such keys, and not every store does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakefs_gc.cli.explanations import explanation_lines
from lakefs_gc.engine.explain.answers import State
from lakefs_gc.engine.explain.erasure import ErasureProof, Verdict, prove_erased
from lakefs_gc.engine.explain.explain import explain
from lakefs_gc.engine.explain.sources import Sources, open_sources
from lakefs_gc.engine.explain.stored import look_up
from lakefs_gc.engine.workspace.workspace import Workspace
from lakefs_gc.lakefs.client import LakeFSClient
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.faulty_s3 import Answer, Request
from lakefs_gc_tests.support.faulty_store import LevelledS3
from lakefs_gc_tests.support.lake import Lake, LakeRepository

PATH = "people/anna.csv"
VERSIONS_UNKNOWN = "versions and soft-deleted copies"
"""The server of these tests does not say whether it keeps versions."""


@pytest.fixture
def in_s3(levelled_s3: LevelledS3, tmp_path: Path) -> Iterator[LakeRepository]:
    with Lake(tmp_path / "lake", StoreLocation("s3://bucket/lakes/")) as lake:
        yield lake.repository()


def sources_of(repository: LakeRepository) -> Sources:
    settings = repository.lake.settings
    server = LakeFSClient(repository.lake.credentials)
    return open_sources("lake", server, settings, Workspace(settings.resolved_work_url()))


def prove(repository: LakeRepository) -> ErasureProof:
    return prove_erased(sources_of(repository), [PATH], no_backups=True)


def unread(proof: ErasureProof) -> list[str]:
    return [each for each in proof.not_looked_at if not each.startswith(VERSIONS_UNKNOWN)]


@pytest.mark.parametrize("key", ["data//anna.csv", "folder//anna.csv", "people/"])
def test_an_object_with_an_unusual_key_remains(in_s3: LakeRepository, levelled_s3: LevelledS3, key: str) -> None:
    levelled_s3.objects[f"lakes/lake/{key}"] = b"Anna"
    in_s3.stage(PATH, key, size_bytes=4)
    in_s3.commit()
    proof = prove(in_s3)
    assert proof.verdict is Verdict.REMAINS
    verdicts = {each.explanation.address: each.verdict for each in proof.objects}
    assert verdicts[key] is Verdict.REMAINS
    assert unread(proof) == []
    [explanation] = explain(sources_of(in_s3), [key])
    assert (explanation.state, explanation.size_bytes) == (State.KEPT, 4)
    del levelled_s3.objects[f"lakes/lake/{key}"]
    assert {each.verdict for each in prove(in_s3).objects} == {Verdict.ERASED}


def test_a_key_that_a_store_refuses_is_unknown(in_s3: LakeRepository, levelled_s3: LevelledS3) -> None:
    """MinIO refuses keys with an empty part. The objects with other keys are asked for all the same."""

    def refuse(request: Request) -> Answer | None:
        return Answer(400) if request.operation == "HeadObject" and "//anna" in request.keys[0] else None

    key = in_s3.put(PATH, "Anna")
    in_s3.commit()
    in_s3.stage(PATH, "data//anna.csv", size_bytes=4)
    in_s3.commit()
    levelled_s3.faults.append(refuse)
    expected = "data//anna.csv: the store could not be asked for this key: "
    verdicts = {each.explanation.address: each for each in prove(in_s3).objects}
    assert verdicts[key].verdict is Verdict.REMAINS
    assert verdicts["data//anna.csv"].verdict is Verdict.UNKNOWN
    assert "could not be asked" in verdicts["data//anna.csv"].deleted_by[0]

    del levelled_s3.objects[f"lakes/lake/{key}"]
    proof = prove(in_s3)
    assert proof.verdict is Verdict.UNKNOWN
    assert any(each.startswith(expected) for each in unread(proof))
    [explanation] = explain(sources_of(in_s3), ["data//anna.csv"])
    assert (explanation.state, explanation.exists) == (State.UNKNOWN, False)
    assert explanation.kept_by
    assert "  unknown: the store could not be asked for this key" in explanation_lines(explanation)
    assert any(each.startswith(expected) for each in explanation.not_looked_at)


def test_a_key_that_leads_elsewhere_is_unknown(in_s3: LakeRepository) -> None:
    in_s3.stage(PATH, "data/../anna.csv", size_bytes=4)
    in_s3.commit()
    proof = prove(in_s3)
    assert proof.verdict is Verdict.UNKNOWN
    [refused, _] = unread(proof)  # lakeFS refuses the key, too
    assert refused.startswith("data/../anna.csv: the store could not be asked for this key: ")


def test_a_folder_has_no_unusual_keys(tmp_path: Path) -> None:
    store = open_store(StoreLocation(tmp_path.as_uri()))
    store.put("a/b", b"1")
    unusual = ("", "a//b", "a/", "/a/b", "a/./b", "a/../a/b", "a/b\0")
    found = look_up(store, ["a/b", "a/c", *unusual])
    assert found.objects.keys() == {"a/b"}
    assert found.not_asked.keys() == set(unusual)
