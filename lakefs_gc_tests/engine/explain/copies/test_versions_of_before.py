"""Versions stay when the store stops to keep new ones, or says so. So a proof lists them whatever the settings are."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

import pytest
import urllib3

from lakefs_gc.engine.explain.copies.remaining import find_versions
from lakefs_gc.engine.explain.erasure import Verdict
from lakefs_gc.errors import StorageError
from lakefs_gc.sandbox.azurite import Azurite
from lakefs_gc.sandbox.fake_gcs import FakeGCS
from lakefs_gc.sandbox.seaweedfs import SeaweedFS
from lakefs_gc.storage.freed_space import freed_space
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.support.azure_account import azure_account
from lakefs_gc_tests.support.faulty_s3 import Answer, FaultyS3, Request, error
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.proving import prover
from lakefs_gc_tests.support.store_proxy import StoreAnswer, StoreRequest, before_fake_gcs, before_seaweedfs

PATH = "people/anna.csv"
KEY = "data/s/a"


def test_versions_in_google_after_versioning_was_switched_off(
    fake_gcs: FakeGCS, gcs_namespace: StoreLocation, tmp_path: Path
) -> None:
    assert gcs_namespace.url
    bucket, buckets = f"versions-{uuid.uuid4().hex[:8]}", f"{fake_gcs.endpoint}/storage/v1/b"
    urllib3.request("POST", buckets, json={"name": bucket, "versioning": {"enabled": True}})
    with Lake(tmp_path / "lake", StoreLocation(f"gs://{bucket}/ns")) as lake:
        repository = lake.repository()
        key = repository.put(PATH, "Anna")
        repository.put(f"{PATH}2", "Anna's")
        repository.commit()
        repository.delete(PATH)
        repository.commit()
        repository.store.delete_many([key])
        urllib3.request("PATCH", f"{buckets}/{bucket}", json={"versioning": {"enabled": False}})
        assert freed_space(repository.store).state == "freed at once"
        prove = prover(repository, lake.settings)
        [erased] = prove(PATH, no_backups=True).objects
        assert erased.remains == (f"1 version in {repository.store.location.url}",)

        listed = json.loads(urllib3.request("GET", f"{buckets}/{bucket}/o?versions=true").data)
        [version] = [item for item in listed["items"] if item["name"].endswith(key)]
        name = version["name"].replace("/", "%2F")
        urllib3.request("DELETE", f"{buckets}/{bucket}/o/{name}?generation={version['generation']}")
        assert prove(PATH, no_backups=True).verdict is Verdict.ERASED


@pytest.mark.parametrize("body", [b"", b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"])
def test_an_answer_that_is_not_about_versioning_says_nothing(
    versioned: StoreLocation, s3_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """A proxy that does not know the request may answer it so. The versions are listed all the same."""
    with before_seaweedfs(s3_server) as (proxy, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        store = open_store(versioned)
        store.put(KEY, b"Anna")
        store.delete_many([KEY])
        assert freed_space(store).state == "not freed"
        answer_of_store = proxy.answer

        def answer(method: str, path: str, headers: dict[str, str], sent: bytes) -> StoreAnswer:
            if path.rstrip("=").endswith("?versioning"):
                return StoreAnswer(200, body, {"Content-Type": "application/xml"})
            return answer_of_store(method, path, headers, sent)

        monkeypatch.setattr(proxy, "answer", answer)
        with pytest.raises(StorageError, match="is not about the versioning of the bucket"):
            store.space_not_freed()
        assert freed_space(store).state == "unknown"
        assert find_versions(store, [KEY]).of[KEY] == [f"1 version in {versioned.url}"]


def test_versions_that_may_not_be_listed_are_unknown_also_in_a_bucket_without(plain_s3: FaultyS3) -> None:
    def answer(request: Request) -> Answer | None:
        if "versioning" in request.query:
            return Answer(body=b"<VersioningConfiguration/>")
        return error(403, "AccessDenied") if "versions" in request.query else None

    plain_s3.faults = [answer]
    [unread] = find_versions(open_store(StoreLocation("s3://bucket/p")), [KEY]).unread
    assert "s3:ListBucketVersions" in unread


def test_versions_in_azure_after_versioning_was_switched_off(
    azurite: Azurite, azure_namespace: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file that was written since has a version."""
    with azure_account(azurite) as (account, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        store = open_store(azure_namespace)
        for key in (KEY, f"{KEY}2", "data/s/live", "_lakefs/retention/gc/written-since"):
            store.put(key, b"Anna")
        root = azure_namespace.folder_url.partition("core.windows.net/")[2].partition("/")[2]
        account.earlier = [root + KEY, root + KEY, f"{root}{KEY}2"]
        store.delete_many([KEY])
        found = find_versions(store, [KEY, "data/s/live"])
        assert found.unread == ()
        assert found.of == {KEY: [f"2 versions in {azure_namespace.url}"], "data/s/live": []}
        account.keeps_versions = True  # the current blob is a version, too, and no copy
        account.earlier.clear()
        assert find_versions(store, ["data/s/live"]).of == {"data/s/live": []}


@pytest.mark.parametrize("asked", [KEY, "data/s/never"])
def test_a_list_of_versions_without_what_exists_shows_nothing(
    asked: str,
    azurite: Azurite,
    azure_namespace: StoreLocation,
    fake_gcs: FakeGCS,
    gcs_namespace: StoreLocation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also one for an object that does not exist: in an erasure, none of those that are asked for does."""

    def no_blobs(request: StoreRequest, answer: StoreAnswer) -> StoreAnswer:
        if "snapshots,versions,deleted" not in request.operation:
            return answer
        body = re.sub(rb"<Blobs>.*</Blobs>", b"<Blobs />", answer.body, flags=re.DOTALL)
        return StoreAnswer(answer.status, body, answer.headers)

    with azure_account(azurite) as (account, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        store = open_store(azure_namespace)
        store.put(KEY, b"Anna")
        assert find_versions(store, [asked]).unread == ()
        account.changes.append(no_blobs)
        [unread] = find_versions(store, [asked]).unread
        assert "does not list it among its versions" in unread

    with before_fake_gcs(fake_gcs) as (proxy, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        store = open_store(gcs_namespace)
        store.put(KEY, b"Anna")
        assert find_versions(store, [asked]).unread == ()
        answer_of_store = proxy.answer

        def answer(method: str, path: str, headers: dict[str, str], sent: bytes) -> StoreAnswer:
            if "versions=true" in path:
                return StoreAnswer(200, b'{"kind": "storage#objects"}')
            return answer_of_store(method, path, headers, sent)

        monkeypatch.setattr(proxy, "answer", answer)
        [unread] = find_versions(store, [asked]).unread
        assert "lists no version of it" in unread
