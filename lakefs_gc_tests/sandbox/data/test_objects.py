"""Objects of a sandbox through HTTP, with the unmodified SDK, on local files and on S3 if available."""

from __future__ import annotations

import os
from typing import Any

import httpx
import lakefs_sdk
import pytest
from lakefs_sdk.exceptions import ApiException

from lakefs_gc.formats.ranges import read_metarange, read_range
from lakefs_gc.sandbox.data.staging import Staging
from lakefs_gc_tests.support.sandbox_place import REPOSITORY, Place, refused, wait_for


def test_ranges_are_real_files_and_shared(place: Place) -> None:
    for i in range(3):
        place.put(f"p/{i}")
    first = place.commit()
    location = place.client.metadata_api.get_meta_range(REPOSITORY, first.meta_range_id).location
    assert location == f"_lakefs/{first.meta_range_id}"
    ranges = read_metarange(place.store.read(location), location)
    assert ranges.column("entries").to_pylist() == [3]
    [range_id] = ranges.column("range_id").to_pylist()
    rows = read_range(place.store.read(f"_lakefs/{range_id}"), range_id, keys=True, details=True)
    assert rows.column("key").to_pylist() == [b"p/0", b"p/1", b"p/2"]
    assert rows.column("address").to_pylist() == [place.key(f"p/{i}") for i in range(3)]
    assert place.store.read(rows.column("address")[1].as_py()) == b"p/1"
    place.branch("other")
    place.put("q", branch="other")
    second = place.commit(branch="other")
    shared = read_metarange(place.store.read(f"_lakefs/{second.meta_range_id}"), "second")
    assert shared.column("range_id").to_pylist()[0] == range_id
    assert shared.column("entries").to_pylist() == [3, 1]
    data = place.get(f"/repositories/{REPOSITORY}/metadata/object/range/{range_id}").content
    assert data == place.store.read(f"_lakefs/{range_id}")


def test_reading_an_object_whose_bytes_are_deleted_answers_410(place: Place) -> None:
    place.put("kept")
    place.put("lost")
    place.commit()
    place.store.delete_many([place.key("lost")])
    assert refused(410, place.client.objects_api.get_object, REPOSITORY, "main", "lost") == "No data"
    copy = lakefs_sdk.ObjectCopyCreation(src_path="lost")
    assert refused(410, place.client.objects_api.copy_object, REPOSITORY, "main", "copy", copy) == "No data"
    # As in lakeFS, neither of these reads the store.
    assert place.client.objects_api.stat_object(REPOSITORY, "main", "lost").size_bytes == 4
    assert place.client.objects_api.head_object_with_http_info(REPOSITORY, "main", "lost").status_code == 200
    assert place.read("kept") == b"kept"


def test_conflicts_and_strategies(local: Place) -> None:
    local.put("x", "base")
    local.commit()
    local.branch("dev")
    for branch in ("main", "dev"):
        local.put("x", branch, branch=branch)
        local.commit(branch, branch=branch)
    merge = local.client.refs_api.merge_into_branch
    with pytest.raises(ApiException) as caught:
        merge(REPOSITORY, "dev", "main")
    assert caught.value.status == 409
    conflict = local.client.refs_api.diff_refs(REPOSITORY, "main", "dev").results
    assert [(d.path, d.type) for d in conflict] == [("x", "conflict")]
    merge(REPOSITORY, "dev", "main", merge=lakefs_sdk.Merge(strategy="dest-wins"))
    assert local.read("x") == b"main"
    local.put("x", "dev again", branch="dev")
    local.commit(branch="dev")
    merge(REPOSITORY, "dev", "main", merge=lakefs_sdk.Merge(strategy="source-wins", squash_merge=True))
    assert local.read("x") == b"dev again"
    squashed = local.client.refs_api.log_commits(REPOSITORY, "main", amount=1).results[0]
    assert len(squashed.parents) == 1
    local.branch("same")
    assert refused(400, merge, REPOSITORY, "same", "main") == "update branch main: no changes"
    local.put("dirty")
    local.put("y", branch="dev")
    local.commit(branch="dev")
    assert refused(400, merge, REPOSITORY, "dev", "main") == "uncommitted changes (dirty branch)"
    assert refused(400, local.commit, branch="dev") == "commit: no changes"


