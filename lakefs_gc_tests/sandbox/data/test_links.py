"""Link tokens and staging: the addresses that a client may reference with an entry."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lakefs_sdk
import pytest
from lakefs_sdk.exceptions import ApiException

from lakefs_gc.errors import ConfigurationError
from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc_tests.support.fake_clock import FakeClock
from lakefs_gc_tests.support.sandbox_place import REPOSITORY, Place, StartSandbox, make_place, refused

USED = "link address already used: link address invalid"


def new_token(place: Place, path: str = "linked", *, branch: str = "main") -> lakefs_sdk.StagingMetadata:
    location = place.client.staging_api.get_physical_address(REPOSITORY, branch, path)
    place.store.put(location.physical_address.removeprefix(place.namespace + "/"), b"by the client")
    return lakefs_sdk.StagingMetadata(staging=location, checksum="abc", size_bytes=13)


def tracked(place: Place) -> int:
    connection = place.server.sandbox.database.connection
    return int(connection.execute("SELECT COUNT(*) FROM link_tokens").fetchone()[0])


def test_a_token_is_for_one_use(local: Place) -> None:
    link = local.client.staging_api.link_physical_address
    token = new_token(local)
    link(REPOSITORY, "main", "linked", token)
    assert local.read("linked") == b"by the client"
    assert tracked(local) == 0
    local.client.objects_api.delete_object(REPOSITORY, "main", "linked")
    assert refused(400, link, REPOSITORY, "main", "linked", token) == USED
    assert local.paths() == [], "what a collector may have deleted by now does not come back"


def test_only_one_of_two_concurrent_uses_succeeds(local: Place) -> None:
    token = new_token(local)

    def link(_: int) -> int:
        try:
            local.client.staging_api.link_physical_address(REPOSITORY, "main", "linked", token)
        except ApiException as error:
            return int(error.status)
        return 200

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(link, range(8))) == [200] + [400] * 7


def test_a_rejected_link_does_not_use_up_the_token(local: Place) -> None:
    link = local.client.staging_api.link_physical_address
    nowhere = new_token(local, branch="later")
    assert refused(404, link, REPOSITORY, "later", "linked", nowhere) == "branch not found"
    local.branch("later")
    link(REPOSITORY, "later", "linked", nowhere)
    token = new_token(local)
    no_checksum = lakefs_sdk.StagingMetadata(staging=token.staging, checksum="", size_bytes=1)
    assert refused(400, link, REPOSITORY, "main", "linked", no_checksum) == "checksum is required"
    local.put("linked")
    only_if_new = {"if_none_match": "*"}
    assert refused(412, link, REPOSITORY, "main", "linked", token, **only_if_new) == "path already exists"
    link(REPOSITORY, "main", "linked", token)


@pytest.mark.parametrize(("seconds", "options"), [(86_400, {}), (60, {"link_lifetime_seconds": 60})])
def test_a_token_expires_and_is_forgotten(
    seconds: int, options: Any, start_sandbox: StartSandbox, clock: FakeClock, tmp_path: Path
) -> None:
    server = start_sandbox(options=SandboxOptions(**options))
    place = make_place(server, (tmp_path / "objects" / "demo").as_uri(), "local://demo")
    link = place.client.staging_api.link_physical_address
    in_time, late = new_token(place, "in-time"), new_token(place, "late")
    clock.advance(seconds=seconds)
    link(REPOSITORY, "main", "in-time", in_time)
    assert tracked(place) == 1
    clock.advance(seconds=1)
    assert refused(400, link, REPOSITORY, "main", "late", late) == "link address expired"
    new_token(place, "another")
    assert tracked(place) == 1, "the expired one is not kept"


def test_tokens_survive_a_restart_but_not_the_deletion_of_their_repository(
    start_sandbox: StartSandbox, tmp_path: Path
) -> None:
    root = (tmp_path / "objects" / "demo").as_uri()
    place = make_place(start_sandbox(), root, "local://demo")
    token = new_token(place)
    place.server = start_sandbox()
    assert tracked(place) == 1
    place.client.staging_api.link_physical_address(REPOSITORY, "main", "linked", token)
    new_token(place)
    place.client.repositories_api.delete_repository(REPOSITORY)
    assert tracked(place) == 0


def test_a_token_may_not_outlive_the_grace_period() -> None:
    with pytest.raises(ConfigurationError, match="outlive the grace period"):
        SandboxOptions(grace_period_seconds=3600, link_lifetime_seconds=3601)


def stage(place: Place, url: str) -> lakefs_sdk.ObjectStageCreation:
    return lakefs_sdk.ObjectStageCreation(physical_address=url, checksum="abc", size_bytes=1)


def test_only_objects_outside_the_namespace_can_be_staged(place: Place) -> None:
    stage_object = place.client.internal_api.stage_object
    inside = "physical address is inside the storage namespace: copy or link the object instead"
    for key in (place.put("a").physical_address.removeprefix(place.namespace + "/"), "root", "deep/er/key"):
        body = stage(place, f"{place.namespace}/{key}")
        assert refused(400, stage_object, REPOSITORY, "main", "staged", body) == inside
    assert place.paths() == ["a"]
    outside = f"{place.namespace}-evil/data/x"
    place.server.sandbox.namespaces.store(f"{place.namespace}-evil").put("data/x", b"x")
    stage_object(REPOSITORY, "main", "staged", stage(place, outside))
    assert place.read("staged") == b"x"


def test_every_link_inside_the_namespace_needs_a_token(local: Place) -> None:
    link = local.client.staging_api.link_physical_address
    location = lakefs_sdk.StagingLocation(physical_address=f"{local.namespace}/root")
    body = lakefs_sdk.StagingMetadata(staging=location, checksum="abc", size_bytes=1)
    assert refused(400, link, REPOSITORY, "main", "x", body) == "address is not signed: link address invalid"
