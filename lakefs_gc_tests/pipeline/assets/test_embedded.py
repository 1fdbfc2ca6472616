"""lakefs-gc in a project that has definitions of the same names: materialized there, and its events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from dagster import AssetKey, DagsterInstance, Definitions, ExecuteInProcessResult, SensorResult, build_sensor_context

from lakefs_gc.cli import mark_pages
from lakefs_gc.component import build_lakefs_gc_definitions
from lakefs_gc.config import Settings
from lakefs_gc.notify import Event, EventKind
from lakefs_gc.pipeline.names import Names
from lakefs_gc.pipeline.partitions import tags_of_new_partition
from lakefs_gc.report.build import mark_page
from lakefs_gc.report.facts import page_facts
from lakefs_gc.report.meanings import MEANINGS
from lakefs_gc_tests.support.code_location import failure_of, materialized, values
from lakefs_gc_tests.support.collector import STAGES
from lakefs_gc_tests.support.lake import Lake, LakeRepository
from lakefs_gc_tests.support.repository_with_garbage import GARBAGE, LIVE
from lakefs_gc_tests.support.sample_page import FACTS, SAMPLE
from lakefs_gc_tests.support.users_project import THEIRS, users_definitions

NAMES = Names(("gc",))
RUN = "lake/first"


class Project:
    """The user's project with lakefs-gc, and the events that reached its ``notify``."""

    def __init__(self, settings: Settings, instance: DagsterInstance) -> None:
        self.settings = settings
        self.events: list[Event] = []
        self.instance = instance
        mine = build_lakefs_gc_definitions(["lake"], key_prefix="gc", settings=settings, notify=self.events.append)
        self.definitions = Definitions.merge(users_definitions(), mine)
        self.cursors: dict[str, str] = {}

    def run(self, job: str, config: dict[str, Any] | None = None) -> ExecuteInProcessResult:
        definition = self.definitions.resolve_job_def(NAMES.name(job))
        return definition.execute_in_process(
            run_config=config,
            tags=tags_of_new_partition(definition, RUN),
            instance=self.instance,
            raise_on_error=False,
        )

    def tick(self, sensor: str) -> SensorResult:
        name = NAMES.name(sensor)
        context = build_sensor_context(self.instance, cursor=self.cursors.get(name), definitions=self.definitions)
        result = self.definitions.resolve_sensor_def(name)(context)
        assert isinstance(result, SensorResult)
        self.cursors[name] = result.cursor or ""
        return result

    def skipped(self, sensor: str) -> str:
        return str(self.tick(sensor).skip_reason)


@pytest.fixture
def project(lake: Lake, small_spark_config: dict[str, str], instance: DagsterInstance) -> Project:
    return Project(lake.settings.model_copy(update={"spark": small_spark_config}), instance)