def test_listing_with_prefix_delimiter_and_pages(local: Place) -> None:
    for path in ("a/1", "a/2", "b", "c/d/1", "c/d/2", "c/e"):
        local.put(path)
    local.commit()
    local.put("a/0")  # staged over committed
    local.client.objects_api.delete_object(REPOSITORY, "main", "c/e")
    assert local.paths(delimiter="/") == ["a/", "b", "c/"]
    assert local.paths(prefix="c/", delimiter="/") == ["c/d/"]
    seen: list[str] = []
    after = ""
    while True:
        page = local.client.objects_api.list_objects(REPOSITORY, "main", amount=2, after=after)
        seen += [item.path for item in page.results]
        after = page.pagination.next_offset
        if not page.pagination.has_more:
            break
    assert seen == ["a/0", "a/1", "a/2", "b", "c/d/1", "c/d/2"]
    levels = local.client.objects_api.list_objects(REPOSITORY, "main", delimiter="/", amount=1)
    assert (levels.results[0].path, levels.pagination.next_offset) == ("a/", "a/")
    assert local.paths(delimiter="/", amount=1, after="a/") == ["b"]
    diff = local.client.branches_api.diff_branch(REPOSITORY, "main", delimiter="/")
    assert [(d.path, d.path_type) for d in diff.results] == [("a/", "common_prefix"), ("c/", "common_prefix")]


def objects_in(place: Place) -> set[str]:
    return {key for batch in place.store.list("data/") for key in batch.column("address").to_pylist()}


def test_uploads_raw_and_multipart_with_metadata_and_conditions(local: Place) -> None:
    url = f"{local.server.endpoint_url}/api/v1/repositories/{REPOSITORY}/branches/main/objects"
    auth = (local.server.access_key_id, local.server.secret_access_key)
    big = os.urandom(3 << 20)
    headers = {"Content-Type": "text/csv", "x-lakefs-meta-team": "data"}
    raw = httpx.post(url, params={"path": "raw"}, content=big, headers=headers, auth=auth)
    assert raw.json()["metadata"] == {"team": "data"}
    assert raw.json()["content_type"] == "text/csv"
    files = {"content": ("name", big, "text/plain")}
    form = httpx.post(url, params={"path": "form"}, files=files, auth=auth)
    assert (form.json()["checksum"], form.json()["content_type"]) == (raw.json()["checksum"], "text/plain")
    assert local.read("form") == local.read("raw") == big
    stored = objects_in(local)
    again = httpx.post(url, params={"path": "raw"}, content=b"x", headers={"If-None-Match": "*"}, auth=auth)
    assert (again.status_code, again.json()["message"]) == (412, "path already exists")
    assert objects_in(local) == stored, "what was refused left no garbage"
    part = local.get(
        f"/repositories/{REPOSITORY}/refs/main/objects",
        params={"path": "raw"},
        headers={"Range": "bytes=1048570-1048585"},
    )
    assert (part.status_code, part.content) == (206, big[1_048_570:1_048_586])
    head = httpx.head(
        f"{local.server.endpoint_url}/api/v1/repositories/{REPOSITORY}/refs/main/objects",
        params={"path": "raw"},
        auth=auth,
    )
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(big)))
    assert head.headers["content-type"] == "text/csv"
    e_tag = head.headers["etag"]
    unmodified = local.get(
        f"/repositories/{REPOSITORY}/refs/main/objects",
        params={"path": "raw"},
        headers={"If-None-Match": e_tag},
    )
    assert unmodified.status_code == 304
    empty = httpx.post(url, params={"path": "empty"}, content=b"", auth=auth)
    assert empty.json()["size_bytes"] == 0
    assert local.read("empty") == b""


def test_an_import_references_objects_without_copying_them(place: Place) -> None:
    outside = place.namespace.rsplit("/", 1)[0] if place.namespace.startswith("s3") else "local:/"
    elsewhere = place.server.sandbox.namespaces.store(f"{outside}/elsewhere")
    for key in ("in/1", "in/deep/2", "single", "other"):
        elsewhere.put(key, key.encode())
    place.put("old/replaced")
    place.put("kept")
    place.commit()
    body = lakefs_sdk.ImportCreation(
        paths=[
            lakefs_sdk.ImportLocation(type="common_prefix", path=f"{outside}/elsewhere/in/", destination="old/"),
            lakefs_sdk.ImportLocation(type="object", path=f"{outside}/elsewhere/single", destination="one"),
        ],
        commit=lakefs_sdk.CommitCreation(message="imported"),
    )
    import_id = place.client.import_api.import_start(REPOSITORY, "main", body).id
    status = wait_for(lambda: place.client.import_api.import_status(REPOSITORY, "main", import_id))
    assert status.error is None
    assert status.ingested_objects == 3
    assert status.commit.message == "imported"
    assert place.paths() == ["kept", "old/1", "old/deep/2", "one"]
    assert place.read("old/deep/2") == b"in/deep/2"
    stat = place.client.objects_api.stat_object(REPOSITORY, "main", "one")
    assert stat.physical_address == f"{outside}/elsewhere/single"
    missing = lakefs_sdk.ImportCreation(
        paths=[lakefs_sdk.ImportLocation(type="object", path=f"{outside}/elsewhere/none", destination="n")],
        commit=lakefs_sdk.CommitCreation(message="imported"),
    )
    failed_id = place.client.import_api.import_start(REPOSITORY, "main", missing).id
    failed = wait_for(lambda: place.client.import_api.import_status(REPOSITORY, "main", failed_id))
    assert failed.error is not None
    assert "n" not in place.paths()


