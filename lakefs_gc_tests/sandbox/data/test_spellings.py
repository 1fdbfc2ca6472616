"""StageObject and Link of an address inside the namespace, in each spelling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lakefs_sdk
import pytest

from lakefs_gc.sandbox.context import SandboxOptions
from lakefs_gc.sandbox.server import SandboxServer
from lakefs_gc.storage.location import StoreLocation
from lakefs_gc_tests.support.sandbox_place import REPOSITORY, Place, make_place, refused

SPELLINGS = {
    "namespace": "local://demo/{key}",
    "scheme's case": "LOCAL://demo/{key}",
    "percent": "local://%64emo/{key}",
    "percent in the key": "local://demo/%64{rest}",
    "dots": "local://demo/other/../{key}",
    "encoded dots": "local://demo/other/%2E%2E/{key}",
    "doubled slash": "local://demo//{key}",
    "by another namespace": "local://other/../demo/{key}",
    "query": "local://demo/{key}?x=1",
    "folder": "local://{folder}/demo/{key}",
    "folder, scheme's case": "Local://{folder}/demo/{key}",
    "folder, dots": "local://{folder}/other/../demo/{key}",
    "folder, doubled slash": "local://{folder}//demo/{key}",
    "folder, percent": "local://{folder}/%64emo/{key}",
    "symbolic link": "local://{link}/demo/{key}",
}


@pytest.fixture(params=[False, True], ids=["strict", "stage_inside_namespace"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    (tmp_path / "link").symlink_to(tmp_path / "objects")
    options = SandboxOptions(stage_inside_namespace=request.param)
    with SandboxServer(tmp_path / "state", StoreLocation((tmp_path / "objects").as_uri()), options=options) as server:
        yield make_place(server, (tmp_path / "objects" / "demo").as_uri(), "local://demo")


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_each_spelling_of_the_namespace_is_inside(place: Place, tmp_path: Path, spelling: str) -> None:
    key = place.put("first").physical_address.removeprefix("local://demo/")
    url = SPELLINGS[spelling].format(key=key, rest=key[1:], folder=tmp_path / "objects", link=tmp_path / "link")
    staged = lakefs_sdk.ObjectStageCreation(physical_address=url, checksum="sum", size_bytes=5)
    linked = lakefs_sdk.StagingMetadata(
        staging=lakefs_sdk.StagingLocation(physical_address=url), checksum="sum", size_bytes=5
    )
    stage, link = place.client.internal_api.stage_object, place.client.staging_api.link_physical_address
    strict = not place.server.sandbox.options.stage_inside_namespace
    if strict or url.startswith("local://demo/data/"):  # a relative address needs its token in any case
        assert "link address invalid" in refused(400, link, REPOSITORY, "main", "second", linked)
    else:
        link(REPOSITORY, "main", "second", linked)
    if strict or not url.startswith("local://"):
        refused(400, stage, REPOSITORY, "main", "second", staged)
    else:
        stage(REPOSITORY, "main", "second", staged)


def test_an_address_outside_the_namespace_needs_no_token(place: Place, tmp_path: Path) -> None:
    for url in (f"local://{tmp_path}/imports/a", f"local://{tmp_path}/objects/demo2/a", "local://demo2/a"):
        staged = lakefs_sdk.ObjectStageCreation(physical_address=url, checksum="sum", size_bytes=5)
        place.client.internal_api.stage_object(REPOSITORY, "main", "outside", staged)
