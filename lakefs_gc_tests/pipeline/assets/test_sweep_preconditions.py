"""What makes a sweep impossible is found before it waits, and a mark of lakeFS's client is checked as ours are."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.stored_marks import list_marks, read_mark
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.errors import MarkError, SafetyError
from lakefs_gc_tests.support.client_marks import UNIFIED, write_client_mark
from lakefs_gc_tests.support.code_location import RUN, CodeLocation, failure_of, materialized, values
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.repository_with_garbage import GARBAGE

CLIENT_RUN = "lake/m1"


def approve(location: CodeLocation, run_key: str, repository: LakeRepository, mark_id: str, *overrides: str) -> None:
    digest = read_mark(repository.store, repository.name, repository.namespace, mark_id).digest
    seen = {"mark_id": mark_id, "digest": digest, "approved_by": "ada"}
    config = seen | {"overrides": list(overrides), "why": "a test"}
    assert location.run("gc_approve", run_key, sweep_approval=config).success


@pytest.mark.long(20)
def test_a_mark_of_the_client_is_checked_when_it_is_swept(location: CodeLocation, repository: LakeRepository) -> None:
    safety = location.settings.safety.model_copy(update={"max_marked_share": 0.1, "share_counts_from_objects": 0})
    location = CodeLocation.of(location.settings.model_copy(update={"safety": safety}), location.instance)
    garbage = sorted(key for key in repository.objects() if key.startswith("data/garbage"))
    write_client_mark(repository.store, UNIFIED, garbage, cutoff=utc_now() - timedelta(hours=24))
    before = repository.objects()
    approve(location, CLIENT_RUN, repository, "m1")
    failure = failure_of(location.run("gc_sweep", CLIENT_RUN, sweep={"mark_id": "m1"}), "sweep")
    assert failure["error"] == SafetyError.__name__
    assert f"{GARBAGE} of {len(before)} objects are marked" in failure["description"]
    assert repository.objects() == before
    approve(location, CLIENT_RUN, repository, "m1", "share_of_objects", "share_of_bytes")
    swept = location.run("gc_sweep", CLIENT_RUN, sweep={"mark_id": "m1"})
    assert values(materialized(swept)["sweep"])["deleted_objects"] == GARBAGE


def test_a_mark_without_the_result_of_a_check_is_refused(location: CodeLocation, repository: LakeRepository) -> None:
    assert location.run("gc_mark", RUN).success
    [mark_id] = list_marks(repository.store)
    mark = read_mark(repository.store, repository.name, repository.namespace, mark_id)
    rewritten = replace(mark, checks=mark.checks[1:], digest="").sealed()
    repository.store.put(MarkPaths.of(mark_id).manifest, rewritten.to_json())
    approve(location, RUN, repository, mark_id)
    failure = failure_of(location.run("gc_sweep", RUN), "sweep")
    assert failure["error"] == MarkError.__name__
    assert f"does not record the result of these checks: {mark.checks[0].name}" in failure["description"]


def test_a_mark_of_the_client_with_a_live_object(location: CodeLocation, repository: LakeRepository) -> None:
    """The client marked an object that a branch shows: its own mark says nothing of that."""
    live = sorted(key for key in repository.objects() if not key.startswith("data/garbage"))
    write_client_mark(repository.store, UNIFIED, live[:1], cutoff=utc_now() - timedelta(hours=24))
    approve(location, CLIENT_RUN, repository, "m1")
    failure = failure_of(location.run("gc_sweep", CLIENT_RUN, sweep={"mark_id": "m1"}), "sweep")
    assert "--override no_head_object_marked" in failure["what_to_do"]
    assert live[0] in repository.objects()


@pytest.mark.of_ci("True")
@pytest.mark.parametrize("named", [False, True])
def test_a_mark_of_the_client_with_somebody_elses_file(
    location: CodeLocation, repository: LakeRepository, named: bool
) -> None:
    """The client marks whatever lies at the root; here that is lakeFS's only if the repository says so."""
    state = repository.put_stray("terraform.tfstate")
    if named:
        repository.stage("by hand", repository.put_stray("named"))
    garbage = sorted(key for key in repository.objects() if key.startswith("data/garbage"))
    write_client_mark(repository.store, UNIFIED, [*garbage, state], cutoff=utc_now() - timedelta(hours=24))
    before = repository.objects()
    approve(location, CLIENT_RUN, repository, "m1")
    swept = location.run("gc_sweep", CLIENT_RUN, sweep={"mark_id": "m1"})
    if named:
        assert values(materialized(swept)["sweep"])["deleted_objects"] == GARBAGE + 1
        return
    failure = failure_of(swept, "sweep")
    assert (failure["error"], "1 objects at the root" in failure["description"]) == (MarkError.__name__, True)
    assert repository.objects() == before


def test_parts_of_an_upload_in_a_mark_of_the_client(location: CodeLocation, repository: LakeRepository) -> None:
    """No list has them while the upload is under way: they stay for seven days more, whoever marked them."""
    part = repository.put_stray("data/g0000000000000000000/c0000000000000000000.part_00001", age_hours=48)
    write_client_mark(repository.store, UNIFIED, [part], cutoff=utc_now() - timedelta(hours=24))
    approve(location, CLIENT_RUN, repository, "m1")
    failure = failure_of(location.run("gc_sweep", CLIENT_RUN, sweep={"mark_id": "m1"}), "sweep")
    assert "--override nothing_newer_than_cutoff" in failure["what_to_do"]
    repository.age(part, 24 * 9)
    swept = location.run("gc_sweep", CLIENT_RUN, sweep={"mark_id": "m1"})
    assert values(materialized(swept)["sweep"])["deleted_objects"] == 1


@pytest.mark.of_ci("another server")
@pytest.mark.parametrize("reason", ["another server", "a repository that cannot be read"])
def test_nothing_is_waited_for_in_vain(
    location: CodeLocation, lake: Lake, repository: LakeRepository, reason: str
) -> None:
    other = lake.repository("other")
    other.put("a")
    other.commit()
    made = values(materialized(location.run("gc_mark", RUN))["mark"])
    approve(location, RUN, repository, made["mark_id"])
    waiting = location.settings.safety.model_copy(update={"longest_commit_minutes": 60.0})
    location = CodeLocation.of(location.settings.model_copy(update={"safety": waiting}), location.instance)
    before = repository.objects()
    if reason == "another server":
        manifest = MarkPaths.of(made["mark_id"]).manifest
        content = json.loads(repository.store.read(manifest))
        assert content["run"]["server"]["endpoint_url"] == lake.credentials.endpoint_url
        # As a copy of the server under another name sees the mark.
        with pytest.MonkeyPatch.context() as patch:
            copy = lake.credentials.endpoint_url.replace("127.0.0.1", "localhost")
            patch.setenv("LAKECTL_SERVER_ENDPOINT_URL", copy)
            began = time.monotonic()
            failure = failure_of(location.run("gc_sweep", RUN), "sweep")
            approval = failure_of(location.approve(RUN), "sweep_approval")
        assert approval["description"] == failure["description"], "it is not approved either"
        assert (failure["error"], "localhost" in failure["description"]) == (MarkError.__name__, True)
    else:
        shutil.rmtree(other.folder)
        began = time.monotonic()
        failure = failure_of(location.run("gc_sweep", RUN), "sweep")
        assert (failure["error"], "Repository other" in failure["description"]) == (SafetyError.__name__, True)
        assert "safety.repositories_not_read" in failure["what_to_do"]
    assert time.monotonic() - began < 600
    assert repository.objects() == before
