"""The sandbox through HTTP, with the unmodified SDK, on local files and on S3 if available."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import lakefs
import lakefs_sdk
import pytest
from lakefs_sdk.exceptions import ApiException

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.sandbox.auth import Credentials
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.server import SandboxServer, serve
from lakefs_gc.sandbox.versions.ranges import RangeLimits
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.fake_clock import FakeClock
from lakefs_gc_tests.support.sandbox_place import REPOSITORY, Place, StartSandbox, make_place, refused, sdk_client


def test_a_repository_is_created_used_and_deleted(place: Place) -> None:
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


def test_all_routes_except_health_and_setup_check_credentials(local: Place) -> None:
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


def test_the_high_level_package_works(local: Place, clock: FakeClock) -> None:
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


def test_serve_rejects_other_hosts_and_a_used_port(tmp_path: Path) -> None:
    store = StoreLocation((tmp_path / "objects").as_uri())
    with pytest.raises(ConfigurationError, match="loopback"):
        serve("0.0.0.0", 0, tmp_path, store)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigurationError, match="listen"):
        serve("127.0.0.1", taken.getsockname()[1], tmp_path, store)
    with pytest.raises(ConfigurationError, match="cannot store objects"):
        serve("127.0.0.1", 0, tmp_path, StoreLocation("oss://bucket/x"))


SERVE = """
import logging, sys
from pathlib import Path
from lakefs_gc.sandbox.auth import Credentials
from lakefs_gc.sandbox.server import serve
from lakefs_gc.storage.location import StoreLocation
logging.basicConfig(level=logging.INFO)
folder = Path(sys.argv[2])
serve("127.0.0.1", int(sys.argv[1]), folder, StoreLocation((folder / "objects").as_uri()),
      Credentials("key", "secret-of-the-test"))
"""


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_serve_runs_until_a_signal(tmp_path: Path, stop: signal.Signals) -> None:
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
