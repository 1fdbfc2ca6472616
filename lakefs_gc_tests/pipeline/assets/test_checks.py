"""The checks as people meet them: asset checks of the mark, which its sweep reads again (rule 8)."""

from __future__ import annotations

import json

import pytest
from dagster import AssetKey

from lakefs_gc.config import Protections
from lakefs_gc.engine.decide.marking.checks import protections_from_json
from lakefs_gc.engine.records.check import CHECKS, WARNING_CHECKS
from lakefs_gc.engine.records.mark import MarkPaths
from lakefs_gc.engine.records.stored_marks import read_mark
from lakefs_gc.errors import SafetyError
from lakefs_gc.pipeline.session import GCSession
from lakefs_gc_tests.support.code_location import RUN, CodeLocation, failure_of, materialized, values
from lakefs_gc_tests.support.collector import STAGES
from lakefs_gc_tests.support.former_records import former_mark
from lakefs_gc_tests.support.lake import LakeRepository


def test_a_failed_check_keeps_the_mark_from_being_swept(
    location: CodeLocation, repository: LakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = sorted(key for key in repository.objects() if not key.startswith("data/garbage"))
    repository.store.delete_many(live[:1])
    before = repository.objects()
    marked = location.run("gc_mark", RUN)
    assert not marked.success, "the check blocks"
    checks = {check.check_name: check for check in marked.get_asset_check_evaluations()}
    assert checks.keys() == CHECKS.keys()
    assert {name for name, check in checks.items() if not check.passed} == {"live_objects_exist"}
    assert {name for name, check in checks.items() if check.severity.value == "WARN"} == WARNING_CHECKS
    mark = values(materialized(marked)["mark"])
    assert "1 referenced objects do not exist" in str(checks["live_objects_exist"].metadata["message"].value)

    # By somebody who did not look at the checks: refused here and now, and not by the sweep later.
    failure = failure_of(location.approve(RUN), "sweep_approval")
    assert failure["error"] == SafetyError.__name__
    assert "--override live_objects_exist" in failure["what_to_do"]
    assert location.sweeps_by_sensor() == []
    assert repository.objects() == before
    for name in (*STAGES, "mark"):
        done = location.instance.get_materialized_partitions(AssetKey(name))
        assert done == {RUN}, "a refusal leaves what was collected and decided as it was"
    assert "Blocked by 1 failed check: live\\_objects\\_exist" in mark["what_now"]
    assert "overrides: [live_objects_exist]" in mark["what_now"]
    assert [record.data["check"] for record in mark["failed_checks"].records] == ["live_objects_exist"]
    assert {check.partition for check in marked.get_asset_check_evaluations()} == {RUN}
    assert checks["live_objects_exist"].metadata["missing"].value == 1

    # By its former name, which one release still accepts.
    config = {"overrides": ["live_objects_are_there"], "why": "lost in May, known"}
    assert location.approve(RUN, **config).success
    (swept,) = location.sweeps_by_sensor()
    assert swept.success
    assert len(repository.objects()) == len(before) - values(materialized(swept)["sweep"])["deleted_objects"]
    approval = json.loads(repository.store.read(MarkPaths.of(str(mark["mark_id"])).approval))
    assert approval["overrides"] == {"live_objects_exist": "lost in May, known"}


@pytest.mark.of_ci
def test_a_mark_of_the_previous_version_is_approved_by_its_digest_and_swept(
    location: CodeLocation, repository: LakeRepository
) -> None:
    live = sorted(key for key in repository.objects() if not key.startswith("data/garbage"))
    repository.store.delete_many(live[:1])
    mark_id = str(values(materialized(location.run("gc_mark", RUN))["mark"])["mark_id"])
    paths = MarkPaths.of(mark_id)
    repository.store.put(paths.manifest, former_mark(repository.store.read(paths.manifest), 3))
    digest = json.loads(repository.store.read(paths.manifest))["digest"]
    before = repository.objects()
    assert not location.approve(RUN, digest=digest).success, "its failed check blocks"
    assert location.approve(RUN, digest=digest, overrides=["live_objects_exist"], why="known").success
    (swept,) = location.sweeps_by_sensor()
    assert swept.success
    assert len(before - repository.objects()) == values(materialized(swept)["sweep"])["deleted_objects"] > 0


@pytest.mark.of_ci
def test_the_session_gives_a_mark_with_a_failed_check(location: CodeLocation, repository: LakeRepository) -> None:
    live = sorted(key for key in repository.objects() if not key.startswith("data/garbage"))
    repository.store.delete_many(live[:1])
    protect = Protections(tags=("v*",), path_prefixes=("audit/",))
    safety = location.settings.safety.model_copy(update={"protect": protect})
    session = GCSession(location.settings.model_copy(update={"safety": safety}), location.instance)
    mark_id = str(session.mark("lake/one")["mark_id"])
    mark = read_mark(repository.store, repository.name, repository.namespace, mark_id)
    # What the checks of the next mark, and the second look of the sweep, go by.
    assert protections_from_json(mark.run["protections"]) == protect
    assert mark.run["unreadable"] == []
