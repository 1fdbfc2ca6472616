"""Which module may import which: the contracts of import-linter in pyproject.toml."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]

# One import for each contract that would break it: the module, and the line to add.
NEW_ARROWS = {
    "layers": ("errors.py", "import lakefs_gc.storage.base"),
    "pipeline-layers": ("pipeline/ui/metadata.py", "import lakefs_gc.pipeline.session"),
    "engine-layers": ("engine/collect/references/committed.py", "import lakefs_gc.engine.sweep.deletion"),
    "sandbox-beside": ("sandbox/app.py", "import lakefs_gc.config"),
    "designs-beside": ("hard_delete/model.py", "import lakefs_gc.formats.ids"),
    "designs-unknown": ("demo/play.py", "import lakefs_gc.hard_delete.designs"),
    "dagster": ("engine/run.py", "import dagster"),
    "spark": ("formats/ids.py", "import pyspark.sql"),
    "aws": ("storage/local.py", "from botocore.config import Config"),
    "azure": ("storage/location.py", "import azure.identity"),
    "google": ("storage/location.py", "import google.auth"),
    "web": ("terminal/output.py", "import uvicorn"),
}


def lint(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the package in a folder."""
    code = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache", "--config", str(CHECKOUT / "pyproject.toml"), *options],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_every_import_points_down() -> None:
    linted = lint(CHECKOUT)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    assert re.search(r"Contracts: \d+ kept, 0 broken", linted.stdout)


def test_every_contract_has_an_arrow_that_breaks_it() -> None:
    ids = re.findall(r'^id = "([a-z-]+)"$', (CHECKOUT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert ids == list(NEW_ARROWS)


@pytest.mark.parametrize("contract", NEW_ARROWS)
def test_a_new_arrow_is_refused(contract: str, tmp_path: Path) -> None:
    shutil.copytree(CHECKOUT / "lakefs_gc", tmp_path / "lakefs_gc", ignore=shutil.ignore_patterns("__pycache__"))
    name, line = NEW_ARROWS[contract]
    module = tmp_path / "lakefs_gc" / name
    # Inside a function: a late import is an arrow, too.
    module.write_text(f"{module.read_text('utf-8')}\n\ndef _late() -> None:\n    {line}\n", "utf-8")
    linted = lint(tmp_path, "--contract", contract)
    assert linted.returncode == 1, linted.stdout + linted.stderr
    assert "0 kept, 1 broken" in linted.stdout
