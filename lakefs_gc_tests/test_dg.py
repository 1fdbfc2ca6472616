"""The component as people use it: a project of ``create-dagster``, scaffolded, checked, listed and run by ``dg``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dagster import AssetKey, DagsterInstance

from lakefs_gc_tests.docs.generate import DOCS
from lakefs_gc_tests.docs.pages import blocks
from lakefs_gc_tests.support.asset_graph import GRAPH, JOBS
from lakefs_gc_tests.support.lake import Lake
from lakefs_gc_tests.support.lake_fixtures import lake_of_environment
from lakefs_gc_tests.support.repository_with_garbage import GARBAGE, with_garbage

__all__ = ["lake_of_environment"]

COMPONENT = "lakefs_gc.component.LakeFSGCComponent"
PAGE = DOCS / "guides" / "embedding.md"
PROGRAMS = Path(sys.executable).parent
TIMEOUT_SECONDS = 900

pytestmark = pytest.mark.skipif(
    not all((PROGRAMS / program).exists() for program in ("dg", "create-dagster")),
    reason="dg is not installed: pip install dagster-dg-cli create-dagster",
)


class Project:
    """A project, and the commands of its developer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "lakehouse"
        self.home = folder / "dagster-home"
        self.home.mkdir()
        (self.home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        assert self._run(folder, "create-dagster", "project", "lakehouse", "--no-uv-sync").returncode == 0

    @property
    def yaml(self) -> Path:
        return self.folder / "src" / "lakehouse" / "defs" / "garbage" / "defs.yaml"

    def dg(self, *arguments: str) -> str:
        """Run a command of ``dg`` that must succeed, and return its output."""
        ended = self._run(self.folder, "dg", *arguments)
        assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
        return ended.stdout

    def refusal(self, *arguments: str) -> str:
        """Run a command of ``dg`` that must fail, and return what it prints."""
        ended = self._run(self.folder, "dg", *arguments)
        assert ended.returncode != 0
        return ended.stdout + ended.stderr

    def _run(self, folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "DAGSTER_HOME": str(self.home),
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "PYTHONPATH": f"{folder / 'src'}:{os.environ['PYTHONPATH']}",
            "COLUMNS": "200",
        }
        return subprocess.run(
            [str(PROGRAMS / program), *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )


def documented_command(name: str) -> list[str]:
    """Return the arguments of a command of ``dg``, as the page has it."""
    (line,) = [line for block in blocks(PAGE, "sh") for line in block.splitlines() if line.startswith(f"dg {name} ")]
    return line.split()[1:]


@pytest.mark.long(60)
def test_a_project_of_dg(tmp_path: Path) -> None:
    project = Project(tmp_path)
    assert COMPONENT in project.dg("list", "components")
    project.dg(*documented_command("scaffold"))
    assert yaml.safe_load(project.yaml.read_text())["type"] == COMPONENT

    # What the page has.
    (documented,) = [block for block in blocks(PAGE, "yaml") if block.startswith("type:")]
    project.yaml.write_text(documented)
    project.dg("check", "yaml")
    project.dg("check", "defs")
    listed = json.loads(project.dg("list", "defs", "--json"))
    assert {asset["asset_key"] for asset in listed["assets"]} == {f"lakefs_gc/{name}" for name in GRAPH}
    assert {job["name"] for job in listed["jobs"]} == {f"lakefs_gc__{name}" for name in JOBS}

    project.yaml.write_text(documented.replace("repositories", "repositoriez"))
    assert "'repositoriez' was unexpected" in project.refusal("check", "yaml")
    project.yaml.write_text(documented.replace("required_before", "required_befor"))
    assert "backup.required_befor_sweep: Unknown setting" in project.refusal("check", "defs")


@pytest.mark.long(60)
def test_a_mark_by_dg_launch(lake: Lake, tmp_path: Path, small_spark_config: dict[str, str]) -> None:
    repository, partition = with_garbage(lake.repository("sales")), "sales/first"
    project = Project(tmp_path)
    project.dg(*documented_command("scaffold"))
    settings = {"work_url": lake.settings.work_url, "mounts": lake.settings.mounts, "spark": small_spark_config}
    attributes = {"repositories": [repository.name], "settings": settings}
    project.yaml.write_text(yaml.safe_dump({"type": COMPONENT, "attributes": attributes}))
    with DagsterInstance.from_config(str(project.home)) as instance:
        instance.add_dynamic_partitions("lakefs_gc__gc_runs", [partition])
        project.dg(*documented_command("launch"))
        made = instance.get_latest_materialization_event(AssetKey(["lakefs_gc", "mark"]))
    assert made is not None
    assert made.asset_materialization is not None
    assert made.asset_materialization.partition == partition
    assert made.asset_materialization.metadata["dagster/row_count"].value == GARBAGE
