"""An approval that another installation wrote: Dagster finds it in the namespace, records it, and sweeps."""

from __future__ import annotations

from datetime import timedelta

import pytest
from dagster import AssetKey, build_sensor_context
from dagster._core.definitions.partitions.context import partition_loading_context

from lakefs_gc.engine.records.approval import VIA_COMMAND_LINE, VIA_SWEEP_COMMAND, approve
from lakefs_gc.engine.records.stored_marks import read_mark
from lakefs_gc.engine.workspace.workspace import utc_now
from lakefs_gc.pipeline.automation.approval_sensor import approval_sensor
from lakefs_gc_tests.support.code_location import RUN, CodeLocation, materialized, values
from lakefs_gc_tests.support.lake import LakeRepository
from lakefs_gc_tests.support.repository_with_garbage import GARBAGE, LIVE


def look(location: CodeLocation) -> str:
    """A tick of the sensor, and what Dagster's daemon does with it; why nothing was found."""
    with (
        build_sensor_context(instance=location.instance, definitions=location.definitions) as context,
        partition_loading_context(dynamic_partitions_store=location.instance),
    ):
        result = approval_sensor(location.settings).evaluate_tick(context)
    for event in result.asset_events:
        location.instance.report_runless_asset_event(event)
    return str(result.skip_message or "")


@pytest.mark.of_ci
@pytest.mark.long(25)
def test_an_approval_from_elsewhere_is_swept(location: CodeLocation, repository: LakeRepository) -> None:
    made = values(materialized(location.run("gc_mark", RUN))["mark"])
    mark = read_mark(repository.store, repository.name, repository.namespace, str(made["mark_id"]))

    def given(via: str) -> None:
        safety = location.settings.safety
        approve(repository.store, mark, mark.digest, by="ada", via=via, now=utc_now(), age=timedelta(0), safety=safety)

    given(VIA_SWEEP_COMMAND)
    assert look(location) == "New approvals in the namespaces of 1 repositories: none.", "that command sweeps itself"
    given(VIA_COMMAND_LINE)
    assert look(location).endswith(f": {RUN} by ada.")
    [record] = location.instance.fetch_materializations(AssetKey("sweep_approval"), limit=1).records
    assert record.asset_materialization is not None
    # Otherwise the run would wait until then, and hold a slot.
    assert record.asset_materialization.metadata["ready_at"].value == made["ready_at"]
    (swept,) = location.sweeps_by_sensor()
    assert values(materialized(swept)["sweep"])["deleted_objects"] == GARBAGE
    assert len(repository.objects()) == LIVE
    assert look(location).endswith(": none.")
    assert location.sweeps_by_sensor() == []
