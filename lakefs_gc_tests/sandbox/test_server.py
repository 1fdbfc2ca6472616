"""The sandbox through HTTP, with the unmodified SDK: on local files always, on S3 where there is one."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import lakefs
import lakefs_sdk
import pytest
from lakefs_sdk.client import LakeFSClient
from lakefs_sdk.exceptions import ApiException

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.formats.ranges import read_metarange, read_range
from lakefs_gc.sandbox.auth import Credentials
from lakefs_gc.sandbox.committed import RangeLimits
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.server import SandboxServer, serve
from lakefs_gc.storage.base import ObjectStore, StoreLocation
from lakefs_gc.storage.open import open_store
from lakefs_gc_tests.sandbox.conftest import FakeClock, StartSandbox, sdk_client

REPOSITORY = "demo"


@dataclass
class Place:
    """A sandbox somewhere, with one repository."""

    server: SandboxServer
    client: LakeFSClient
    namespace: str
    store: ObjectStore

    def put(self, path: str, content: str = "", branch: str = "main") -> Any:
        return self.client.objects_api.upload_object(REPOSITORY, branch, path, content=(content or path).encode())

    def commit(self, message: str = "message", branch: str = "main", **fields: Any) -> Any:
        body = lakefs_sdk.CommitCreation(message=message, **fields)
        return self.client.commits_api.commit(REPOSITORY, branch, body)

    def branch(self, name: str, source: str = "main", **fields: Any) -> None:
        body = lakefs_sdk.BranchCreation(name=name, source=source, **fields)
        self.client.branches_api.create_branch(REPOSITORY, body)

    def paths(self, ref: str = "main", **fields: Any) -> list[str]:
        listed = self.client.objects_api.list_objects(REPOSITORY, ref, **fields)
        return [item.path for item in listed.results]

    def read(self, path: str, ref: str = "main") -> bytes:
        return bytes(self.client.objects_api.get_object(REPOSITORY, ref, path))

    def key(self, path: str, ref: str = "main") -> str:
        address = self.client.objects_api.stat_object(REPOSITORY, ref, path).physical_address
        return str(address).removeprefix(self.namespace + "/")

    def get(self, url: str, **options: Any) -> httpx.Response:
        auth = (self.server.access_key_id, self.server.secret_access_key)
        return httpx.get(f"{self.server.endpoint_url}/api/v1{url}", **{"auth": auth, **options})


def refused(status: int, call: Callable[..., Any], *args: Any, **fields: Any) -> str:
    """The message of a call that must be refused with this status."""
    with pytest.raises(ApiException) as caught:
        call(*args, **fields)
    assert caught.value.status == status
    return str(json.loads(caught.value.body)["message"])


def make_place(server: SandboxServer, root: str, namespace: str) -> Place:
    client = sdk_client(server)
    client.repositories_api.create_repository(
        lakefs_sdk.RepositoryCreation(name=REPOSITORY, storage_namespace=namespace)
    )
    return Place(server, client, namespace, open_store(StoreLocation(root)))


@pytest.fixture
def local(start_sandbox: StartSandbox, tmp_path: Path) -> Place:
    return make_place(start_sandbox(), (tmp_path / "objects" / "demo").as_uri(), "local://demo")


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, start_sandbox: StartSandbox) -> Place:
    if request.param == "local":
        found: Place = request.getfixturevalue("local")
        return found
    location: StoreLocation = request.getfixturevalue("s3_namespace")
    root = StoreLocation(location.url.removesuffix("/repository"))
    return make_place(start_sandbox(root), location.url, location.url)


def test_a_repositorys_life(place: Place) -> None:
    place.put("a/1", "one")
    place.put("a/2", "two")
    first = place.commit("first", metadata={"by": "test"}, date=1_700_000_000)
    assert (first.generation, first.creation_date, first.metadata) == (2, 1_700_000_000, {"by": "test"})
    place.branch("dev")
    place.put("a/1", "changed", branch="dev")
    place.client.objects_api.delete_object(REPOSITORY, "dev", "a/2")
    place.put("b/3", "three", branch="dev")
    assert place.paths("dev") == ["a/1", "b/3"]
    assert place.paths("main") == ["a/1", "a/2"]
    diff = place.client.branches_api.diff_branch(REPOSITORY, "dev")
    kinds = [(d.path, d.type) for d in diff.results]
    assert kinds == [("a/1", "changed"), ("a/2", "removed"), ("b/3", "added")]
    place.commit("second", branch="dev")
    refs = place.client.refs_api.diff_refs(REPOSITORY, "main", "dev")
    assert [(d.path, d.type) for d in refs.results] == kinds
    place.client.refs_api.merge_into_branch(REPOSITORY, "dev", "main")
    assert place.read("a/1") == b"changed"
    assert place.paths() == ["a/1", "b/3"]
    log = place.client.refs_api.log_commits(REPOSITORY, "main").results
    assert [c.message for c in log][-1] == "Repository created"
    assert log[0].message == "Merge 'dev' into 'main'"
    assert len(log[0].parents) == 2
    assert log[0].metadata == {".lakefs.merge.strategy": "default"}
    first_parents = place.client.refs_api.log_commits(REPOSITORY, "main", first_parent=True).results
    assert [c.message for c in first_parents] == [log[0].message, "first", "Repository created"]
    place.client.branches_api.revert_branch(REPOSITORY, "main", lakefs_sdk.RevertCreation(ref="main", parent_number=1))
    assert place.paths() == ["a/1", "a/2"]
    assert place.read("a/1", first.id[:10]) == b"one"
    assert place.read("a/1", "main~2") == b"one"


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


def test_reading_an_object_whose_bytes_are_gone_is_410(place: Place) -> None:
    place.put("kept")
    place.put("lost")
    place.commit()
    place.store.delete_many([place.key("lost")])
    assert refused(410, place.client.objects_api.get_object, REPOSITORY, "main", "lost") == "No data"
    copy = lakefs_sdk.ObjectCopyCreation(src_path="lost")
    assert refused(410, place.client.objects_api.copy_object, REPOSITORY, "main", "copy", copy) == "No data"
    assert place.client.objects_api.stat_object(REPOSITORY, "main", "lost").size_bytes == 4
    assert place.read("kept") == b"kept"


def test_a_restart_keeps_everything_and_opens_a_slice(
    start_sandbox: StartSandbox, local: Place, tmp_path: Path
) -> None:
    before = local.put("committed")
    local.commit()
    local.put("staged")
    tags = local.client.tags_api
    tags.create_tag(REPOSITORY, lakefs_sdk.TagCreation(id="v1", ref="main"))
    # The SDK does not read the null that a server answers for a list of no branches.
    rule = lakefs_sdk.GarbageCollectionRule(branch_id="main", retention_days=4)
    rules = lakefs_sdk.GarbageCollectionRules(default_retention_days=3, branches=[rule])
    local.client.repositories_api.set_gc_rules(REPOSITORY, rules)
    key = local.server.access_key_id, local.server.secret_access_key
    local.server.__exit__(None, None, None)
    again = SandboxServer(tmp_path / "state", StoreLocation((tmp_path / "objects").as_uri()))
    with again:
        assert (again.access_key_id, again.secret_access_key) == key
        place = Place(again, sdk_client(again), local.namespace, local.store)
        assert place.paths() == ["committed", "staged"]
        assert place.paths("v1") == ["committed"]
        assert place.client.repositories_api.get_gc_rules(REPOSITORY) == rules
        after = place.put("new").physical_address.split("/")[-2]
        assert after < before.physical_address.split("/")[-2]


def test_a_damaged_file_is_an_error_of_the_server_not_an_empty_answer(
    start_sandbox: StartSandbox, local: Place
) -> None:
    local.put("x")
    tree = local.commit().meta_range_id
    local.server.__exit__(None, None, None)
    local.store.put(f"_lakefs/{tree}", b"damaged")
    local.client = sdk_client(start_sandbox())
    assert tree in refused(500, local.paths)
    local.store.delete_many([f"_lakefs/{tree}"])
    assert tree in refused(500, local.paths)


def test_the_sandboxs_state_is_private(local: Place, tmp_path: Path) -> None:
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0
    for file in (tmp_path / "state").iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


def test_credentials_are_checked_everywhere_but_at_the_door(local: Place) -> None:
    url = f"{local.server.endpoint_url}/api/v1"
    for auth in (None, ("wrong", local.server.secret_access_key), (local.server.access_key_id, "wrong")):
        for path in ("/repositories", "/config", "/user", f"/repositories/{REPOSITORY}/gc/prepare_commits"):
            method = "POST" if path.endswith("commits") else "GET"
            answer = httpx.request(method, url + path, auth=auth)
            assert answer.status_code == 401
            assert answer.json() == {"message": "error authenticating request"}
    assert httpx.get(url + "/healthcheck").status_code == 204
    assert httpx.get(url + "/setup_lakefs").json()["state"] == "initialized"


def test_a_login_gives_a_token_that_expires(local: Place, clock: FakeClock) -> None:
    body = lakefs_sdk.LoginInformation(
        access_key_id=local.server.access_key_id, secret_access_key=local.server.secret_access_key
    )
    token = local.client.auth_api.login(body).token
    headers = {"Authorization": f"Bearer {token}"}
    assert local.get("/user", auth=None, headers=headers).json()["user"]["id"] == "admin"
    head, _, signature = token.rpartition(".")
    forged = {"Authorization": f"Bearer {head}x.{signature}"}
    assert local.get("/user", auth=None, headers=forged).status_code == 401
    clock.advance(days=8)
    assert local.get("/user", auth=None, headers=headers).status_code == 401


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


def test_an_import_refers_to_objects_where_they_are(place: Place) -> None:
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


def wait_for(get: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 20
    while not (status := get()).completed:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return status


def test_a_link_by_way_of_the_client(local: Place) -> None:
    staging = local.client.staging_api
    location = staging.get_physical_address(REPOSITORY, "main", "linked")
    key = location.physical_address.removeprefix(local.namespace + "/")
    local.store.put(key, b"uploaded by the client")
    body = lakefs_sdk.StagingMetadata(staging=location, checksum='"abc"', size_bytes=22)
    linked = staging.link_physical_address(REPOSITORY, "main", "linked", body)
    assert linked.checksum == "abc"
    assert local.read("linked") == b"uploaded by the client"
    staging.link_physical_address(REPOSITORY, "main", "linked", body)  # lakeFS takes a token twice


def test_links_may_be_single_use(start_sandbox: StartSandbox, tmp_path: Path) -> None:
    server = start_sandbox(options=SandboxOptions(single_use_links=True))
    local = make_place(server, (tmp_path / "objects" / "demo").as_uri(), "local://demo")
    staging = local.client.staging_api
    location = staging.get_physical_address(REPOSITORY, "main", "linked")
    body = lakefs_sdk.StagingMetadata(staging=location, checksum="abc", size_bytes=1)
    staging.link_physical_address(REPOSITORY, "main", "linked", body)
    message = refused(400, staging.link_physical_address, REPOSITORY, "main", "linked", body)
    assert message == "link address invalid"


def test_uploads_go_on_while_commits_are_made(start_sandbox: StartSandbox, tmp_path: Path) -> None:
    options = SandboxOptions(range_limits=RangeLimits(raggedness_entries=7))
    local = make_place(start_sandbox(options=options), (tmp_path / "objects" / "demo").as_uri(), "local://demo")

    def upload(i: int) -> None:
        local.put(f"p/{i:03}")

    def commit(_: int) -> None:
        try:
            local.commit()
        except ApiException as error:
            if json.loads(error.body)["message"] != "commit: no changes":
                raise

    with ThreadPoolExecutor(8) as pool:
        uploads = [pool.submit(upload, i) for i in range(60)]
        commits = [pool.submit(commit, i) for i in range(12)]
        for future in [*uploads, *commits]:
            future.result()
    commit(0)
    expected = [f"p/{i:03}" for i in range(60)]
    assert local.paths("main@", amount=1000) == expected
    assert local.client.branches_api.diff_branch(REPOSITORY, "main").results == []
    with sqlite3.connect(tmp_path / "state" / "sandbox.sqlite") as database:
        assert database.execute("SELECT count(*) FROM staged").fetchone() == (0,)


def test_repositories_branches_and_tags(local: Place) -> None:
    repositories = local.client.repositories_api
    body = lakefs_sdk.RepositoryCreation(name="second", storage_namespace="local://second")
    repositories.create_repository(body)
    assert [r.id for r in repositories.list_repositories().results] == ["demo", "second"]
    page = repositories.list_repositories(amount=1)
    assert (page.pagination.has_more, page.pagination.next_offset) == (True, "demo")
    assert refused(409, repositories.create_repository, body) == "error creating repository: not unique"
    in_use = lakefs_sdk.RepositoryCreation(name="third", storage_namespace="local://second")
    assert "storage namespace already in use" in refused(400, repositories.create_repository, in_use)
    for namespace in ("s3://elsewhere/x", "local://../up", "local://"):
        bad = lakefs_sdk.RepositoryCreation(name="third", storage_namespace=namespace)
        refused(400, repositories.create_repository, bad)
    repositories.delete_repository("second")
    assert refused(404, repositories.get_repository, "second") == "repository not found"
    local.branch("hidden", hidden=True)
    local.branch("shown")
    branches = local.client.branches_api
    assert [b.id for b in branches.list_branches(REPOSITORY).results] == ["main", "shown"]
    everything = branches.list_branches(REPOSITORY, show_hidden=True).results
    assert [b.id for b in everything] == ["hidden", "main", "shown"]
    assert refused(409, local.branch, "shown") == "branch already exists: not unique"
    assert refused(404, local.branch, "b", source="nowhere") == "source reference 'nowhere': not found"
    message = refused(403, branches.delete_branch, REPOSITORY, "main")
    assert message == "cannot delete repository default branch"
    tags = local.client.tags_api
    tags.create_tag(REPOSITORY, lakefs_sdk.TagCreation(id="v1", ref="main"))
    taken = lakefs_sdk.TagCreation(id="v1", ref="main")
    assert refused(409, tags.create_tag, REPOSITORY, taken) == "tag already exists: not unique"
    assert refused(409, local.branch, "v1") == "tag ID v1: conflict found"
    assert tags.get_tag(REPOSITORY, "v1").commit_id == branches.get_branch(REPOSITORY, "main").commit_id
    tags.delete_tag(REPOSITORY, "v1")
    assert refused(404, tags.get_tag, REPOSITORY, "v1") == "tag not found"


def test_the_newest_layer_of_a_staging_area_decides(local: Place) -> None:
    local.put("x", "same")
    local.put("y", "kept")
    local.commit()
    local.put("x", "same")
    # A commit that fails leaves what it sealed in a layer of its own.
    assert refused(400, local.commit) == "commit: no changes"
    local.put("x", "newer")
    assert local.read("x") == b"newer"
    assert [d.type for d in local.client.branches_api.diff_branch(REPOSITORY, "main").results] == ["changed"]
    local.client.objects_api.delete_object(REPOSITORY, "main", "x")
    assert local.paths() == ["y"]
    local.commit()
    assert local.paths("main@") == ["y"]


def test_resetting_a_path_shows_what_is_committed(local: Place) -> None:
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


def test_the_high_level_package_works_too(local: Place, clock: FakeClock) -> None:
    client: Any = lakefs.Client(  # type: ignore[no-untyped-call]
        host=local.server.endpoint_url,
        username=local.server.access_key_id,
        password=local.server.secret_access_key,
    )
    repository = lakefs.Repository("second", client).create(storage_namespace="local://second")
    branch = repository.branch("main")
    branch.object("data/one").upload(b"1, 2", content_type="text/csv")
    clock.advance(minutes=1)
    branch.commit("one", metadata={"k": "v"})
    clock.advance(minutes=1)
    dev = repository.branch("dev").create("main")
    with dev.object("data/two").writer("wb") as writer:
        writer.write(b"two")
    dev.commit("two")
    clock.advance(minutes=1)
    dev.merge_into(branch)
    with branch.object("data/two").reader("rb") as reader:
        assert reader.read() == b"two"
    assert [item.path for item in branch.objects()] == ["data/one", "data/two"]
    branch.object("data/one").delete()
    assert [(change.path, change.type) for change in branch.uncommitted()] == [("data/one", "removed")]
    branch.reset_changes()
    assert list(branch.uncommitted()) == []
    messages = [commit.message for commit in branch.log()]
    assert messages == ["Merge 'dev' into 'main'", "two", "one", "Repository created"]
    assert client.storage_config.blockstore_type == "local"


def test_serve_refuses_what_others_can_reach_and_a_port_that_is_taken(tmp_path: Path) -> None:
    store = StoreLocation((tmp_path / "objects").as_uri())
    with pytest.raises(ConfigurationError, match="loopback"):
        serve("0.0.0.0", 0, tmp_path, store)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigurationError, match="listen"):
        serve("127.0.0.1", taken.getsockname()[1], tmp_path, store)
    with pytest.raises(ConfigurationError, match="sandbox keeps"):
        serve("127.0.0.1", 0, tmp_path, StoreLocation("gs://bucket/x"))


SERVE = """
import logging, sys
from pathlib import Path
from lakefs_gc.sandbox.auth import Credentials
from lakefs_gc.sandbox.server import serve
from lakefs_gc.storage.base import StoreLocation
logging.basicConfig(level=logging.INFO)
folder = Path(sys.argv[2])
serve("127.0.0.1", int(sys.argv[1]), folder, StoreLocation((folder / "objects").as_uri()),
      Credentials("key", "secret-of-the-test"))
"""


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_serve_runs_until_it_is_told_to_stop(tmp_path: Path, stop: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(port), str(tmp_path)], stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/config", auth=("key", "secret-of-the-test"))
                break
            except httpx.TransportError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert answer.json()["storage_config"]["blockstore_type"] == "local"
        process.send_signal(stop)
        _, log = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert "this is a sandbox for demos and tests" in log
    assert "GET /api/v1/config" in log
    assert "sandbox stopped" in log
    assert "secret-of-the-test" not in log


def test_credentials_hide_their_secret() -> None:
    assert "hidden" not in repr(Credentials("key", "hidden"))
