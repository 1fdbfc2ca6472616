"""What a mark begins before the stage that it belongs to: once, and not before rule 1 permits it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from threading import Event
from types import ModuleType
from typing import Any

import pytest

from lakefs_gc.engine.collect.listing import store_listing
from lakefs_gc.engine.collect.references import foreign_references, uncommitted
from lakefs_gc.engine.decide.marking import marked_paths
from lakefs_gc.engine.workspace.workspace import Workspace, utc_now
from lakefs_gc.pipeline.partitions import gc_runs
from lakefs_gc_tests.support.code_location import RUN, CodeLocation, materialized
from lakefs_gc_tests.support.lake import LakeRepository

_SOON = {"min_age_hours": 0, "unsafe_min_age": True}
_WAIT_SECONDS = 60

Around = Callable[..., None]


@pytest.fixture
def happened() -> list[tuple[str, datetime]]:
    return []


@pytest.fixture
def around(monkeypatch: pytest.MonkeyPatch, happened: list[tuple[str, datetime]]) -> Around:
    """Record when a function of a module begins (or ends), and call ``then``."""

    def record(
        module: ModuleType, function: str, name: str, *, ends: bool = False, then: Callable[[], object] = lambda: None
    ) -> None:
        original = getattr(module, function)

        def recorded(*arguments: Any, **options: Any) -> Any:
            result = original(*arguments, **options) if ends else None
            happened.append((name, utc_now()))
            then()
            return result if ends else original(*arguments, **options)

        monkeypatch.setattr(module, function, recorded)

    return record


def test_the_server_works_when_the_store_is_listed_and_before_the_listing_is_written(
    repository: LakeRepository,
    location: CodeLocation,
    around: Around,
    happened: list[tuple[str, datetime]],
) -> None:
    list_began, others_asked = Event(), Event()

    def wait_for_both() -> None:  # as for Spark, which starts meanwhile
        assert list_began.wait(_WAIT_SECONDS)
        assert others_asked.wait(_WAIT_SECONDS)

    around(store_listing, "list_in_rounds", "listed", ends=True)
    around(store_listing, "local_rows", "written", then=wait_for_both)
    around(uncommitted, "prepare_uncommitted", "uncommitted", then=list_began.set)
    around(foreign_references, "probe", "others", then=others_asked.set)
    around(marked_paths, "_marked_paths", "paths")
    materialized(location.run("gc_mark", RUN, store_listing=_SOON))

    names = [name for name, _ in happened]
    assert Counter(names) == dict.fromkeys(("listed", "written", "uncommitted", "others", "paths"), 1)
    assert names[0] == "listed"
    times, workspace = dict(happened), Workspace(location.settings.work_url)
    listing, references, others = (
        workspace.manifest(RUN, stage) for stage in ("store_listing", "uncommitted", "foreign_references")
    )
    # The times that rule 1 compares are those of the work.
    assert times["listed"] <= listing.ended_at <= references.began_at <= times["uncommitted"]
    assert listing.ended_at <= others.began_at <= times["others"]


def test_a_listing_alone_begins_nothing(
    repository: LakeRepository,
    location: CodeLocation,
    around: Around,
    happened: list[tuple[str, datetime]],
) -> None:
    around(uncommitted, "prepare_uncommitted", "uncommitted")
    around(foreign_references, "probe", "others")
    location.instance.add_dynamic_partitions(str(gc_runs.name), [RUN])
    job = location.definitions.resolve_job_def("gc_mark")
    result = job.execute_in_process(
        run_config={"ops": {"store_listing": {"config": _SOON}}},
        partition_key=RUN,
        instance=location.instance,
        asset_selection=[key for key in job.asset_layer.executable_asset_keys if key.path == ["store_listing"]],
    )
    assert set(materialized(result)) == {"store_listing"}
    assert happened == []