@pytest.mark.of_ci
@pytest.mark.long(50)
def test_mark_approve_and_sweep_beside_the_users_own_assets(project: Project, repository: LakeRepository) -> None:
    assert "Starts now" in project.skipped("notify")
    made = project.run("gc_mark")
    assert made.success
    assert set(materialized(made)) == {*STAGES, "mark"}
    assert list(project.instance.get_dynamic_partitions(NAMES.name("gc_runs"))) == [RUN], "the run adds it"
    mark = values(materialized(made)["mark"])
    assert mark["dagster/row_count"] == GARBAGE
    assert "  gc__sweep_approval:\n" in mark["what_now"], "it is pasted into the launchpad"
    assert {check.asset_key.path[0] for check in made.get_asset_check_evaluations()} == {"gc"}

    project.tick("notify")
    (waits,) = project.events
    assert (waits.kind, waits.repository, waits.run_key) == (EventKind.mark_waits, "lake", RUN)
    assert waits.mark_id == mark["mark_id"]
    assert waits.facts["digest"] == mark["digest"]
    assert f"lists {GARBAGE} objects (24 B)" in waits.message
    assert "lakefs-gc approve lake --mark" in waits.remedy
    following, funnel = waits.facts["next"], {step["name"]: step["objects"] for step in waits.facts["funnel"]}
    assert following["text"] in waits.message
    assert following["text"] in mark["what_now"].replace("\\", "")
    assert [command for command in following["commands"] if mark["digest"] in command]
    assert waits.facts["ready_at"] == datetime.fromtimestamp(mark["ready_at"], UTC).isoformat()
    assert (funnel["marked"], funnel["listed"]) == (GARBAGE, LIVE + GARBAGE)
    assert list(funnel)[:2] == ["listed", "live"], "in the order of the page"
    project.tick("notify")
    assert len(project.events) == 1, "each event is sent once"

    # Without an approval the sensor starts no sweep, and a sweep is refused.
    assert project.tick("sweep_after_mark").run_requests in ([], None)
    refused = project.run("gc_sweep")
    assert "is not approved" in failure_of(refused, "gc__sweep")["description"]
    project.tick("notify")
    assert (project.events[-1].kind, len(project.events)) == (EventKind.run_failed, 2)
    assert project.events[-1].message.startswith(f"gc__gc_sweep of {RUN} was refused: ")
    assert project.events[-1].remedy == failure_of(refused, "gc__sweep")["what_to_do"]

    approval = {"digest": mark["digest"], "approved_by": "ada"}
    assert project.run("gc_approve", {"ops": {"gc__sweep_approval": {"config": approval}}}).success
    (request,) = project.tick("sweep_after_mark").run_requests or ()
    assert (request.partition_key, request.tags["lakefs_gc/repository"]) == (RUN, "lake")
    swept = project.run("gc_sweep", dict(request.run_config))
    assert swept.success, swept.get_step_failure_events()
    assert values(materialized(swept)["sweep"])["deleted_objects"] == GARBAGE
    project.tick("notify")
    assert [event.kind for event in project.events[2:]] == [EventKind.swept]
    assert project.events[-1].message == f"Mark {mark['mark_id']} was swept: {GARBAGE} deleted"
    assert project.events[-1].facts["deleted_bytes"] == GARBAGE * 12

    theirs = project.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
        asset_selection=[AssetKey("mark")], instance=project.instance
    )
    assert theirs.output_for_node("mark") == THEIRS
    assert "sent: 0" in project.skipped("notify"), "the runs of other assets are not news"


@pytest.mark.long(40)
def test_a_failed_check_is_one_event(project: Project, repository: LakeRepository) -> None:
    project.tick("notify")
    repository.put("sales/day=1/a.parquet")
    repository.commit(age_days=30)
    repository.delete("sales/day=1/a.parquet")
    repository.commit(age_days=20)
    repository.keep_days(10)
    repository.store.delete_many([repository.put("lost")])
    repository.commit()
    assert not project.run("gc_mark").success, "the check blocks what is downstream"
    project.tick("notify")
    (failed,) = project.events
    assert failed.kind is EventKind.check_failed
    assert [check["name"] for check in failed.facts["failed_checks"]] == ["live_objects_exist"]
    (check,) = failed.facts["failed_checks"]
    assert check["message"] in failed.message
    assert (check["override"], check["meaning"]) == (
        "--override live_objects_exist",
        MEANINGS["live_objects_exist"],
    )
    assert failed.facts["next"]["state"] == "blocked"
    assert "--override live_objects_exist" in failed.facts["next"]["commands"][0]
    assert f"lakefs-gc show lake --mark {failed.mark_id}" in failed.remedy

    # It has what `show` has, from the same page: ages, folders, rules, backup.
    _, text, shown = mark_pages.show(project.settings, "lake", failed.mark_id)
    assert failed.page == text
    of_page = page_facts(mark_page(SAMPLE, FACTS)).keys()
    assert {name: failed.facts[name] for name in of_page} == {name: shown[name] for name in of_page}
    (folder,) = failed.facts["folders"]
    assert (folder["folder"], folder["branch"], folder["rule"]) == ("sales/", "main", "default: 10 days")
    assert sum(age["marked"] for age in failed.facts["bytes_by_age"].values()) == failed.facts["bytes"] > 0
    in_force = {fact["name"]: fact["value"] for fact in failed.facts["in_force"]}
    assert in_force["retention rules"] == "default: 10 days"
    assert "no backup location is configured" in in_force["backup"]
