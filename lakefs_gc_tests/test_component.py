"""lakefs-gc in another Dagster project: its names beside theirs, and the component of ``dg``."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from dagster import AssetKey, Definitions, in_process_executor
from dagster.components.testing import create_defs_folder_sandbox

from lakefs_gc.component import LakeFSGCComponent, build_lakefs_gc_definitions
from lakefs_gc.config import Settings
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.pipeline.code_location import build_definitions
from lakefs_gc_tests.support.asset_graph import GRAPH, JOBS, specs
from lakefs_gc_tests.support.users_project import users_definitions

EMR = {
    "kind": "emr-serverless",
    "entry_point": "s3://b/job.py",
    "messages_bucket": "b",
    "request": {"applicationId": "a", "executionRoleArn": "r"},
}
TYPE = "lakefs_gc.component.LakeFSGCComponent"


def test_every_name_is_below_the_prefix_and_nothing_applies_to_the_rest() -> None:
    embedded = build_lakefs_gc_definitions(["lake"], key_prefix=["a", "b"], settings={}, notify=print)
    assert embedded.executor is None
    found = specs(embedded)
    assert set(found) == {f"a/b/{name}" for name in GRAPH}
    for name, (group, kinds, deps) in GRAPH.items():
        spec = found[f"a/b/{name}"]
        assert (spec.group_name, set(spec.kinds)) == (f"a__b__{group}", kinds), name
        assert {dep.asset_key.to_user_string() for dep in spec.deps} == {f"a/b/{dep}" for dep in deps}, name
        own = specs(build_definitions(Settings()))[name]
        assert (spec.description, spec.owners) == (own.description, own.owners), name
        assert spec.metadata.get("dagster/column_schema") == own.metadata.get("dagster/column_schema"), name
        assert spec.partitions_def is not None
        assert spec.partitions_def.name == "a__b__gc_runs"  # type: ignore[attr-defined]
    repository = embedded.get_repository_def()
    assert {job.name for job in embedded.resolve_all_job_defs()} - {"__ASSET_JOB"} == {f"a__b__{job}" for job in JOBS}
    for job, assets in JOBS.items():
        resolved = embedded.resolve_job_def(f"a__b__{job}")
        assert {key.path[-1] for key in resolved.asset_layer.executable_asset_keys} == assets
        assert resolved.executor_def is in_process_executor
        assert resolved.get_tags_for_partition_key("lake/first", None)["lakefs_gc/repository"] == "lake"
    pools = {node.name: node.definition.pool for node in embedded.resolve_implicit_global_asset_job_def().nodes}  # type: ignore[attr-defined]
    assert pools == {f"a__b__{name}": None if name == "sweep_approval" else "a__b__runs" for name in GRAPH}
    own_checks = build_definitions(Settings()).resolve_asset_graph().asset_check_keys
    checks = embedded.resolve_asset_graph().asset_check_keys
    assert {check.name for check in checks} == {check.name for check in own_checks}
    assert all(check.asset_key == AssetKey(["a", "b", "mark"]) for check in checks)
    assert sorted([s.name for s in repository.sensor_defs] + [s.name for s in repository.schedule_defs]) == [
        "a__b__approvals_in_namespaces",
        "a__b__forecast_after_mark",
        "a__b__mark_repositories",
        "a__b__notify",
        "a__b__sweep_after_mark",
    ]
    targets = {sensor.name: sensor.job_name for sensor in repository.sensor_defs if sensor.has_jobs}
    assert targets == {
        "a__b__sweep_after_mark": "a__b__gc_sweep",
        "a__b__forecast_after_mark": "a__b__gc_forecast",
    }
    assert [schedule.job_name for schedule in repository.schedule_defs] == ["a__b__gc_mark"]


def test_merges_with_a_project_that_has_all_of_these_names_and_with_itself() -> None:
    merged = Definitions.merge(
        users_definitions(),
        build_lakefs_gc_definitions(["lake"], settings={}, notify=print),
        build_lakefs_gc_definitions(["pond"], key_prefix="other", settings={"sweep": {"policy": "after"}}),
    )
    Definitions.validate_loadable(merged)
    assert {key.to_user_string() for key in merged.resolve_asset_graph().get_all_asset_keys()} == {
        "mark",
        "sweep",
        *(f"{prefix}/{name}" for prefix in ("lakefs_gc", "other") for name in GRAPH),
    }
    own_job = merged.resolve_job_def("lakefs_gc__gc_mark")
    assert {key.path[0] for key in own_job.asset_layer.executable_asset_keys} == {"lakefs_gc"}
    repository = merged.get_repository_def()
    assert "24 h old" in str(repository.get_sensor_def("other__sweep_after_mark").description)


def test_settings_of_a_file_are_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lakefs-gc.toml").write_text('repositories = ["lake"]\nowner = "team:of-the-file"\n')
    monkeypatch.chdir(tmp_path)
    owners = {owner for spec in specs(build_lakefs_gc_definitions()).values() for owner in spec.owners}
    assert owners == {"team:of-the-file"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"settings": {"safety": {"min_age_hour": 3}}}, "settings: safety.min_age_hour: Unknown setting"),
        ({"repositories": ["No Name"], "settings": {}}, "'No Name' is not the name of a repository"),
        ({"key_prefix": "a-b", "settings": {}}, "key_prefix is 'a-b'"),
        ({"key_prefix": [], "settings": {}}, "key_prefix is"),
        (
            {"settings": {"work_url": "s3://b/w", "emr": EMR}},
            r"Jobs on EMR report to lakefs-gc's own code location only",
        ),
        ({"settings": {"schedule": {"cron": "61 3 * * *"}}}, r"schedule\.cron"),
    ],
)
def test_what_cannot_be_embedded_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_lakefs_gc_definitions(**arguments)  # type: ignore[arg-type]


def load(attributes: Mapping[str, object]) -> Iterator[Definitions]:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=LakeFSGCComponent, defs_yaml_contents={"type": TYPE, "attributes": attributes}
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, definitions):
            yield definitions


def test_the_component_from_yaml() -> None:
    spark = {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": True}
    settings = {"owner": "team:lake", "spark": spark}
    (definitions,) = load({"repositories": ["lake"], "key_prefix": "lake/gc", "settings": settings})
    configured = (definitions.resources or {})["lake__gc__spark"].spark_config
    assert configured == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "true"}
    assert {owner for spec in specs(definitions).values() for owner in spec.owners} == {"team:lake"}
    assert AssetKey(["lake", "gc", "mark"]) in definitions.resolve_asset_graph().get_all_asset_keys()


@pytest.mark.parametrize(
    ("attributes", "messages"),
    [
        ({"repositoriez": ["lake"]}, ("repositoriez", "extra inputs are not permitted")),
        ({"settings": {"safety": {"min_age_hour": 3}}}, ("safety.min_age_hour: Unknown setting",)),
    ],
)
def test_a_misspelt_key_of_the_yaml_is_named(attributes: dict[str, object], messages: tuple[str, ...]) -> None:
    with pytest.raises(Exception, match=r"defs\.yaml") as caught:
        list(load(attributes))
    chain = f"{caught.value} {caught.value.__cause__}".lower()
    assert all(message.lower() in chain for message in messages), chain


def test_dg_finds_the_component_without_spark() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["dagster_dg_cli.registry_modules"] == {"lakefs_gc": "lakefs_gc.component"}
    code = "import sys, lakefs_gc.component; print({'pyspark', 'numba', 'lakefs_gc.pipeline'} & {*sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "set()"