def test_a_cancelled_import_leaves_the_branch_as_it_was(local: Place) -> None:
    elsewhere = local.server.sandbox.namespaces.store("local://elsewhere")
    for number in range(5):
        elsewhere.put(f"in/{number}", b"x")
    location = lakefs_sdk.ImportLocation(type="common_prefix", path="local://elsewhere/in/", destination="new/")
    commit = lakefs_sdk.CommitCreation(message="imported")
    body = lakefs_sdk.ImportCreation(paths=[location], commit=commit)
    imports, sandbox = local.client.import_api, local.server.sandbox
    head = local.client.branches_api.get_branch(REPOSITORY, "main").commit_id

    def status() -> Any:
        return imports.import_status(REPOSITORY, "main", import_id)

    with sandbox.lock(sandbox.refs.repository(REPOSITORY)):  # the import waits for it before it commits
        import_id = imports.import_start(REPOSITORY, "main", body).id
        imports.import_cancel(REPOSITORY, "main", import_id)
        assert status().error.message == "Canceled"
    assert wait_for(status).error.message == "Canceled"
    assert local.paths() == []
    assert local.client.branches_api.get_branch(REPOSITORY, "main").commit_id == head
    assert refused(409, imports.import_cancel, REPOSITORY, "main", import_id) == "conflict found"
    refused(404, imports.import_cancel, REPOSITORY, "main", "none")

    import_id = imports.import_start(REPOSITORY, "main", body).id
    assert wait_for(status).ingested_objects == 5
    assert refused(409, imports.import_cancel, REPOSITORY, "main", import_id) == "conflict found"
    assert status().error is None
    assert len(local.paths()) == 5


def test_the_client_links_an_upload(local: Place) -> None:
    staging = local.client.staging_api
    location = staging.get_physical_address(REPOSITORY, "main", "linked")
    key = location.physical_address.removeprefix(local.namespace + "/")
    local.store.put(key, b"uploaded by the client")
    body = lakefs_sdk.StagingMetadata(staging=location, checksum='"abc"', size_bytes=22)
    linked = staging.link_physical_address(REPOSITORY, "main", "linked", body)
    assert linked.checksum == "abc"
    assert local.read("linked") == b"uploaded by the client"


def test_the_newest_layer_of_a_staging_area_takes_precedence(local: Place) -> None:
    local.put("x", "same")
    local.put("y", "kept")
    local.commit()
    local.put("x", "same")
    # A failed commit leaves a separate sealed layer.
    assert refused(400, local.commit) == "commit: no changes"
    local.put("x", "newer")
    assert local.read("x") == b"newer"
    assert [d.type for d in local.client.branches_api.diff_branch(REPOSITORY, "main").results] == ["changed"]
    local.client.objects_api.delete_object(REPOSITORY, "main", "x")
    assert local.paths() == ["y"]
    local.commit()
    assert local.paths("main@") == ["y"]


def test_resetting_a_path_shows_the_committed_object(local: Place) -> None:
    for path in ("a", "p/1", "p/2", "q"):
        local.put(path, "committed")
    local.commit()
    for path in ("a", "p/1", "p/new", "q"):
        local.put(path, "staged")
    local.client.objects_api.delete_object(REPOSITORY, "main", "p/2")
    reset = local.client.branches_api.reset_branch
    reset(REPOSITORY, "main", lakefs_sdk.ResetCreation(type="object", path="a"))
    reset(REPOSITORY, "main", lakefs_sdk.ResetCreation(type="common_prefix", path="p/"))
    assert local.paths() == ["a", "p/1", "p/2", "q"]
    assert [local.read(path) for path in ("a", "p/1", "p/2", "q")] == [b"committed"] * 3 + [b"staged"]
    diff = local.client.branches_api.diff_branch(REPOSITORY, "main")
    assert [d.path for d in diff.results] == ["q"]


@pytest.mark.parametrize("path", ["staged", "replaced"])
def test_an_object_that_is_committed_during_its_deletion_is_deleted(
    local: Place, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """After the commit it is no longer staged, and the previous commit does not contain it."""
    local.put("replaced", "before")
    local.commit()
    for name in ("staged", "replaced"):
        local.put(name, "after")
    look = Staging.get
    commits: list[Any] = []

    def commit_first(self: Staging, *arguments: Any) -> Any:
        if not commits:
            commits.append(None)
            commits.append(local.commit())
        return look(self, *arguments)

    monkeypatch.setattr(Staging, "get", commit_first)
    local.client.objects_api.delete_object(REPOSITORY, "main", path)
    assert len(commits) == 2
    refused(404, local.client.objects_api.stat_object, REPOSITORY, "main", path)
